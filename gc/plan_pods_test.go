package gc_test

import (
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// deadPod returns a pod that was created that long ago and whose sandbox is dead.
func deadPod(since time.Duration, containers ...runtime.Container) runtime.Pod {
	p := podWith("p", containers...)
	p.Sandbox, p.Ready, p.CreatedAt = true, false, ago(since)
	return p
}

func TestPlanPods(t *testing.T) {
	policy := gc.DefaultPolicy()
	created := runtime.Container{ID: "new", Name: "new", State: runtime.Created, CreatedAt: ago(2 * time.Hour)}
	unknown := runtime.Container{ID: "lost", Name: "lost", State: runtime.Unknown, CreatedAt: ago(2 * time.Hour)}
	young := created
	young.CreatedAt = ago(time.Minute)
	tests := []struct {
		name       string
		pod        runtime.Pod
		change     func(*gc.Facts, *gc.Policy, *gc.Options)
		containers []string // that are removed
		want       gc.Reason
		detail     string
	}{
		{name: "an empty one goes", pod: deadPod(2 * time.Hour), want: gc.PodDead},
		{name: "an empty one that may be on its way up stays", pod: deadPod(59 * time.Second), want: gc.TooYoung, detail: "may be removed in 1s"},
		{name: "an empty one stays for the minimum age", pod: deadPod(2 * time.Hour), want: gc.TooYoung, change: func(_ *gc.Facts, p *gc.Policy, _ *gc.Options) {
			p.Containers.MinimumAge = 3 * time.Hour
		}},
		{name: "an hour after its last exit it goes with all it has", pod: deadPod(9*time.Hour, exited("a", "web", 2*time.Hour), exited("b", "log", time.Hour), unknown, created), containers: []string{"a pod-dead", "lost pod-dead", "new pod-dead", "b pod-dead"}, want: gc.PodDead},
		{name: "within that hour people look at it", pod: deadPod(9*time.Hour, exited("a", "web", 2*time.Hour), exited("b", "log", 59*time.Minute)), want: gc.InUse, detail: "container "},
		{name: "what runs on in it keeps it", pod: deadPod(9*time.Hour, exited("a", "web", 2*time.Hour), runtime.Container{ID: "r", Name: "host", State: runtime.Running}), want: gc.InUse, detail: "container host is kept (running)"},
		{name: "a person's all-unused does not wait", pod: deadPod(9*time.Hour, exited("a", "web", 10*time.Minute)), containers: []string{"a all-unused"}, want: gc.PodDead, change: func(_ *gc.Facts, _ *gc.Policy, o *gc.Options) {
			o.AllUnused = true
		}},
		{name: "but for a container that may be started this moment", pod: deadPod(9*time.Hour, young), want: gc.InUse, detail: "container new is kept (too-young)", change: func(_ *gc.Facts, _ *gc.Policy, o *gc.Options) {
			o.AllUnused = true
		}},
		{name: "the last shutdown ended it", pod: deadPod(9*time.Hour, exited("a", "web", 2*time.Hour)), want: gc.LastShutdown, detail: "a day", change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) {
			f.ProtectedPods = map[gc.PodKey]gc.Kept{{Runtime: "containerd", ID: "pod-p"}: {gc.LastShutdown, "a day"}}
		}},
		{name: "a runtime that is left alone", pod: deadPod(2 * time.Hour), want: gc.NotManaged, change: func(_ *gc.Facts, _ *gc.Policy, o *gc.Options) { o.LeaveAlone = []string{"containerd"} }},
		{name: "beside a kubelet the newest stays", pod: deadPod(2 * time.Hour), want: gc.Newest, detail: "kubelet", change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) { f.Kubelet = true }},
		{name: "beside a kubelet its containers go by the limits alone", pod: deadPod(9*time.Hour, exited("a", "web", 3*time.Hour), exited("b", "web", 2*time.Hour)), containers: []string{"a over-limit"}, want: gc.InUse, detail: "container web is kept (newest)", change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) { f.Kubelet = true }},
		{name: "beside a kubelet an older one goes", pod: deadPod(2 * time.Hour), want: gc.PodDead, change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) {
			f.Kubelet = true
			newer := deadPod(time.Hour)
			newer.ID = "pod-newer"
			f.Pods = append(f.Pods, newer)
		}},
		{name: "a label keeps it", want: gc.Protected, pod: func() runtime.Pod {
			p := deadPod(2 * time.Hour)
			p.Labels = map[string]string{runtime.LabelKeep: "true"}
			return p
		}()},
		{name: "a label that says neither keeps it", want: gc.Protected, detail: `"1", neither`, pod: func() runtime.Pod {
			p := deadPod(2 * time.Hour)
			p.Labels, p.Annotations = map[string]string{runtime.LabelKeep: "1"}, map[string]string{runtime.LabelKeep: "false"}
			return p
		}()},
		{name: "one that is ready is not spoken of", pod: podWith("p", created, young), containers: []string{"new never-started"}},
		{name: "a pod that can be started again is not spoken of", pod: func() runtime.Pod {
			p := deadPod(9*time.Hour, exited("a", "web", 2*time.Hour))
			p.Sandbox = false
			return p
		}()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, p, o := gc.Facts{Pods: []runtime.Pod{tt.pod}}, policy, gc.Options{}
			if tt.change != nil {
				tt.change(&f, &p, &o)
			}
			d := gc.Plan(f, p, now, o)
			if got := removedContainers(d); strings.Join(got, ", ") != strings.Join(tt.containers, ", ") {
				t.Errorf("Plan() removes containers %v, want %v", got, tt.containers)
			}
			if len(d.Pods) == 0 && tt.want == "" {
				return
			}
			for _, got := range d.Pods {
				if got.ID == "pod-p" {
					if got.Reason != tt.want || !strings.Contains(got.Detail, tt.detail) || (got.Action == gc.Remove) != (tt.want == gc.PodDead) {
						t.Errorf("Plan() = %s %s (%s), want %s (%s)", got.Action, got.Reason, got.Detail, tt.want, tt.detail)
					}
					return
				}
			}
			t.Errorf("Plan() decides on pods %+v, want %s on the one", d.Pods, tt.want)
		})
	}
}

