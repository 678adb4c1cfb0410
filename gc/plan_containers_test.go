package gc_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

func TestPlanContainers(t *testing.T) {
	// two units: web died 5, 3 and 1 hours ago, log 4 and 2 hours ago
	pod := func(change ...func(*runtime.Pod)) []runtime.Pod {
		p := podWith("p", exited("web1", "web", 5*time.Hour), exited("log1", "log", 4*time.Hour), exited("web2", "web", 3*time.Hour),
			exited("log2", "log", 2*time.Hour), exited("web3", "web", time.Hour))
		for _, c := range change {
			c(&p)
		}
		return []runtime.Pod{p}
	}
	policy := func(perName, total int) gc.ContainerPolicy {
		return gc.ContainerPolicy{AbandonedAge: time.Hour, MaxPerPodContainer: perName, MaxContainers: total}
	}
	tests := []struct {
		name    string
		pods    []runtime.Pod
		policy  gc.ContainerPolicy
		options gc.Options
		want    []string
	}{
		{name: "both limits off", pods: pod(), policy: policy(-1, -1)},
		{name: "the newest of each name stays", pods: pod(), policy: policy(1, -1), want: []string{"web1 over-limit", "log1 over-limit", "web2 over-limit"}},
		{name: "two of each name stay", pods: pod(), policy: policy(2, -1), want: []string{"web1 over-limit"}},
		{name: "none stays", pods: pod(), policy: policy(0, -1), want: []string{"web1 over-limit", "log1 over-limit", "web2 over-limit", "log2 over-limit", "web3 over-limit"}},
		{name: "the total alone lowers the longest name first", pods: pod(), policy: policy(-1, 4), want: []string{"web1 over-limit"}},
		{name: "the total lowers all names evenly", pods: pod(), policy: policy(-1, 3), want: []string{"web1 over-limit", "log1 over-limit", "web2 over-limit"}},
		{name: "one of each is the least, then the oldest go", pods: pod(), policy: policy(-1, 1), want: []string{"web1 over-limit", "log1 over-limit", "web2 over-limit", "log2 over-limit"}},
		{name: "a total of none", pods: pod(), policy: policy(1, 0), want: []string{"web1 over-limit", "log1 over-limit", "web2 over-limit", "log2 over-limit", "web3 over-limit"}},
		{name: "a total that holds", pods: pod(), policy: policy(-1, 5)},
		{
			name: "the same name in another pod is counted apart",
			pods: append(pod(), podWith("q", exited("q1", "web", 9*time.Hour))), policy: policy(1, -1),
			want: []string{"web1 over-limit", "log1 over-limit", "web2 over-limit"},
		},
		{
			name: "too young to go, but counted", pods: pod(),
			policy: gc.ContainerPolicy{MinimumAge: 150 * time.Minute, MaxPerPodContainer: 1, MaxContainers: -1},
			want:   []string{"web1 over-limit", "log1 over-limit", "web2 over-limit"},
		},
		{
			name: "minimum age counts from the exit, not from creation", pods: pod(),
			policy: gc.ContainerPolicy{MinimumAge: 2*time.Hour + time.Second, MaxPerPodContainer: 0, MaxContainers: -1},
			want:   []string{"web1 over-limit", "log1 over-limit", "web2 over-limit"},
		},
		{
			name: "past the maximum age even the newest goes", pods: pod(),
			policy: gc.ContainerPolicy{MaximumAge: 90 * time.Minute, MaxPerPodContainer: 1, MaxContainers: -1},
			want:   []string{"web1 max-age", "log1 max-age", "web2 max-age", "log2 max-age"},
		},
		{
			name: "a pod that is gone keeps nothing", pods: pod(func(p *runtime.Pod) { p.Gone, p.Ready = true, false }), policy: policy(1, -1),
			want: []string{"web1 pod-gone", "log1 pod-gone", "web2 pod-gone", "log2 pod-gone", "web3 pod-gone"},
		},
		{
			name: "a pod that is gone, within the minimum age", pods: pod(func(p *runtime.Pod) { p.Gone = true }),
			policy: gc.ContainerPolicy{MinimumAge: 210 * time.Minute, MaxPerPodContainer: 1, MaxContainers: -1},
			want:   []string{"web1 pod-gone", "log1 pod-gone"},
		},
		{name: "all unused keeps the newest in a pod that lives", pods: pod(), policy: policy(-1, -1), options: gc.Options{AllUnused: true}, want: []string{"web1 all-unused", "log1 all-unused", "web2 all-unused"}},
		{
			name: "all unused takes everything of a pod that ended", pods: pod(func(p *runtime.Pod) { p.Ready = false }), policy: policy(-1, -1), options: gc.Options{AllUnused: true},
			want: []string{"web1 all-unused", "log1 all-unused", "web2 all-unused", "log2 all-unused", "web3 all-unused"},
		},
		{
			name: "one that was not started yet takes no place", policy: policy(1, 2), pods: []runtime.Pod{podWith("p", exited("web1", "web", time.Hour), exited("log1", "log", time.Hour),
				runtime.Container{ID: "web2", Name: "web", State: runtime.Created, CreatedAt: now})},
		},
		{name: "a runtime that is left alone", pods: pod(), policy: policy(0, 0), options: gc.Options{LeaveAlone: []string{"containerd"}}},
		{
			name: "a keep label on the pod", pods: pod(func(p *runtime.Pod) { p.Annotations = map[string]string{runtime.LabelKeep: "true"} }), policy: policy(0, 0),
		},
		{
			name: "a keep label on a container, which then counts for no limit",
			pods: pod(func(p *runtime.Pod) { p.Containers[4].Labels = map[string]string{runtime.LabelKeep: "true"} }), policy: policy(1, -1),
			want: []string{"web1 over-limit", "log1 over-limit"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := gc.Plan(gc.Facts{Pods: tt.pods}, gc.Policy{Images: gc.DefaultPolicy().Images, Containers: tt.policy}, now, tt.options)
			if got := removedContainers(d); !slices.Equal(got, tt.want) {
				t.Errorf("Plan() removes %v, want %v", got, tt.want)
			}
		})
	}
}

