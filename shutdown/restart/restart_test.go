package restart_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/shutdown/restart"
)

// host is a host after a shutdown that stopped all its containers.
type host struct {
	t       *testing.T
	fake    *runtimetest.Fake
	set     *runtime.Set
	journal *journal.Journal
	path    string
	held    atomic.Bool
	options restart.Options

	mu       sync.Mutex
	reported []journal.Restart
}

// afterBoot runs the test in a bubble, on a host after a boot. The shutdown before stopped a
// project of three services, a critical container, and more containers.
func afterBoot(t *testing.T, test func(*testing.T, *host), more ...string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := &host{t: t, fake: runtimetest.NewFake(runtimetest.Options{Name: "docker", NoSandboxes: true, CallTimeout: 3 * time.Minute}), path: filepath.Join(t.TempDir(), "shutdown.json")}
		h.fake.AddImage(runtimetest.ImageSpec{ID: "image"})
		container := func(name string, needs ...string) runtimetest.ContainerSpec {
			return runtimetest.ContainerSpec{ID: name, Name: name, Image: "image", StopsBefore: needs, Restart: runtime.RestartUnlessStopped}
		}
		h.fake.RunPod(runtimetest.PodSpec{ID: "compose:shop", Containers: []runtimetest.ContainerSpec{container("web", "api"), container("api", "db"), container("db")}})
		h.fake.RunPod(runtimetest.PodSpec{ID: "dns", Containers: []runtimetest.ContainerSpec{container("dns")}})
		stopped := map[string][]string{"compose:shop": {"web", "api", "db"}, "dns": {"dns"}}
		for _, name := range more {
			h.fake.RunPod(runtimetest.PodSpec{ID: name, Containers: []runtimetest.ContainerSpec{container(name)}})
			stopped[name] = []string{name}
		}
		record := &journal.Record{BootID: "one", Trigger: journal.TriggerShutdown, StartedAt: time.Now()}
		time.Sleep(time.Minute)
		for pod, ids := range stopped {
			p := journal.PodRecord{Runtime: "docker", ID: pod, Outcome: journal.Stopped, ContainerMaps: journal.ContainerMaps{Asked: map[string]time.Time{}}}
			if pod == "dns" || strings.HasPrefix(pod, "critical-") {
				p.Priority = plan.CriticalPriority
			}
			if pod == "low" {
				p.Priority = -1
			}
			for _, id := range ids {
				p.Asked[id] = time.Now()
				h.fake.Exit(id, 0)
			}
			record.Pods = append(record.Pods, p)
		}
		first := journal.Open(h.path, "one", slog.New(slog.DiscardHandler))
		stop := keep(t, first)
		first.Put(record)
		stop()
		var err error
		if h.set, err = runtime.NewSet(h.fake); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.set.Close() })
		time.Sleep(time.Minute)
		h.options = restart.Options{
			Set: h.set, Log: slog.New(slog.DiscardHandler), Held: h.held.Load,
			Report: func(r journal.Restart) {
				h.mu.Lock()
				defer h.mu.Unlock()
				h.reported = append(h.reported, r)
			},
		}
		test(t, h)
	})
}

func keep(t *testing.T, j *journal.Journal) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		j.Run(ctx)
	}()
	return func() {
		j.Flush(ctx)
		cancel()
		<-done
	}
}

// run runs an agent in a boot for some time.
func (h *host) run(boot string, long time.Duration) {
	h.t.Helper()
	h.journal = journal.Open(h.path, boot, slog.New(slog.DiscardHandler))
	stop := keep(h.t, h.journal)
	h.options.Journal = h.journal
	h.journal.Mark([]journal.Ref{{Runtime: "docker", ID: boot}}) // as a guard does, so that all is on disk
	ctx, cancel := context.WithTimeout(h.t.Context(), long)
	defer cancel()
	if err := restart.New(h.options).Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		h.t.Errorf("Run() = %v, want that its time was over", err)
	}
	stop()
}

// starts returns the containers that were started so far, in order.
func (h *host) starts() string {
	var ids []string
	for _, c := range h.fake.Calls(runtimetest.StartContainer) {
		ids = append(ids, c.Subject)
	}
	return strings.Join(ids, " ")
}

func (h *host) expectStarts(want string) {
	h.t.Helper()
	if got := h.starts(); got != want {
		h.t.Errorf("started %q, want %q", got, want)
	}
}

// outcomes returns the outcomes in the journal, by container.
func (h *host) outcomes() string {
	var list []string
	for _, r := range h.journal.Restarts() {
		list = append(list, r.ID+"="+string(r.Outcome))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func (h *host) expectOutcomes(want string) {
	h.t.Helper()
	if got := h.outcomes(); got != want {
		h.t.Errorf("the journal says %q, want %q", got, want)
	}
}

func TestAllIsStartedOnceInReverse(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		h.run("two", time.Hour)
		h.expectStarts("dns db api web")
		h.expectOutcomes("api=started db=started dns=started web=started")
		if len(h.reported) != 4 || h.reported[0].Name != "dns" {
			t.Errorf("reported %+v, want each, by its name", h.reported)
		}
		// Containers that end from now on were not stopped by a shutdown.
		h.fake.Exit("web", 1)
		h.run("two", time.Hour)
		h.fake.Exit("api", 1)
		h.run("three", time.Hour) // after a power failure
		h.expectStarts("dns db api web")
		h.expectOutcomes("")
	})
}

