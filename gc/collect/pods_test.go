package collect_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/podlogs"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// logs are the logs of a host, in memory.
type logs struct {
	mu      sync.Mutex
	facts   []gc.LogFact
	err     error // of Find
	fault   error // of Remove
	removed []string
}

func (l *logs) Find(_ context.Context, known func(string) bool) ([]gc.LogFact, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []gc.LogFact
	for _, f := range l.facts {
		if f.Link || !known(f.UID) {
			found = append(found, f)
		}
	}
	return found, l.err
}

func (l *logs) Remove(_ context.Context, log gc.LogFact) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		return l.fault
	}
	l.removed = append(l.removed, log.Path)
	l.facts = slices.DeleteFunc(l.facts, func(f gc.LogFact) bool { return f.Path == log.Path })
	return nil
}

func folderOf(uid string) gc.LogFact {
	return gc.LogFact{Path: "/var/log/pods/barn_horse_" + uid, Namespace: "barn", Pod: "horse", UID: uid, ModifiedAt: time.Now()}
}

// deadPods is a host with two pods. One died hours ago; one of its containers is in an unknown
// state. The other is running.
func deadPods(t *testing.T) (*host, *collect.Containers) {
	t.Helper()
	h := newHost(t, runtimetest.Options{})
	h.pull("a")
	h.fake.RunPod(runtimetest.PodSpec{ID: "dead", UID: "u-dead", Name: "dead", Namespace: "barn", Containers: []runtimetest.ContainerSpec{
		{ID: "ended", Name: "web", Image: "sha256:a", State: runtime.Exited},
		{ID: "made", Name: "new", Image: "sha256:a", State: runtime.Created},
		{ID: "lost", Name: "lost", Image: "sha256:a"},
	}})
	h.fake.RunPod(runtimetest.PodSpec{ID: "live", UID: "u-live", Name: "live", Namespace: "barn", Containers: []runtimetest.ContainerSpec{
		{ID: "runs", Name: "web", Image: "sha256:a"}, {ID: "stale", Name: "job", Image: "sha256:a", State: runtime.Created},
	}})
	h.fake.SetState("lost", runtime.Created) // so that stopping the pod does not change it
	if err := h.fake.StopPod(t.Context(), runtime.Pod{ID: "dead"}); err != nil {
		t.Fatal(err)
	}
	h.fake.SetState("lost", runtime.Unknown)
	h.survey.Logs = &logs{facts: []gc.LogFact{folderOf("u-dead"), folderOf("u-live"), folderOf("u-gone")}}
	time.Sleep(2 * time.Hour)
	return h, h.containers()
}

func (h *host) containers(change ...func(*gc.ContainerPolicy)) *collect.Containers {
	h.t.Helper()
	p := gc.DefaultPolicy().Containers
	for _, c := range change {
		c(&p)
	}
	containers, err := collect.NewContainers(p, h.options())
	if err != nil {
		h.t.Fatal(err)
	}
	return containers
}

func TestADeadPodGoesWithAllItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, containers := deadPods(t)
		r, err := containers.Collect(t.Context(), gc.Options{}, nil)
		want := []string{"ended", "made", "lost", "stale", "dead", "/var/log/pods/barn_horse_u-gone"}
		got := removedContainers(r)
		slices.Sort(got[:min(4, len(got))])
		slices.Sort(want[:4])
		if err != nil || !slices.Equal(got, want) || len(r.Errors) > 0 {
			t.Errorf("Collect() removed %v, %v, errors %q, want %v", got, err, r.Errors, want)
		}
		if r.Count(runs.KindContainer) != 4 || r.Count(runs.KindPod) != 1 || r.Count(runs.KindLog) != 1 {
			t.Errorf("Collect() = %+v, want 4 containers, a pod and a log", r.Removed)
		}
		stops := h.fake.Calls(runtimetest.StopContainer)
		if len(stops) != 1 || stops[0].Subject != "lost" || stops[0].Grace <= 0 {
			t.Errorf("stops = %+v, want the one of unknown state, with a grace", stops)
		}
		removals := h.fake.Calls(runtimetest.RemoveContainer, runtimetest.RemovePod)
		if last := removals[len(removals)-1]; last.Op != runtimetest.RemovePod || last.Subject != "dead" {
			t.Errorf("last removal = %+v, want the pod after its containers", last)
		}
		// The logs of a pod are removed when no runtime lists the pod.
		r, err = containers.Collect(t.Context(), gc.Options{}, nil)
		if got := removedContainers(r); err != nil || !slices.Equal(got, []string{"/var/log/pods/barn_horse_u-dead"}) {
			t.Errorf("next Collect() removed %v, %v, want the logs of the pod that went", got, err)
		}
		pods, err := h.fake.Pods(t.Context())
		if err != nil || len(pods) != 1 || pods[0].ID != "live" || len(pods[0].Containers) != 1 {
			t.Errorf("Pods() = %+v, %v, want the pod that lives with what runs", pods, err)
		}
	})
}

