//go:build integration

package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/lab"
)

// phases give all pods more time than any machine needs.
const phases = quick + "shutdown: {gracePeriod: 20m, gracePeriodCriticalPods: 10m}\n"

// shortRegular is the time of regular pods with shortPhases, which tests wait for. Pods that end when
// asked need less on any machine. Critical pods have more than they need.
const (
	shortRegular = 30 * time.Second
	shortPhases  = quick + "shutdown: {gracePeriod: 630s, gracePeriodCriticalPods: 600s}\n"
)

// workload is a host full of pods of every kind.
type workload struct {
	polite   *lab.Pod // ends on SIGTERM
	stubborn *lab.Pod // ignores SIGTERM, and has 3 s
	greedy   *lab.Pod // ignores SIGTERM, and has more time than its phase
	critical *lab.Pod // ends on SIGTERM, and has to be last
}

func fullWorkload(t testing.TB) workload {
	t.Helper()
	return workload{
		polite:   pod(t, "polite", nil, 0, lab.ServeFor(0)),
		stubborn: pod(t, "stubborn", nil, 3*time.Second, lab.IgnoreTerm()),
		greedy:   pod(t, "greedy", nil, time.Minute, lab.IgnoreTerm()),
		critical: pod(t, "critical", critical, 0, lab.ServeFor(0)),
	}
}

// emptied checks that the pods were stopped in order, after a time.
func (h workload) emptied(t testing.TB, since time.Time) (last time.Time) {
	t.Helper()
	_, politeCode := ended(t, h.polite)
	stubbornEnd, stubbornCode := ended(t, h.stubborn)
	greedyEnd, greedyCode := ended(t, h.greedy)
	criticalEnd, criticalCode := ended(t, h.critical)
	if politeCode != 0 || criticalCode != 0 {
		t.Errorf("exit codes of who ends when asked = %d and %d, want 0", politeCode, criticalCode)
	}
	if stubbornCode != 137 || greedyCode != 137 {
		t.Errorf("exit codes of who ignores SIGTERM = %d and %d, want 137", stubbornCode, greedyCode)
	}
	// How soon a container ends once it is killed depends on the machine, so only what hostler waits
	// for is compared.
	const phase = shortRegular - time.Second/2
	if last := criticalEnd.Sub(since); last < phase {
		t.Errorf("the critical pod ended after %v, want it after the regular phase of %v", last, shortRegular)
	}
	if own := stubbornEnd.Sub(since); own < 3*time.Second {
		t.Errorf("the stubborn pod was killed after %v, want its own grace of 3s", own)
	}
	if limited := greedyEnd.Sub(since); limited < phase {
		t.Errorf("the greedy pod was killed after %v, want what its phase has, %v", limited, shortRegular)
	}
	return criticalEnd
}

// wantReport checks the record of a shutdown.
func wantReport(t testing.TB, r *journal.Record, trigger journal.Trigger) {
	t.Helper()
	if r == nil {
		t.Fatal("no shutdown is reported")
	}
	if !r.Graceful || r.Trigger != trigger || r.FinishedAt.IsZero() {
		t.Errorf("record = %+v, want a graceful one with trigger %s that has an end", *r, trigger)
	}
	got := map[string]string{}
	for _, p := range r.Pods {
		got[p.Name] = p.Phase + " " + p.Grace.Duration.String() + " " + string(p.Outcome)
		if p.StartedAt.IsZero() || p.FinishedAt.Before(p.StartedAt) {
			t.Errorf("pod %s was stopped from %v to %v, want both times, in order", p.Name, p.StartedAt, p.FinishedAt)
		}
	}
	for name, outcome := range map[string]journal.Outcome{
		"polite": journal.Stopped, "stubborn": journal.Killed, "greedy": journal.Killed, "critical": journal.Stopped,
	} {
		if !strings.HasSuffix(got[name], " "+string(outcome)) {
			t.Errorf("pod %s: %q, want it %s", name, got[name], outcome)
		}
	}
	if len(got) != 4 {
		t.Errorf("pods in the record = %v, want the four of the house", got)
	}
}

