package kubernetes_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// listed answers with a list of one object per page.
func listed(w http.ResponseWriter, r *http.Request, kind, version string, names ...string) {
	n := slices.Index(names, r.FormValue("continue")) + 1
	next := ""
	if n+1 < len(names) {
		next = names[n]
	}
	respond(w, fmt.Sprintf(`{"kind":"%sList","apiVersion":"%s","metadata":{"resourceVersion":"7","continue":%q},"items":[{"metadata":{"name":%q}}]}`, kind, version, next, names[n]))
}

func TestAFleetIsReadByPages(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked[r.URL.Path]++
		if r.FormValue("limit") == "" {
			t.Errorf("%s is requested without a limit", r.URL)
		}
		if strings.HasSuffix(r.URL.Path, "/leases") {
			listed(w, r, "Lease", "coordination.k8s.io/v1", "a", "b", "d")
			return
		}
		listed(w, r, "Node", "v1", "a", "c", "d")
	}))
	var reported []string
	err := client.Fleet(t.Context(), func(node *corev1.Node, lease *coordinationv1.Lease) error {
		what := node.Kind + " " + node.Name
		if lease != nil {
			what += " " + lease.Kind + " " + lease.Name
		}
		reported = append(reported, what)
		return nil
	})
	if want := []string{"Node a Lease a", "Node c", "Node d Lease d"}; err != nil || !slices.Equal(reported, want) {
		t.Errorf("Fleet() returned %q, %v, want %q", reported, err, want)
	}
	if nodes, leases := asked["/api/v1/nodes"], asked["/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"]; nodes != 3 || leases != 3 {
		t.Errorf("Fleet() asked %v, want three pages of each", asked)
	}
}

func TestAFleetThatANodeMayNotSeeIsForbidden(t *testing.T) {
	for _, what := range []string{"nodes", "leases"} {
		client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/"+what) {
				refuse(w, http.StatusForbidden, "Forbidden", what+" is forbidden")
				return
			}
			listed(w, r, "Node", "v1", "a")
		}))
		err := client.Fleet(t.Context(), func(*corev1.Node, *coordinationv1.Lease) error { return nil })
		if !errors.Is(err, controlplane.ErrForbidden) || !strings.Contains(err.Error(), "list "+what) {
			t.Errorf("Fleet() = %v, want that this node may not list %s", err, what)
		}
	}
}