// The runtime may find the state between the plan and the removal.
func TestAContainerThatTurnsOutToRunIsNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, containers := deadPods(t)
		r, err := containers.Collect(t.Context(), gc.Options{}, func(p runs.Progress) {
			if p.Done == 1 {
				h.fake.SetState("lost", runtime.Running)
			}
		})
		if got := removedContainers(r); err != nil || slices.Contains(got, "lost") || slices.Contains(got, "dead") || len(r.Errors) > 0 {
			t.Errorf("Collect() removed %v, %v, errors %q, want the container that runs kept with its pod", got, err, r.Errors)
		}
		if stops := h.fake.Calls(runtimetest.StopContainer); len(stops) > 0 || r.Kept[gc.Running] != 2 {
			t.Errorf("Collect() stopped %+v, kept %v, want both that run left alone", stops, r.Kept)
		}
	})
}

func TestARuntimeThatIsLostBeforeLogsGoIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, containers := deadPods(t)
		r, err := containers.Collect(t.Context(), gc.Options{}, func(p runs.Progress) {
			if p.Kind == runs.KindPod {
				h.fake.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrUnavailable})
			}
		})
		if err != nil || r.Count(runs.KindLog) != 0 || len(r.Errors) != 1 || !strings.Contains(r.Errors[0], "runtime fake: ") {
			t.Errorf("Collect() removed %v, %v, errors %q, want no log removed and the runtime named", removedContainers(r), err, r.Errors)
		}
	})
}

func TestCollectPods(t *testing.T) {
	tests := []struct {
		name   string
		setup  func(h *host)
		stays  []string // objects that would otherwise be removed
		errors string
	}{
		{
			name: "a container that does not go keeps its pod", stays: []string{"ended", "dead"}, errors: "busy",
			setup: func(h *host) {
				h.fake.Inject(runtimetest.RemoveContainer, runtimetest.Fault{Err: errors.New("busy"), Subject: "ended"})
			},
		},
		{
			name: "one that cannot be stopped is not removed", stays: []string{"lost", "dead"}, errors: "shim",
			setup: func(h *host) {
				h.fake.Inject(runtimetest.StopContainer, runtimetest.Fault{Err: errors.New("shim lost"), Subject: "lost"})
			},
		},
		{
			name: "a pod that the runtime says is in use stays", stays: []string{"dead"},
			setup: func(h *host) {
				h.fake.Inject(runtimetest.RemovePod, runtimetest.Fault{Err: fmt.Errorf("%w: it is ready", runtime.ErrInUse)})
			},
		},
		{
			name: "a pod whose network cannot be released is reported", stays: []string{"dead"}, errors: "pod barn/dead: RemovePod dead: ",
			setup: func(h *host) {
				h.fake.Inject(runtimetest.RemovePod, runtimetest.Fault{Err: errors.New("cni")})
			},
		},
		{
			name: "a pod of the last shutdown stays whole", stays: []string{"ended", "made", "lost", "dead"},
			setup: func(h *host) {
				h.survey.Protected = func() (map[gc.PodKey]gc.Kept, map[string]gc.Kept) {
					return map[gc.PodKey]gc.Kept{{Runtime: "fake", ID: "dead"}: {Reason: gc.LastShutdown}}, nil
				}
			},
		},
		{
			name: "the logs of a pod of the last shutdown stay", stays: []string{"/var/log/pods/barn_horse_u-gone"},
			setup: func(h *host) {
				h.survey.Protected = func() (map[gc.PodKey]gc.Kept, map[string]gc.Kept) {
					return nil, map[string]gc.Kept{"u-gone": {Reason: gc.LastShutdown}}
				}
			},
		},
		{
			name: "logs stay where there may be pods that are not seen", stays: []string{"/var/log/pods/barn_horse_u-gone"},
			setup: func(h *host) { h.survey.Unseen = func() string { return "crio does not answer" } },
		},
		{
			name: "beside a kubelet the newest of each stays, and all logs", stays: []string{"ended", "lost", "dead", "/var/log/pods/barn_horse_u-gone"},
			setup: func(h *host) { h.survey.Kubelet = func() bool { return true } },
		},
		{
			name: "logs that cannot be read are reported", errors: "find logs: denied",
			setup: func(h *host) { h.survey.Logs.(*logs).err = errors.New("denied") },
		},
		{
			name: "a log that cannot be removed is reported", stays: []string{"/var/log/pods/barn_horse_u-gone"}, errors: "read-only",
			setup: func(h *host) { h.survey.Logs.(*logs).fault = errors.New("read-only") },
		},
		{
			name: "a log that somebody writes to stays", stays: []string{"/var/log/pods/barn_horse_u-gone"},
			setup: func(h *host) { h.survey.Logs.(*logs).fault = podlogs.ErrChanged },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, containers := deadPods(t)
				tt.setup(h)
				r, err := containers.Collect(t.Context(), gc.Options{}, nil)
				if err != nil {
					t.Fatalf("Collect() = %v", err)
				}
				want := []string{}
				for _, id := range []string{"/var/log/pods/barn_horse_u-gone", "dead", "ended", "lost", "made", "stale"} {
					if !slices.Contains(tt.stays, id) {
						want = append(want, id)
					}
				}
				got := removedContainers(r)
				if slices.Sort(got); !slices.Equal(got, want) {
					t.Errorf("Collect() removed %v, want %v", got, want)
				}
				if text := strings.Join(r.Errors, "; "); (text == "") != (tt.errors == "") || !strings.Contains(text, tt.errors) {
					t.Errorf("Collect() errors = %q, want %q", text, tt.errors)
				}
			})
		})
	}
}