func TestContainersThatOthersChangedAreLeft(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		if err := h.fake.StartContainer(t.Context(), runtime.Container{ID: "web"}); err != nil {
			t.Fatal(err)
		}
		h.fake.Exit("web", 0)
		if err := h.fake.RemoveContainer(t.Context(), runtime.Container{ID: "db"}); err != nil {
			t.Fatal(err)
		}
		h.run("two", time.Hour)
		h.expectStarts("web dns api")
		h.expectOutcomes("api=started db=left dns=started web=left")
	})
}

func TestNothingIsStartedIfDisabled(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		h.options.Never = true
		h.run("two", time.Hour)
		h.options.Never = false // no container is pending any more
		h.run("two", time.Hour)
		h.expectStarts("")
		h.expectOutcomes("api=left db=left dns=left web=left")
	})
}

// An agent that is killed between two starts, or before a start returns, continues where it
// stopped.
func TestAnAgentThatIsKilledStartsNothingTwice(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		lost := h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Delay: time.Minute, Subject: "api"})
		h.run("two", 5*time.Second) // api hangs
		h.expectStarts("dns db api")
		lost.Release()
		if err := h.fake.StartContainer(t.Context(), runtime.Container{ID: "api"}); err != nil { // its start completes without the agent
			t.Fatal(err)
		}
		h.run("two", time.Hour)
		h.expectStarts("dns db api api web")
		h.expectOutcomes("api=runs db=started dns=started web=started")
	})
}

// If a boot ends before all are started, the next one starts the rest.
func TestTheNextBootStartsTheRest(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		down := h.fake.Inject(runtimetest.Every, runtimetest.Fault{Err: fmt.Errorf("%w: refused", runtime.ErrUnavailable)})
		h.run("two", time.Hour)
		h.expectStarts("")
		h.expectOutcomes("api= db= dns= web=")
		down.Release()
		h.run("three", time.Hour)
		h.expectStarts("dns db api web")
	})
}

func TestAStartThatFailsIsTriedAgainAndBlocksNobody(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Err: errors.New("no such device"), Subject: "db"})
		h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Err: errors.New("address in use"), Subject: "dns", Times: 2})
		h.run("two", time.Hour)
		h.expectOutcomes("api=started db=failed dns=started web=started")
		if n := strings.Count(h.starts(), "db"); n != 5 {
			t.Errorf("db was tried %d times, want 5", n)
		}
		if last := h.reported[len(h.reported)-1]; last.ID != "db" || !strings.Contains(last.Reason, "no such device") {
			t.Errorf("the last report is %+v, want that db does not start", last)
		}
	})
}

// The containers of an image that hang start first: by a higher priority, or by their names.
func TestStartsThatHangDoNotDelayOthers(t *testing.T) {
	var hanging []string
	for i := range 20 {
		hanging = append(hanging, fmt.Sprint("a-", i), fmt.Sprint("critical-", i))
	}
	afterBoot(t, func(t *testing.T, h *host) {
		for _, id := range hanging {
			h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Delay: time.Hour, Subject: id})
		}
		h.run("two", 2*time.Minute)
		for _, want := range []string{"api", "db", "dns", "web"} {
			if got := h.outcomes(); !strings.Contains(" "+got+" ", " "+want+"=started ") {
				t.Errorf("the journal says %q, want %s started", got, want)
			}
		}
	}, hanging...)
}

// A container that needs one that hangs waits for it, and delays no lower priority either.
func TestWhatNeedsAStartThatHangsWaitsForIt(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Delay: time.Hour, Subject: "db"})
		h.run("two", time.Minute)
		h.expectStarts("dns db low")
	}, "low")
}

// While db hangs, another container is tried again, and what needs db starts as soon as db has failed.
func TestAStartThatHangsDelaysNoLaterPass(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Delay: time.Hour, Subject: "db"})
		h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Err: errors.New("address in use"), Subject: "dns", Times: 1})
		time.AfterFunc(time.Minute, func() {
			h.expectStarts("dns db dns")
			h.expectOutcomes("api= db= dns=started web=")
		})
		h.run("two", 3*time.Minute+15*time.Second)
		h.expectStarts("dns db dns db api web")
	})
}

