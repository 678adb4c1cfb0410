package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
)

// A server whose store was restored continues from an earlier version.
func TestVersionsThatWentBackAreLearnedOnce(t *testing.T) {
	version := 100
	var requests []string
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method)
		if r.Method == http.MethodPatch {
			var patch struct{ Metadata metav1.ObjectMeta }
			if err := json.NewDecoder(r.Body).Decode(&patch); err != nil {
				t.Errorf("read the patch: %v", err)
			}
			if patch.Metadata.ResourceVersion != fmt.Sprint(version) {
				refuse(w, http.StatusConflict, "Conflict", "changed meanwhile")
				return
			}
			version++
		}
		respond(w, fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"%d"}}`, version))
	}))
	if _, err := client.Register(t.Context(), newNode("n"), controlplane.RegisterOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		version int // the server's version; 0 continues
		want    []string
	}{{0, []string{"PATCH"}}, {5, []string{"PATCH", "GET", "PATCH"}}, {0, []string{"PATCH"}}} {
		if step.version != 0 {
			version = step.version
		}
		requests = nil
		if _, err := client.UpdateStatus(t.Context(), newNode("n")); err != nil || !slices.Equal(requests, step.want) {
			t.Errorf("UpdateStatus() at version %d = %v by %q, want %q", version, err, requests, step.want)
		}
	}
}