// A pod may appear between the plan and the removal of logs that seemed orphaned.
func TestLogsOfAPodThatCameSinceThePlanStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, containers := deadPods(t)
		pause := h.fake.Inject(runtimetest.RemovePod, runtimetest.Fault{Hang: true})
		go func() {
			<-pause.Reached()
			h.fake.RunPod(runtimetest.PodSpec{UID: "u-gone", Name: "horse", Namespace: "barn"})
			pause.Release()
		}()
		r, err := containers.Collect(t.Context(), gc.Options{}, nil)
		if err != nil || r.Count(runs.KindLog) != 0 || r.Count(runs.KindPod) != 1 {
			t.Errorf("Collect() = %+v, %v, want the pod removed and no log", r.Removed, err)
		}
	})
}

func TestARunOfImagesThatIsShortCollectsContainersFirst(t *testing.T) {
	tests := []struct {
		name    string
		full    uint64
		mine    bool
		trigger bool // automatic; otherwise requested
		want    []string
	}{
		{name: "the image of a container that goes anyway", full: 99, mine: true, trigger: true, want: []string{"old", "sha256:a"}},
		{name: "where there is room nothing happens", full: 50, mine: true, trigger: true, want: []string{}},
		{name: "where containers are somebody else's they stay", full: 95, trigger: true, want: []string{}},
		{name: "a person who asks for images gets images", full: 95, mine: true, want: []string{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				h.pull("a")
				h.pull("b")
				h.fake.RunPod(runtimetest.PodSpec{ID: "p", Name: "p", Containers: []runtimetest.ContainerSpec{
					{ID: "old", Name: "web", Image: "sha256:a", State: runtime.Exited},
				}})
				time.Sleep(time.Second)
				h.fake.AddContainer("p", runtimetest.ContainerSpec{ID: "newer", Name: "web", Image: "sha256:b", State: runtime.Exited})
				h.observe()
				time.Sleep(time.Hour)
				h.fill(tt.full)
				images := h.imagesAfter(collect.First{Containers: h.containers(), Mine: func() bool { return tt.mine }})
				var r runs.Report
				if tt.trigger {
					ctx, cancel := context.WithCancel(t.Context())
					done := make(chan error)
					go func() { done <- images.Run(ctx) }()
					time.Sleep(time.Minute)
					cancel()
					<-done
					r = h.seen()[0]
				} else {
					r = h.collect(images, gc.Options{})
				}
				if got := removedContainers(r); !slices.Equal(got, tt.want) {
					t.Errorf("run removed %v, want %v", got, tt.want)
				}
				if kinds := r.Summary().RemovedKinds; kinds[runs.KindImage] != len(tt.want)/2 || kinds[runs.KindContainer] != len(tt.want)/2 {
					t.Errorf("run removed %v, want images and containers distinguished", kinds)
				}
			})
		})
	}
}