// Otherwise a container that a person has repaired would hold the slot of a reboot forever.
func TestAFailureEndsWhenSomebodyStartsOrRemovesTheContainer(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		broken := h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Err: errors.New("no such device")})
		h.run("two", time.Hour)
		broken.Release()
		for _, step := range []struct {
			do   func(context.Context, runtime.Container) error
			id   string
			want string
		}{
			{func(context.Context, runtime.Container) error { return nil }, "", "api=failed db=failed dns=failed web=failed"},
			{h.fake.StartContainer, "db", "api=failed db=runs dns=failed web=failed"},
			{h.fake.RemoveContainer, "api", "api=left db=runs dns=failed web=failed"},
			{func(context.Context, runtime.Container) error { h.set.Remove(h.fake.Name()); return nil }, "", "api=left db=runs dns=failed web=failed"},
		} {
			if err := step.do(t.Context(), runtime.Container{ID: step.id}); err != nil {
				t.Fatal(err)
			}
			pods, err := h.set.Pods(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			restart.New(h.options).Observe(pods)
			h.expectOutcomes(step.want)
		}
	})
}

func TestNothingIsStartedWhileTheHostGoesDown(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		h.held.Store(true)
		h.run("two", time.Hour)
		h.expectStarts("")
		// A shutdown that is announced during the starts ends them.
		h.held.Store(false)
		slow := h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Delay: 8 * time.Second})
		time.AfterFunc(5*time.Second, func() { h.held.Store(true) })
		h.run("two", time.Minute)
		h.expectStarts("dns")
		slow.Release()
		h.held.Store(false)
		h.run("two", time.Minute)
		h.expectStarts("dns db api web")
	})
}

func TestContainersThatTheirRuntimeCannotStartAreSettled(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		set, err := runtime.NewSet(struct{ runtime.Runtime }{h.fake}) // not a Starter
		if err != nil {
			t.Fatal(err)
		}
		h.options.Set = set
		h.run("two", time.Minute)
		h.expectStarts("")
		h.expectOutcomes("api=left db=left dns=left web=left")
	})
}

// A user who drains the host during the starts wants the containers stopped.
func TestAManualDrainEndsRestarts(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Delay: 8 * time.Second})
		time.AfterFunc(5*time.Second, func() { h.journal.WaiveRestarts("drained", func(int32) bool { return false }) })
		h.run("two", time.Hour)
		h.expectStarts("dns")
		h.expectOutcomes("api=left db=left dns=left web=left")
	})
}

// Writing the journal may take a while, in which a shutdown may begin.
func TestHeldIsCheckedAgainAfterTheJournalIsWritten(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		asked := 0
		h.options.Held = func() bool { asked++; return asked > 2 }
		h.run("two", time.Minute)
		h.expectStarts("")
		if r := h.journal.Restarts()[2]; r.ID != "dns" || r.Tries != 0 {
			t.Errorf("the journal has %+v, want that it was not tried", r)
		}
	})
}

func TestTheWaitForAnAbsentRuntimeIsBounded(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		h.fake.Inject(runtimetest.Every, runtimetest.Fault{Err: fmt.Errorf("%w: refused", runtime.ErrUnavailable)})
		h.run("two", 23*time.Hour)
		h.expectOutcomes("api= db= dns= web=")
		h.run("two", 25*time.Hour)
		h.expectOutcomes("api=left db=left dns=left web=left")
		h.expectStarts("")
	})
}

// A container with an unknown policy delays those that need it by two minutes.
func TestTheWaitForAnUnknownPolicyIsBounded(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		set, err := runtime.NewSet(reticent{h.fake})
		if err != nil {
			t.Fatal(err)
		}
		h.options.Set = set
		h.run("two", time.Minute)
		h.expectStarts("dns")
		for _, r := range h.journal.Restarts() {
			if want := "waits for container db"; r.ID == "api" && r.Reason != want {
				t.Errorf("the journal says %q of api, want %q", r.Reason, want)
			}
		}
		h.run("two", 10*time.Minute)
		h.expectStarts("dns api web")
		h.expectOutcomes("api=started db= dns=started web=started")
		h.run("two", 61*time.Minute)
		h.expectOutcomes("api=started db=failed dns=started web=started")
	})
}

// The hour begins when the runtime answers, because its first answer may be incomplete.
func TestTheWaitForFactsBeginsWithTheFirstAnswer(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		set, err := runtime.NewSet(reticent{h.fake})
		if err != nil {
			t.Fatal(err)
		}
		h.options.Set = set
		away := h.fake.Inject(runtimetest.Every, runtimetest.Fault{Err: fmt.Errorf("%w: refused", runtime.ErrUnavailable)})
		time.AfterFunc(2*time.Hour, away.Release)
		h.run("two", 2*time.Hour+time.Minute)
		h.expectOutcomes("api= db= dns=started web=")
		h.expectStarts("dns")
	})
}

// reticent is a runtime that does not report the restart policy of db.
type reticent struct{ *runtimetest.Fake }

func (r reticent) Pods(ctx context.Context) ([]runtime.Pod, error) {
	pods, err := r.Fake.Pods(ctx)
	for i := range pods {
		for j, c := range pods[i].Containers {
			if c.ID == "db" {
				pods[i].Containers[j].Restart = runtime.RestartUnknown
			}
		}
	}
	return pods, err
}