// wantLimits checks that only the pod with more time than its phase is recorded as limited.
func wantLimits(t testing.TB, r *journal.Record) {
	t.Helper()
	for _, p := range r.Pods {
		if limited := len(p.Limits) == 1 && p.Limits[0].By == "phase regular"; limited != (p.Name == "greedy") {
			t.Errorf("the limits of pod %s are %v, want its phase for greedy, and none for others", p.Name, p.Limits)
		}
	}
}

func TestARebootWaitsForThePodsInTheirPhases(t *testing.T) {
	login, manager := logind(t), serviceManager(t)
	h := fullWorkload(t)
	a := newAgent(t, shortPhases)
	a.notify = manager
	a.start()
	a.awaitGuard(shutdown.Armed)
	a.awaitReady(corev1.ConditionTrue)

	p := answers[plan.Plan](a, "shutdown", "plan")
	if len(p.Phases) != 2 || len(p.Phases[0].Pods) != 3 || len(p.Phases[1].Pods) != 1 || p.Phases[1].Pods[0].Name != "critical" || p.Granted.Duration < p.Total.Duration {
		t.Fatalf("shutdown plan = %+v, want three regular pods, then the critical one, and enough granted", p)
	}
	for _, pod := range p.Phases[0].Pods {
		want := map[string]time.Duration{"polite": shortRegular, "stubborn": 3 * time.Second, "greedy": shortRegular}[pod.Name]
		if pod.Grace.Duration != want {
			t.Errorf("planned grace of %s = %v, want %v", pod.Name, pod.Grace.Duration, want)
		}
	}

	began := time.Now()
	check(t, login.Reboot(t.Context()))
	down, err := login.Manager.AwaitStart(within(t), "reboot.target", began)
	check(t, err)
	last := h.emptied(t, began)
	if down.Time.Before(last) {
		t.Errorf("the host went down %v before the last container ended", last.Sub(down.Time))
	}
	// The critical pod needed almost nothing of its 10 minutes, nor of the margin.
	if late := down.Time.Sub(last); late > 5*time.Minute {
		t.Errorf("the host went down %v after the last container ended, want it at once", late)
	}
	s := a.awaitGuard(shutdown.Released)
	wantLocks(t, login, "after the release", 0)
	eventually(t, "the lock is gone from the service manager, too", func() bool { return len(manager.Stored()) == 0 })
	wantReport(t, s.Shutdown.Current, journal.TriggerShutdown)
	wantLimits(t, s.Shutdown.Current)

	// systemd stops the service, and the next boot reads the record.
	a.signal(syscall.SIGTERM)
	if code := a.exit(); code != 0 {
		t.Errorf("exit code = %d, want 0", code)
	}
	login.Manager.SetProperty("SystemState", "running")
	login.Manager.SetProperty("UserspaceTimestamp", uint64(time.Now().UnixMicro()))
	check(t, login.Manager.CancelJobs())
	a.start()
	s = a.await("the last shutdown is known", func(s api.Status) bool { return s.Shutdown.Last != nil })
	wantReport(t, s.Shutdown.Last, journal.TriggerShutdown)
	mentions(t, "hostler status", a.screen(), "2 of 4 pods KILLED")
	mentions(t, "hostler ps --last-shutdown", a.prints("ps", "--last-shutdown"), "2 of 4 pods KILLED", "polite", "stopped", "stubborn", "killed")
	a.awaitGuard(shutdown.Armed)
	a.stop()
}

// Databases and web servers have images with another stop signal. On SIGTERM they would abort their
// work.
func TestContainersAreAskedByTheStopSignalOfTheirImage(t *testing.T) {
	login := logind(t)
	const byTerm, byOwn = 3, 5
	p := podOf(t, lab.ImageSpec{Names: []string{"docker.io/library/db:1"}, StopSignal: "SIGUSR1"}, "db", nil, time.Minute,
		[]string{"sh", "-c", fmt.Sprintf("trap 'exit %d' TERM; trap 'exit %d' USR1; echo ready; while :; do sleep 86400 & wait $!; done", byTerm, byOwn)})
	a := newAgent(t, phases)
	a.start()
	a.awaitGuard(shutdown.Armed)
	check(t, login.Reboot(t.Context()))
	if _, code := ended(t, p); code != byOwn {
		t.Errorf("the container ended with code %d, want %d, by the signal of its image", code, byOwn)
	}
	s := a.awaitGuard(shutdown.Released)
	if r := s.Shutdown.Current; r == nil || len(r.Pods) != 1 || r.Pods[0].Outcome != journal.Stopped {
		t.Errorf("record = %+v, want one pod that was stopped", r)
	}
}

