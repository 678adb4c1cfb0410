package kubernetes_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"hostler.io/hostler/controlplane/store"
)

// TestCredentialsFollowNoRedirect has an API server that redirects to a plain http address.
func TestCredentialsFollowNoRedirect(t *testing.T) {
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				t.Errorf("%s %s was sent elsewhere, with Authorization %q", r.Method, r.URL, r.Header.Get("Authorization"))
			}))
			defer elsewhere.Close()
			server := serve(t, http.RedirectHandler(elsewhere.URL+"/api", code).ServeHTTP)
			client, fleet := dial(t, server), dialFleet(t, server)
			for name, call := range map[string]func(context.Context) error{
				"agent: read the Node": func(ctx context.Context) error { _, err := client.Node(ctx, "n"); return err },
				"agent: renew":         func(ctx context.Context) error { _, err := client.RenewLease(ctx, newLease(t, "n")); return err },
				"server: ping":         fleet.Ping,
				"server: follow":       func(ctx context.Context) error { return fleet.Follow(ctx, store.Nodes, store.AllChanges, &reports{}) },
				"server: update": func(ctx context.Context) error {
					_, err := fleet.Update(ctx, store.Nodes, "n", store.Preconditions{}, func(store.Object) error { return nil })
					return err
				},
			} {
				if err := call(t.Context()); err == nil || !strings.Contains(err.Error(), "redirects to "+elsewhere.URL) {
					t.Errorf("%s: %v, want that the redirect is not followed", name, err)
				}
			}
		})
	}
}
