package lifecycle_test

import (
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/store"
)

// FuzzNode decides about a Node with any content, beside healthy ones, and executes the decision.
// Afterwards no change is due, whatever the Node contains.
func FuzzNode(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"h"}}`), int64(0))
	f.Add([]byte(`{"metadata":{"name":"h","annotations":{"hostler.io/no-execute-added":"9999-12-31T23:59:59Z"}},"spec":{"unschedulable":true,"taints":[{"key":"node.kubernetes.io/unreachable","effect":"NoExecute"},{"key":"node.kubernetes.io/not-ready","effect":"NoExecute","value":"x"}]},"status":{"conditions":[{"type":"Ready","status":"False"},{"type":"Ready","status":"Unknown"}]}}`), int64(-1))
	f.Add([]byte(`{"metadata":{"name":"h"},"status":{"conditions":[{"type":"Ready","status":"maybe"},{"type":"DiskPressure","status":"True"},{"type":"PIDPressure"}]}}`), int64(1))
	f.Fuzz(func(t *testing.T, text []byte, dead int64) {
		var node corev1.Node
		if json.Unmarshal(text, &node) != nil {
			t.Skip()
		}
		node.Name = "h"
		var deadAt time.Time
		if dead != 0 {
			deadAt = noon.Add(time.Duration(dead))
		}
		decide := func() (lifecycle.Change, bool) {
			facts := lifecycle.Facts{Confirmed: noon, Hosts: append(many(4, "alive", ""), lifecycle.HostOf(&node, deadAt))}
			for _, change := range lifecycle.Decide(facts, lifecycle.DefaultPolicy(), noon).Now {
				if change.Node == "h" {
					return change, true
				}
			}
			return lifecycle.Change{}, false
		}
		if change, due := decide(); due {
			change.Apply(&node, noon)
			value, err := store.Nodes.Encode(&node)
			if err != nil {
				t.Fatalf("the changed Node cannot be stored: %v", err)
			}
			left := 1 << 20
			stored, err := store.Nodes.Decode("h", value, "2", &left)
			if err != nil {
				t.Fatalf("the changed Node cannot be read again: %v", err)
			}
			node = *stored.(*corev1.Node)
		}
		if change, due := decide(); due {
			t.Errorf("after the decision was executed there is still to do: %+v\n%s", change.Steps, text)
		}
	})
}
