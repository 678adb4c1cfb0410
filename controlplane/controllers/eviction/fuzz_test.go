package eviction_test

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/loop"
)

// FuzzPod lets a server decide about any pod and any Node. It writes at most once, and a pod that
// tolerates everything stays.
func FuzzPod(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"p","namespace":"ns"},"spec":{"nodeName":"n"}}`), []byte(`{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`))
	f.Add([]byte(`{"metadata":{"name":"p","namespace":"ns","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"nodeName":"n","tolerations":[{"operator":"Exists","tolerationSeconds":-9223372036854775808}]},"status":{"phase":"Failed","conditions":[{"type":"DisruptionTarget"},{"type":"Ready","status":"True"},{"type":"Ready"}]}}`), []byte(`{"spec":{"taints":[{"key":"a","effect":"NoExecute","timeAdded":"9999-12-31T23:59:59Z"},{"key":"a","effect":"NoExecute"}]}}`))
	f.Add([]byte(`{"metadata":{"name":"p"},"spec":{"nodeName":"n","tolerations":[{"key":"a","operator":"Gt","value":"x","tolerationSeconds":9223372036854775807}]}}`), []byte(`{"spec":{"taints":[{"key":"a","value":"-1","effect":"NoExecute","timeAdded":"0001-01-01T00:00:00Z"}]}}`))
	f.Fuzz(func(t *testing.T, podText, nodeText []byte) {
		var pod corev1.Pod
		var node corev1.Node
		if json.Unmarshal(podText, &pod) != nil || json.Unmarshal(nodeText, &node) != nil || strings.Contains(pod.Namespace+pod.Name, "/") {
			t.Skip()
		}
		node.Name, node.UID, pod.UID, pod.Spec.NodeName = "n", "u", types.UID(cmp.Or(string(pod.UID), "u")), "n"
		synctest.Test(t, func(t *testing.T) {
			kind := store.Pods(true)
			s := memory.New(memory.Options{EndsLeases: true})
			put := func(kind store.Kind, o store.Object) {
				value, err := kind.Encode(o)
				if err != nil {
					t.Skip()
				}
				s.PutRaw(kind, kind.StoredName(o), value)
			}
			put(store.Nodes, &node)
			put(kind, &pod)
			ctx, cancel := context.WithCancel(t.Context())
			defer synctest.Wait()
			defer cancel()
			changed, contact := loop.NewSignal(), &store.Contact{}
			pods := podcache.New(changed)
			c := eviction.New(s, contact, pods, changed, slog.New(slog.DiscardHandler))
			ignore := func(error) {}
			term, _, err := s.Elect(ctx, eviction.Name, "s", time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			for _, run := range []func() error{
				func() error { return contact.Run(ctx, s.Ping, ignore) },
				func() error { return s.Follow(ctx, store.Nodes, store.AllChanges, c.Nodes()) },
				func() error { return s.Follow(ctx, kind, store.AllChanges, pods.Follower()) },
				func() error { return c.Run(ctx, ignore) },
				func() error { return c.Lead(ctx, term) },
			} {
				go func() { _ = run() }()
			}
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			report := c.Report()
			if report.Writes.Stored > 1 || report.Writes.Failed > 0 {
				t.Errorf("writes = %+v, failing = %v, want at most one", report.Writes, report.Failing)
			}
			for _, toleration := range pod.Spec.Tolerations {
				all := toleration.Key == "" && toleration.Operator == corev1.TolerationOpExists && toleration.Effect == "" && toleration.TolerationSeconds == nil
				if all && len(pod.Spec.Tolerations) == 1 && report.Writes.Stored > 0 {
					t.Error("a pod that tolerates everything was evicted")
				}
			}
		})
	})
}
