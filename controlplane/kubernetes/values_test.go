package kubernetes_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// TestTimesThatJSONCannotHaveAreReplaced has a server whose times are in the year 10000 in UTC. What the agent
// stores, and its answers about the fleet, contain such times.
func TestTimesThatJSONCannotHaveAreReplaced(t *testing.T) {
	const at = "9999-12-31T23:59:59-14:00"
	node := strings.ReplaceAll(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"1","creationTimestamp":"AT","deletionTimestamp":"AT",
		"managedFields":[{"manager":"m","operation":"Update","time":"AT"}]},
		"spec":{"taints":[{"key":"a","effect":"NoExecute","timeAdded":"AT"},{"key":"b","effect":"NoExecute","timeAdded":"2026-01-02T03:04:05Z"}]},
		"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"AT","lastTransitionTime":"AT"}]}}`, "AT", at)
	client := dial(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/leases"):
			respond(w, `{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"n","namespace":"kube-node-lease"},"spec":{"renewTime":"9999-12-31T23:59:59.000000-14:00"}}]}`)
		case strings.HasSuffix(r.URL.Path, "/nodes"):
			respond(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[`+node+`]}`)
		default:
			respond(w, node)
		}
	}))
	check := func(n *corev1.Node) {
		t.Helper()
		added := n.Spec.Taints[0].TimeAdded.UTC()
		if _, err := json.Marshal(added); err != nil {
			t.Errorf("the taint: %v", err)
		}
		if want := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC); !n.Spec.Taints[1].TimeAdded.Time.Equal(want) {
			t.Errorf("the other taint has the time %v, want %v", n.Spec.Taints[1].TimeAdded, want)
		}
		text, err := json.Marshal(n)
		if err != nil || strings.Contains(string(text), "10000-") {
			t.Errorf("the Node is %s, %v, want no time in the year 10000", text, err)
		}
	}
	n, err := client.Node(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	check(n)
	members := 0
	err = controlplane.FleetLister(client).Fleet(t.Context(), func(n *corev1.Node, l *coordinationv1.Lease) error {
		members++
		check(n)
		if _, err := json.Marshal(l.Spec.RenewTime.UTC()); err != nil {
			t.Errorf("the Lease: %v", err)
		}
		return nil
	})
	if err != nil || members != 1 {
		t.Errorf("Fleet() = %v after %d Nodes, want one", err, members)
	}
}
