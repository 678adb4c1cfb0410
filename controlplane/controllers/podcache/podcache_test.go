package podcache_test

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/internal/loop"
)

func newPod(node, version string, edits ...func(*corev1.Pod)) *corev1.Pod {
	seconds := int64(300)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u", ResourceVersion: version}}
	pod.Spec.NodeName, pod.Spec.Tolerations = node, []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

// sent reports whether the signal was sent since the last call.
func sent(s loop.Signal) bool {
	select {
	case <-s:
		return true
	default:
		return false
	}
}

func names(pods []podcache.Pod) (list []string) {
	for _, p := range pods {
		list = append(list, p.Name)
	}
	return list
}

func TestPodsAreFoundByTheirNode(t *testing.T) {
	changed := loop.NewSignal()
	c := podcache.New(changed)
	f := c.Follower()
	f.Begin()
	f.Set("ns/b", newPod("n1", "1"))
	f.Set("ns/a", newPod("n1", "1"))
	f.Set("ns/other", newPod("n2", "1"))
	f.Set("ns/unassigned", newPod("", "1"))
	f.Synced()
	if got := names(c.On("n1")); !slices.Equal(got, []string{"ns/a", "ns/b"}) {
		t.Errorf("On(n1) = %v, want ns/a and ns/b", got)
	}
	if got := slices.Sorted(slices.Values(c.Nodes())); !slices.Equal(got, []string{"n1", "n2"}) {
		t.Errorf("Nodes() = %v, want n1 and n2", got)
	}
	// A pod changes its Node. That only happens if somebody replaces the object.
	f.Set("ns/b", newPod("n2", "2"))
	f.Delete("ns/a")
	if got := c.Nodes(); !slices.Equal(got, []string{"n2"}) || len(c.On("n1")) > 0 || len(c.On("n2")) != 2 {
		t.Errorf("Nodes() = %v, want n2 with both pods", got)
	}
	// Objects that a list does not contain do not exist.
	f.Begin()
	f.Set("ns/b", newPod("n2", "2"))
	f.Synced()
	if got := names(c.On("n2")); !slices.Equal(got, []string{"ns/b"}) {
		t.Errorf("On(n2) after a list = %v, want ns/b", got)
	}
}

func TestOnlyWhatMattersIsAChange(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		want bool
	}{
		"another version": {func(*corev1.Pod) {}, false},
		"another label":   {func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, false},
		"another UID":     {func(p *corev1.Pod) { p.UID = "v" }, true},
		"it is ready": {func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}, true},
		"it is being deleted": {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, true},
		"it has a finalizer":  {func(p *corev1.Pod) { p.Finalizers = []string{"example.com/f"} }, true},
		"it stays":            {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""} }, true},
		"another grace":       {func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(5)) }, true},
		"it has ended":        {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, true},
		"other seconds":       {func(p *corev1.Pod) { *p.Spec.Tolerations[0].TolerationSeconds = 1 }, true},
		"another toleration":  {func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "l"}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			changed := loop.NewSignal()
			cache := podcache.New(changed)
			f := cache.Follower()
			f.Set("ns/p", newPod("n", "1"))
			if !sent(changed) {
				t.Error("a new pod is no change")
			}
			f.Set("ns/p", newPod("n", "2", c.edit))
			if got := sent(changed); got != c.want {
				t.Errorf("change = %v, want %v", got, c.want)
			}
			if got := cache.On("n")[0].Version; got != "2" {
				t.Errorf("version = %s, want 2", got)
			}
		})
	}
}

// TestTolerationsAreForgottenWithTheirPods has a pod with other tolerations in each list and each change, as a host may
// write them.
func TestTolerationsAreForgottenWithTheirPods(t *testing.T) {
	c := podcache.New()
	f := c.Follower()
	set := func(name string, seconds int64) {
		f.Set(name, newPod("n", "1", func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = &seconds }))
	}
	want := func(when string, want int) {
		t.Helper()
		if got := c.Tolerations(); got != want {
			t.Errorf("lists of tolerations %s = %d, want %d", when, got, want)
		}
	}
	for i := range int64(100) {
		f.Begin()
		set("ns/a", i)
		set("ns/b", 0)
		set("ns/c", 0)
		f.Synced()
		set("ns/a", i+1000)
	}
	want("after lists", 2)
	f.Delete("ns/b")
	want("while a pod has them", 2)
	f.Unreadable("ns/c", errors.New("broken"))
	want("after the last pod with them", 1)
	f.Begin()
	f.Synced()
	want("without pods", 0)
}

func TestAPodThatCannotBeReadIsNamed(t *testing.T) {
	c := podcache.New()
	f := c.Follower()
	f.Set("ns/p", newPod("n", "1"))
	broken := errors.New("broken")
	f.Unreadable("ns/p", broken)
	if got := c.Unreadable(); len(got) != 1 || got["pods/ns/p"] != broken || len(c.On("n")) > 0 {
		t.Errorf("Unreadable() = %v, pods = %v, want the pod there and nowhere else", got, c.On("n"))
	}
	f.Set("ns/p", newPod("n", "2"))
	if got := c.Unreadable(); len(got) > 0 {
		t.Errorf("Unreadable() = %v, want nothing any more", got)
	}
}
