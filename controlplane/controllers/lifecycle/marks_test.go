package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/store"
)

func TestDecideMarks(t *testing.T) {
	since := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		ready  corev1.ConditionStatus
		pod    podcache.Pod
		marked time.Time
		want   bool
	}{
		"a pod that is ready on a host that gives no sign of life":     {ready: corev1.ConditionUnknown, pod: podcache.Pod{Ready: true}, want: true},
		"a pod that is ready on a host that is not ready":              {ready: corev1.ConditionFalse, pod: podcache.Pod{Ready: true}, want: true},
		"a pod that is not ready":                                      {ready: corev1.ConditionUnknown},
		"a pod that has ended":                                         {ready: corev1.ConditionUnknown, pod: podcache.Pod{Ready: true, Ended: true}},
		"a pod that a living host found to be ready after the mark":    {ready: corev1.ConditionFalse, pod: podcache.Pod{Ready: true}, marked: since},
		"a pod that was marked when its Node was not ready before":     {ready: corev1.ConditionFalse, pod: podcache.Pod{Ready: true}, marked: since.Add(-time.Hour), want: true},
		"a pod that somebody marked as ready on a host that is silent": {ready: corev1.ConditionUnknown, pod: podcache.Pod{Ready: true}, marked: since, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.pod.Name, c.pod.UID, c.pod.Version = "ns/p", "u", "7"
			marked := map[string]time.Time{}
			if !c.marked.IsZero() {
				marked["ns/p"] = c.marked
			}
			host := lifecycle.Host{Name: "n", ReadySince: since, Conditions: lifecycle.Conditions{Ready: c.ready}}
			marks := lifecycle.DecideMarks([]lifecycle.Unready{{Host: host, Pods: []podcache.Pod{c.pod}}}, marked)
			if got := len(marks) == 1; got != c.want || len(marks) > 1 {
				t.Fatalf("DecideMarks() = %+v, want a mark: %v", marks, c.want)
			}
			if c.want && (marks[0].Object() != "pods/ns/p" || marks[0].Version() != "7" || marks[0].UID != "u" || marks[0].Reason == "") {
				t.Errorf("mark = %+v, want that of the pod, with a reason", marks[0])
			}
		})
	}
}

// pod stores a pod of a Node that is ready or not, and returns its name in the store.
func (f fakes) pod(node, name string, status corev1.ConditionStatus) string {
	kind := store.Pods(f.store.EndsLeases())
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	pod.Spec.NodeName = node
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	return kind.StoredName(f.store.Put(kind, pod))
}

// podReady returns the status of a pod's condition Ready.
func (f fakes) podReady(name string) corev1.ConditionStatus {
	f.t.Helper()
	synctest.Wait()
	stored, err := f.store.Get(context.Background(), store.Pods(f.store.EndsLeases()), name)
	if err != nil {
		f.t.Fatal(err)
	}
	return stored.(*corev1.Pod).Status.Conditions[0].Status
}

func TestPodsOfAHostThatDiesAreMarkedAsNotReady(t *testing.T) {
	for _, endsLeases := range []bool{true, false} {
		t.Run(fmt.Sprintf("the store ends leases %v", endsLeases), func(t *testing.T) {
			inBubble(t, endsLeases, func(t *testing.T, f fakes) {
				f.agent("alive", "a")
				kill := f.agent("h", "a")
				lost, other := f.pod("h", "p", corev1.ConditionTrue), f.pod("alive", "q", corev1.ConditionTrue)
				f.serve("s", lifecycle.DefaultPolicy())
				pass(time.Minute)
				kill()
				pass(2 * time.Minute)
				for name, want := range map[string]corev1.ConditionStatus{lost: corev1.ConditionFalse, other: corev1.ConditionTrue} {
					if got := f.podReady(name); got != want {
						t.Errorf("Ready of pod %s = %s, want %s", name, got, want)
					}
				}
			})
		})
	}
}

func TestAHostThatIsAliveDecidesWhetherItsPodsAreReady(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("alive", "a")
		f.agent("h", "a")
		pod := f.pod("h", "p", corev1.ConditionTrue)
		s := f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		notReady := func(node *corev1.Node) {
			node.Status.Conditions[0].Status, node.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.Now()
		}
		f.report("h", "a", notReady)
		pass(time.Second)
		if got := f.podReady(pod); got != corev1.ConditionFalse {
			t.Fatalf("Ready of the pod = %s, want False", got)
		}
		f.pod("h", "p", corev1.ConditionTrue) // the host reports it
		pass(time.Hour)
		if got := f.podReady(pod); got != corev1.ConditionTrue {
			t.Errorf("Ready of the pod = %s, want it as its host has said last", got)
		}
		if n := s.Report().Marking.Writes.Stored; n != 1 {
			t.Errorf("marks = %d, want 1", n)
		}
	})
}

func TestAMarkThatIsRefusedIsTriedUntilItIsDone(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("alive", "a")
		kill := f.agent("h", "a")
		pod := f.pod("h", "p", corev1.ConditionTrue)
		refused := fmt.Errorf("%w: a webhook refuses it", controlplane.ErrForbidden)
		r := &refusing{Store: f.store, name: pod}
		r.err.Store(&refused)
		f.seen = r
		s := f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		kill()
		pass(10 * time.Minute)
		f.want("h", stateGone)
		if err := s.Report().Marking.Failing["pods/"+pod]; !errors.Is(err, refused) {
			t.Errorf("failing = %v, want %v", err, refused)
		}
		r.err.Store(nil)
		pass(time.Minute + time.Second)
		if got := f.podReady(pod); got != corev1.ConditionFalse {
			t.Errorf("Ready of the pod = %s, want False", got)
		}
	})
}

func TestATaintThatReplacesAnotherKeepsItsTime(t *testing.T) {
	inBubble(t, true, func(t *testing.T, f fakes) {
		f.agent("alive", "a")
		kill := f.agent("h", "a")
		f.serve("s", lifecycle.DefaultPolicy())
		pass(time.Minute)
		f.report("h", "a", func(node *corev1.Node) {
			node.Status.Conditions[0].Status, node.Status.Conditions[0].LastTransitionTime = corev1.ConditionFalse, metav1.Now()
		})
		pass(10 * time.Second)
		added := func(key string) *metav1.Time {
			for _, taint := range f.node("h").Spec.Taints {
				if taint.Key == key && taint.Effect == corev1.TaintEffectNoExecute {
					return taint.TimeAdded
				}
			}
			t.Fatalf("taints = %v, want %s", f.node("h").Spec.Taints, key)
			return nil
		}
		before := added(corev1.TaintNodeNotReady)
		kill()
		pass(2 * time.Minute)
		if after := added(corev1.TaintNodeUnreachable); !after.Equal(before) {
			t.Errorf("the taint that replaces the other has time %v, want %v: pods are evicted by it", after, before)
		}
	})
}