func TestPlanKeepsContainers(t *testing.T) {
	labelled := func(value string) runtime.Container {
		c := exited("c", "web", time.Hour)
		c.Annotations = map[string]string{runtime.LabelKeep: value}
		return c
	}
	unknown := runtime.Container{ID: "c", Name: "web", State: runtime.Exited, CreatedAt: ago(time.Hour)}
	tests := []struct {
		name      string
		container runtime.Container
		minimum   time.Duration
		protected map[gc.PodKey]gc.Kept
		want      gc.Reason
		detail    string
	}{
		{name: "it runs", container: runtime.Container{ID: "c", State: runtime.Running}, want: gc.Running},
		{name: "it never started", container: runtime.Container{ID: "c", State: runtime.Created}, want: gc.TooYoung, detail: "not started yet; may be removed in "},
		{name: "its state is unknown", container: runtime.Container{ID: "c", State: runtime.Unknown}, want: gc.TooYoung, detail: "unknown state; may be removed in "},
		{name: "its exit is unknown and a minimum age set", container: unknown, minimum: time.Minute, want: gc.TooYoung, detail: "unknown"},
		{name: "its exit is unknown and no minimum age set", container: unknown, want: gc.OverLimit},
		{name: "it exited in the future, after a step of the clock", container: exited("c", "web", -time.Hour), minimum: time.Minute, want: gc.TooYoung, detail: "may be removed in 1m0s"},
		{name: "the last shutdown ended its pod", container: exited("c", "web", time.Hour), protected: map[gc.PodKey]gc.Kept{{Runtime: "containerd", ID: "pod-p"}: {gc.LastShutdown, "a day for people to look"}}, want: gc.LastShutdown, detail: "a day"},
		{name: "the last shutdown ended a pod of that ID in another runtime", container: exited("c", "web", time.Hour), protected: map[gc.PodKey]gc.Kept{{Runtime: "docker", ID: "pod-p"}: {gc.LastShutdown, "a day"}}, want: gc.OverLimit},
		{name: "a keep annotation", container: labelled("true"), want: gc.Protected, detail: "label hostler.io/keep"},
		{name: "a keep annotation that says neither", container: labelled("True"), want: gc.Protected, detail: `"True", neither "true" nor "false"`},
		{name: "a keep annotation that says no", container: labelled("false"), want: gc.OverLimit},
		{name: "nothing keeps it", container: exited("c", "web", time.Hour), want: gc.OverLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := gc.Policy{Images: gc.DefaultPolicy().Images, Containers: gc.ContainerPolicy{MinimumAge: tt.minimum, AbandonedAge: time.Hour, MaxPerPodContainer: 0, MaxContainers: 0}}
			d := containerDecisionOn(gc.Plan(gc.Facts{Pods: []runtime.Pod{podWith("p", tt.container)}, ProtectedPods: tt.protected}, p, now, gc.Options{}), "c")
			if d.Reason != tt.want || !strings.Contains(d.Detail, tt.detail) || (d.Action == gc.Remove) != (tt.want == gc.OverLimit) {
				t.Errorf("Plan() = %s %s (%s), want %s (%s)", d.Action, d.Reason, d.Detail, tt.want, tt.detail)
			}
		})
	}
}