func TestPlanLogs(t *testing.T) {
	folder := gc.LogFact{Path: "/var/log/pods/barn_horse_u1", Namespace: "barn", Pod: "horse", UID: "u1", ModifiedAt: ago(2 * time.Hour)}
	link := gc.LogFact{Path: "/var/log/containers/horse_barn_saddle-c1.log", Link: true, Namespace: "barn", Pod: "horse", UID: "u1", ContainerID: "c1", ModifiedAt: ago(2 * time.Hour)}
	with := func(log gc.LogFact, change func(*gc.LogFact)) gc.LogFact {
		change(&log)
		return log
	}
	tests := []struct {
		name   string
		log    gc.LogFact
		change func(*gc.Facts, *gc.Policy, *gc.Options)
		want   gc.Reason // empty if the log is not in the result
		detail string
	}{
		{name: "the folder of a pod that is gone goes", log: folder, want: gc.PodGone},
		{name: "one written within the hour stays", log: with(folder, func(l *gc.LogFact) { l.ModifiedAt = ago(59 * time.Minute) }), want: gc.TooYoung, detail: "may be removed in 1m0s"},
		{name: "one written within the minimum age stays", log: folder, want: gc.TooYoung, change: func(_ *gc.Facts, p *gc.Policy, _ *gc.Options) { p.Containers.MinimumAge = 3 * time.Hour }},
		{name: "a person's all-unused takes what was written before the last minute", log: with(folder, func(l *gc.LogFact) { l.ModifiedAt = ago(2 * time.Minute) }), want: gc.PodGone, change: func(_ *gc.Facts, _ *gc.Policy, o *gc.Options) { o.AllUnused = true }},
		{name: "and leaves what was written in it", log: with(folder, func(l *gc.LogFact) { l.ModifiedAt = ago(59 * time.Second) }), want: gc.TooYoung, change: func(_ *gc.Facts, _ *gc.Policy, o *gc.Options) { o.AllUnused = true }},
		{name: "one from the future, after a step of the clock, stays", log: with(folder, func(l *gc.LogFact) { l.ModifiedAt = ago(-time.Hour) }), want: gc.TooYoung},
		{name: "one that holds something else stays", log: with(folder, func(l *gc.LogFact) { l.Foreign = "it contains a socket" }), want: gc.NotManaged, detail: "socket"},
		{name: "the last shutdown ended its pod", log: folder, want: gc.LastShutdown, detail: "a day", change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) {
			f.ProtectedLogs = map[string]gc.Kept{"u1": {gc.LastShutdown, "a day"}}
		}},
		{name: "a link into a folder that the last shutdown left", log: link, want: gc.LastShutdown, change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) {
			f.ProtectedLogs = map[string]gc.Kept{"u1": {gc.LastShutdown, "a day"}}
		}},
		{name: "where a runtime does not answer all stay", log: folder, want: gc.NotManaged, detail: "crio", change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) { f.LogsUnsure = "crio does not answer" }},
		{name: "where a runtime does not answer links stay as well", log: link, want: gc.NotManaged, detail: "crio", change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) { f.LogsUnsure = "crio does not answer" }},
		{name: "where a runtime of pods is left alone", log: folder, want: gc.NotManaged, detail: "containerd", change: func(f *gc.Facts, _ *gc.Policy, o *gc.Options) {
			f.Pods, o.LeaveAlone = []runtime.Pod{deadPod(time.Hour)}, []string{"containerd"}
		}},
		{name: "of a pod that is there nothing is said", log: folder, change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) {
			f.Pods = []runtime.Pod{{Runtime: "containerd", ID: "p", UID: "u1"}}
		}},
		{name: "nor of one that its containers alone remember", log: folder, change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) {
			f.Pods = []runtime.Pod{{ID: "p", UID: "p", Gone: true, Containers: []runtime.Container{{ID: "c", Labels: map[string]string{"io.kubernetes.pod.uid": "u1"}}}}}
		}},
		{name: "a link that leads nowhere goes", log: link, want: gc.Dangling},
		{name: "a link of a container that is there stays", log: link, change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) {
			f.Pods = []runtime.Pod{podWith("p", exited("c1", "saddle", time.Hour))}
		}},
		{name: "a link of another container of a pod that is there goes", log: link, want: gc.Dangling, change: func(f *gc.Facts, _ *gc.Policy, _ *gc.Options) {
			f.Pods = []runtime.Pod{{Runtime: "containerd", ID: "p", UID: "u1", Containers: []runtime.Container{exited("c2", "saddle", time.Hour)}}}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, p, o := gc.Facts{Logs: []gc.LogFact{tt.log}}, gc.DefaultPolicy(), gc.Options{Containers: true}
			if tt.change != nil {
				tt.change(&f, &p, &o)
			}
			d := gc.Plan(f, p, now, o).Logs
			if tt.want == "" {
				if len(d) != 0 {
					t.Errorf("Plan() = %+v, want no mention of it", d)
				}
				return
			}
			removes := tt.want == gc.PodGone || tt.want == gc.Dangling
			if len(d) != 1 || d[0].Reason != tt.want || !strings.Contains(d[0].Detail, tt.detail) || (d[0].Action == gc.Remove) != removes || d[0].Pod != "barn/horse" {
				t.Errorf("Plan() = %+v, want %s (%s) of barn/horse", d, tt.want, tt.detail)
			}
		})
	}
}