func TestAShutdownThatIsCancelledAfterTheReleaseArmsAgain(t *testing.T) {
	login := logind(t)
	web := pod(t, "web", nil, 0, lab.ServeFor(0))
	a := startAgent(t, phases)
	a.awaitGuard(shutdown.Armed)
	a.awaitReady(corev1.ConditionTrue)
	began := time.Now()
	check(t, login.PowerOff(t.Context()))
	_, err := login.Manager.AwaitStart(within(t), "poweroff.target", began)
	check(t, err)
	ended(t, web)
	a.awaitGuard(shutdown.Released)

	check(t, login.Manager.CancelJobs())
	s := a.awaitGuard(shutdown.Armed)
	a.awaitReady(corev1.ConditionTrue)
	wantLocks(t, login, "after the cancellation", 1)
	if s.Shutdown.Current != nil {
		t.Errorf("current shutdown = %+v, want none any more", s.Shutdown.Current)
	}
	a.stop()
}

func TestAShutdownThatIsCancelledMeanwhileSparesThePodsNotYetStopped(t *testing.T) {
	login := logind(t)
	greedy := pod(t, "greedy", nil, 10*time.Minute, lab.IgnoreTerm())
	database := pod(t, "database", critical, 0, lab.ServeFor(0))
	before := mainOf(t, database)
	a := startAgent(t, phases)
	a.awaitGuard(shutdown.Armed)
	check(t, login.Reboot(t.Context()))
	a.awaitGuard(shutdown.Draining)
	s := a.await("Ready is False because the node drains", func(s api.Status) bool {
		return condition(s, corev1.NodeReady).Reason == status.ReasonDraining
	})
	mentions(t, "message of Ready", condition(s, corev1.NodeReady).Message, "node is shutting down", "since ")
	if got := condition(s, status.ShutdownProtected).Reason; got != status.ReasonShuttingDown {
		t.Errorf("reason of ShutdownProtected = %s, want %s", got, status.ReasonShuttingDown)
	}
	mentions(t, "hostler status", a.screen(), "is SHUTTING DOWN", "node is shutting down", "shutdown Draining for reboot, ")

	// A shutdown that waits for locks cannot be cancelled, but a new logind does not know it.
	check(t, login.RestartLogind(t.Context()))
	a.awaitGuard(shutdown.Armed)
	a.awaitReady(corev1.ConditionTrue)
	wantLocks(t, login, "after the cancellation", 1)
	untouched(t, database, before)
	if preparing, err := login.Preparing(t.Context()); err != nil || preparing {
		t.Errorf("Preparing() = %v, %v, want false", preparing, err)
	}

	// The next one is as good as the first. The greedy pod is stopped when its time ends.
	_, err := containerd.Runtime.StopContainer(t.Context(), stopNow(greedy)) // other tests show that a drain ends such a pod
	check(t, err)
	began := time.Now()
	check(t, login.Reboot(t.Context()))
	_, err = login.Manager.AwaitStart(within(t), "reboot.target", began)
	check(t, err)
	if _, code := ended(t, database); code != 0 {
		t.Errorf("exit code of the critical pod = %d, want 0", code)
	}
	a.awaitGuard(shutdown.Released)
}

func TestAServiceStopWhileTheSystemStopsDrains(t *testing.T) {
	login, manager := logind(t), serviceManager(t)
	h := fullWorkload(t)
	a := newAgent(t, shortPhases)
	a.notify = manager
	a.start()
	a.awaitGuard(shutdown.Armed)
	a.awaitReady(corev1.ConditionTrue)

	// Like `systemctl start reboot.target`, without logind notification.
	login.Manager.SetProperty("SystemState", "stopping")
	began := time.Now()
	a.signal(syscall.SIGTERM)
	stopping, err := manager.Await(within(t), "STOPPING", "1", began)
	check(t, err)
	_, err = manager.Await(within(t), "EXTEND_TIMEOUT_USEC", "15000000", stopping.Time)
	check(t, err)
	if code := a.exit(); code != 0 {
		t.Errorf("exit code = %d, want 0", code)
	}
	exited := time.Now()
	last := h.emptied(t, began)
	if exited.Before(last) {
		t.Errorf("the agent ended %v before the last container", last.Sub(exited))
	}

	login.Manager.SetProperty("SystemState", "running")
	login.Manager.SetProperty("UserspaceTimestamp", uint64(time.Now().UnixMicro()))
	a.start()
	s := a.await("the last shutdown is known", func(s api.Status) bool { return s.Shutdown.Last != nil })
	wantReport(t, s.Shutdown.Last, journal.TriggerServiceStop)
	a.awaitGuard(shutdown.Armed)
	a.stop()
}

func TestASIGKILLDuringTheDrainIsMadeGoodByTheNextStart(t *testing.T) {
	login, manager := logind(t), serviceManager(t)
	greedy := pod(t, "greedy", nil, 10*time.Minute, lab.IgnoreTerm())
	database := pod(t, "database", critical, 0, lab.ServeFor(0))
	a := newAgent(t, phases)
	a.notify = manager
	a.start()
	a.awaitGuard(shutdown.Armed)
	began := time.Now()
	check(t, login.Reboot(t.Context()))
	a.awaitGuard(shutdown.Draining)
	a.kill()
	wantLocks(t, login, "after SIGKILL", 1)
	a.start()
	a.awaitGuard(shutdown.Draining)
	_, err := containerd.Runtime.StopContainer(t.Context(), stopNow(greedy))
	check(t, err)
	_, err = login.Manager.AwaitStart(within(t), "reboot.target", began)
	check(t, err)
	greedyEnd, _ := ended(t, greedy)
	databaseEnd, code := ended(t, database)
	if databaseEnd.Before(greedyEnd) || code != 0 {
		t.Errorf("the critical pod ended %v after the regular one with code %d, want it later, with 0", databaseEnd.Sub(greedyEnd), code)
	}
	a.awaitGuard(shutdown.Released)
}

func TestADrainWaitsForAHungRuntimeNoLongerThanItsTime(t *testing.T) {
	login := logind(t)
	web := pod(t, "web", nil, 0, lab.ServeFor(0))
	a := startAgent(t, quick+"shutdown: {gracePeriod: 3s, gracePeriodCriticalPods: 1s}\n")
	a.awaitGuard(shutdown.Armed)
	a.awaitReady(corev1.ConditionTrue)
	eventually(t, "the journal knows the pod", func() bool {
		data, err := os.ReadFile(filepath.Join(a.state, "shutdown.json"))
		return err == nil && strings.Contains(string(data), web.ID)
	})
	check(t, containerd.Pause())
	t.Cleanup(func() { check(t, containerd.Continue()) })
	began := time.Now()
	check(t, login.Reboot(t.Context()))
	_, err := login.Manager.AwaitStart(within(t), "reboot.target", began)
	check(t, err)
	s := a.awaitGuard(shutdown.Released)
	r := s.Shutdown.Current
	if r == nil || r.Graceful || len(r.Pods) != 1 || r.Pods[0].Name != "web" || r.Pods[0].Outcome != journal.Left {
		t.Errorf("record = %+v, want one that is not graceful and left the pod", r)
	}
	a.awaitLease(s)
}

func TestAShutdownIsAsGoodWithAFullDisk(t *testing.T) {
	login := logind(t)
	web := pod(t, "web", nil, 0, lab.ServeFor(0))
	a := newAgent(t, phases)
	cramp(t, a)
	a.start()
	a.awaitGuard(shutdown.Armed)
	began := time.Now()
	check(t, login.Reboot(t.Context()))
	down, err := login.Manager.AwaitStart(within(t), "reboot.target", began)
	check(t, err)
	end, code := ended(t, web)
	if code != 0 || down.Time.Before(end) || down.Time.Sub(end) > 5*time.Minute {
		t.Errorf("the pod ended with %d and the host went down %v later, want 0 and at once", code, down.Time.Sub(end))
	}
	if s := a.awaitGuard(shutdown.Released); s.Shutdown.Current == nil || !s.Shutdown.Current.Graceful {
		t.Errorf("record = %+v, want a graceful one", s.Shutdown.Current)
	}
	a.signal(syscall.SIGTERM)
	a.exit()
}

// Processes of others can take all task numbers of a host. The limit of a cgroup is an example of that.
func TestAShutdownNeedsNoNewThread(t *testing.T) {
	login := logind(t)
	web := pod(t, "web", nil, 0, lab.ServeFor(0))
	a := startAgent(t, phases)
	a.awaitGuard(shutdown.Armed)
	a.awaitReady(corev1.ConditionTrue)
	group := filepath.Join("/sys/fs/cgroup/pids", fmt.Sprint("hostler-threads-", os.Getpid()))
	if _, err := os.Stat(filepath.Dir(group)); err != nil {
		group = strings.Replace(group, "/pids/", "/", 1)
	}
	check(t, os.Mkdir(group, 0o755))
	t.Cleanup(func() { check(t, os.Remove(group)) })
	check(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(a.process.PID)), 0o644))
	check(t, os.WriteFile(filepath.Join(group, "pids.max"), []byte("1"), 0o644))
	if out, err := exec.Command("sh", "-c", "echo $$ > "+group+"/cgroup.procs && (true) && true").CombinedOutput(); err == nil {
		t.Fatalf("a process of the cgroup can start another one: %s", out)
	}

	began := time.Now()
	check(t, login.Reboot(t.Context()))
	down, err := login.Manager.AwaitStart(within(t), "reboot.target", began)
	check(t, err)
	if end, code := ended(t, web); code != 0 || down.Time.Before(end) {
		t.Errorf("the pod ended at %v with %d, and the host went down at %v, want 0 and later", end, code, down.Time)
	}
	if s := a.awaitGuard(shutdown.Released); s.Shutdown.Current == nil || !s.Shutdown.Current.Graceful {
		t.Errorf("record = %+v, want a graceful one", s.Shutdown.Current)
	}
	a.signal(syscall.SIGTERM)
	a.exit()
}

func TestPhasesFitIntoWhatLogindIsMadeToGrant(t *testing.T) {
	const masking = "/run/systemd/logind.conf.d/zzz-other.conf"
	check(t, os.MkdirAll(filepath.Dir(masking), 0o755))
	check(t, os.WriteFile(masking, []byte("[Login]\nInhibitDelayMaxSec=600\n"), 0o644))
	login := logind(t) // which removes the folder at its end
	pod(t, "greedy", nil, time.Minute, lab.IgnoreTerm())
	database := pod(t, "database", critical, 0, lab.ServeFor(0))
	// Half of that is granted: a few seconds for regular pods, and minutes for critical ones.
	a := startAgent(t, quick+"shutdown: {gracePeriod: 1200s, gracePeriodCriticalPods: 1190s}\n")
	s := a.awaitGuard(shutdown.Armed)
	mentions(t, "reason of Armed", s.Shutdown.Reason, "grants only 10m0s", masking)
	p := answers[plan.Plan](a, "shutdown", "plan")
	if sum := p.Phases[0].Grace.Duration + p.Phases[1].Grace.Duration; p.Granted.Duration != 10*time.Minute || sum >= 10*time.Minute {
		t.Errorf("shutdown plan grants %v to phases of %v, want 10m, and less than that", p.Granted, sum)
	}
	mentions(t, "hostler shutdown plan", a.prints("shutdown", "plan"), "logind grants only 10m0s")

	began := time.Now()
	check(t, login.Reboot(t.Context()))
	_, err := login.Manager.AwaitStart(within(t), "reboot.target", began)
	check(t, err)
	released := a.awaitGuard(shutdown.Released)
	// The runtime decides how long it takes to kill the regular pod: the critical pod's turn comes
	// when the regular phase is over.
	asked := map[string]time.Time{}
	for _, p := range released.Shutdown.Current.Pods {
		asked[p.Name] = p.StartedAt
	}
	turn := asked["database"].Sub(asked["greedy"])
	if _, code := ended(t, database); code != 0 || turn < p.Phases[0].Grace.Duration*9/10 {
		t.Errorf("the critical pod was asked %v after the regular one, and ended with %d, want it asked after %v, and 0", turn, code, p.Phases[0].Grace)
	}
}
