//go:build integration

package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status/reboots"
	"hostler.io/hostler/test/lab"
)

// cordoned reports whether the Node is cordoned, with its taint.
func cordoned(t testing.TB, s api.Status) bool {
	t.Helper()
	tainted := slices.ContainsFunc(nodeOf(s).Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == corev1.TaintNodeUnschedulable && taint.Effect == corev1.TaintEffectNoSchedule
	})
	if tainted != nodeOf(s).Spec.Unschedulable {
		t.Errorf("unschedulable is %v, and the taint is there: %v", nodeOf(s).Spec.Unschedulable, tainted)
	}
	return nodeOf(s).Spec.Unschedulable
}

// boot makes the host look as after a reboot.
func boot(t testing.TB, login *lab.Login) {
	t.Helper()
	login.Manager.SetProperty("SystemState", "running")
	login.Manager.SetProperty("UserspaceTimestamp", uint64(time.Now().Add(2*time.Second).UnixMicro())) // boot times have whole seconds
	check(t, login.Manager.CancelJobs())
}

func TestAPersonDrainsTheHostAndOpensItAgain(t *testing.T) {
	login := logind(t)
	polite := pod(t, "polite", nil, 0, lab.ServeFor(0))
	stubborn := pod(t, "stubborn", nil, time.Second, lab.IgnoreTerm())
	database := pod(t, "database", critical, 0, lab.ServeFor(0))
	before, politeBefore := mainOf(t, database), mainOf(t, polite)
	a := startAgent(t, shortPhases) // a phase as long as what a pod has by default
	a.awaitGuard(shutdown.Armed)
	a.awaitReady(corev1.ConditionTrue)

	p := answers[maintenance.DrainPlan](a, "drain", "--dry-run")
	if len(p.Phases) != 2 || len(p.Phases[0].Pods) != 2 || len(p.Phases[1].Pods) != 0 || len(p.Critical) != 1 || p.Critical[0].Name != "database" || p.Refusal != "" || p.Bound != p.Phases[0].Grace {
		t.Fatalf("drain --dry-run = %+v, want two pods to stop within their phase, and the critical one exempted", p)
	}
	mentions(t, "hostler drain --dry-run", a.prints("drain", "--dry-run"), "stop 2 pods", "polite", "stubborn", "skipped without --all: 1 pod")
	untouched(t, polite, politeBefore)
	if cordoned(t, a.status()) {
		t.Error("a dry run cordons the node")
	}

	r := a.hostler("drain")
	if r.code != 0 {
		t.Fatalf("hostler drain = %d, %s%s, want 0", r.code, r.out, r.err)
	}
	mentions(t, "hostler drain", r.out, "stopped default/polite after ", "killed default/stubborn after ", "skipped default/database: critical pod",
		"2 pods stopped (1 killed), took ", "; 1 critical pod skipped", "run `hostler uncordon`")
	if _, code := ended(t, polite); code != 0 {
		t.Errorf("exit code of the polite pod = %d, want 0", code)
	}
	ended(t, stubborn)
	untouched(t, database, before)
	s := a.awaitReady(corev1.ConditionTrue)
	if !cordoned(t, s) || s.Cordon == nil || s.Cordon.By == "" || s.Shutdown.State != shutdown.Armed || s.Shutdown.Last != nil {
		t.Errorf("status after the drain = %+v, want the node cordoned by somebody, and no shutdown on record", s.Shutdown)
	}
	mentions(t, "hostler status", a.screen(), "is Ready,SchedulingDisabled, for", "closed to new pods by "+s.Cordon.By+" ")

	// The cordon survives restarts of the agent, and the boot.
	a.stop()
	a.start()
	if s := a.awaitNode(); !cordoned(t, s) || s.Cordon == nil {
		t.Error("the cordon is gone with the agent")
	}
	a.kill()
	boot(t, login)
	a.start()
	if s := a.awaitNode(); !cordoned(t, s) || s.Cordon == nil {
		t.Error("the cordon is gone with the boot")
	}
	mentions(t, "hostler ps --last-shutdown", a.prints("ps", "--last-shutdown"), "NOT graceful, 1 pod cut off", "manual drain ", "1 of 3 pods KILLED")
	mentions(t, "hostler status", a.screen(), "a drain before it stopped 2 pods")

	mentions(t, "hostler cordon", a.prints("cordon"), "is already cordoned")
	mentions(t, "hostler uncordon", a.prints("uncordon"), "is uncordoned")
	if s := a.status(); cordoned(t, s) {
		t.Error("the node is still cordoned after hostler uncordon")
	}
	report := answers[maintenance.DrainReport](a, "drain", "--all")
	if !report.Graceful || !report.Unschedulable || len(report.Pods) != 1 || report.Pods[0].Name != "database" || report.Pods[0].Outcome != journal.Stopped {
		t.Errorf("drain --all = %+v, want the critical pod stopped", report)
	}
	if _, code := ended(t, database); code != 0 {
		t.Errorf("exit code of the critical pod = %d, want 0", code)
	}
	if last := a.status().Shutdown.Last; last == nil || last.Trigger != journal.TriggerUnknown {
		t.Errorf("last shutdown = %+v, want that the boot ended without one, and no manual drain", last)
	}
	a.stop()
}

func TestCtrlCEndsADrain(t *testing.T) {
	pod(t, "greedy", nil, time.Hour, lab.IgnoreTerm())
	database := pod(t, "database", critical, 0, lab.ServeFor(0))
	before := mainOf(t, database)
	a := startAgent(t, quick+"shutdown: {gracePeriod: 2h, gracePeriodCriticalPods: 5s}\n")
	a.awaitNode()

	var errs bytes.Buffer
	for tries := range 10 {
		cmd := exec.Command(binary, "drain", "--all")
		cmd.Env = []string{"HOSTLER_SOCKET=" + a.socket}
		cmd.Stderr = &errs
		check(t, cmd.Start())
		s := a.await("the drain is seen", func(s api.Status) bool { return s.Shutdown.ManualDrain != nil && len(s.Shutdown.ManualDrain.Pods) == 2 })
		if s.Shutdown.State == shutdown.Draining {
			t.Error("a manual drain counts as a shutdown")
		}
		mentions(t, "hostler status", a.screen(), "started manually, 0 of 2 pods stopped")
		r := a.hostler("drain")
		if r.code != 1 {
			t.Errorf("a second drain = %d, want 1", r.code)
		}
		mentions(t, "its stderr", r.err, "another drain is running", "hint: ")

		check(t, cmd.Process.Signal(syscall.SIGINT))
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("the drain that was interrupted ended with %v, want exit code 1", err)
		}
		if tries == 9 || !strings.Contains(errs.String(), "cannot list the remaining pods") {
			break
		}
		errs.Reset() // on a busy machine, the drain ends later than the command waits for
		a.await("the drain is over", func(s api.Status) bool { return s.Shutdown.ManualDrain == nil })
	}
	mentions(t, "its stderr", errs.String(), "interrupted", "still running or stopping: ", "greedy", "database", "stays cordoned", "hostler uncordon")
	a.await("the drain is over", func(s api.Status) bool { return s.Shutdown.ManualDrain == nil })
	untouched(t, database, before)
	if !cordoned(t, a.status()) {
		t.Error("the node is not cordoned any more")
	}
	a.stop()
	untouched(t, database, before)
}

func TestADrainEndsWithTheAgentAndReportsIt(t *testing.T) {
	pod(t, "greedy", nil, time.Hour, lab.IgnoreTerm())
	database := pod(t, "database", critical, 0, lab.ServeFor(0))
	before := mainOf(t, database)
	a := startAgent(t, quick+"shutdown: {gracePeriod: 2h, gracePeriodCriticalPods: 5s}\n")
	for _, c := range []struct {
		end  func()
		code int
		want []string
	}{
		{a.stop, 1, []string{"has cut it short", "hint: "}},
		{a.kill, 3, []string{"the drain broke off, and the node may be left cordoned"}},
	} {
		a.awaitNode()
		done := make(chan answer)
		go func() { done <- a.hostler("drain", "--all") }()
		a.await("the drain runs", func(s api.Status) bool { return s.Shutdown.ManualDrain != nil && len(s.Shutdown.ManualDrain.Pods) == 2 })
		c.end()
		r := <-done
		if r.code != c.code {
			t.Errorf("hostler drain = %d, want %d", r.code, c.code)
		}
		mentions(t, "its stderr", r.err, c.want...)
		untouched(t, database, before)
		a.start()
	}
	if !cordoned(t, a.awaitNode()) {
		t.Error("the node is not cordoned any more")
	}
	a.stop()
	wantEvents(t, a, "DrainEndedEarly")
}

func TestADrainStopsPodsThatAppearMeanwhile(t *testing.T) {
	slow := pod(t, "slow", nil, 10*time.Minute, endsOnUSR1())
	a := startAgent(t, phases)
	a.awaitNode()
	done := make(chan answer)
	go func() { done <- a.hostler("drain") }()
	a.await("the drain runs", func(s api.Status) bool { return s.Shutdown.ManualDrain != nil && len(s.Shutdown.ManualDrain.Pods) == 1 })
	late := pod(t, "late", nil, 0, lab.ServeFor(0))
	endAsked(t, slow)
	r := <-done
	if r.code != 0 {
		t.Errorf("hostler drain = %d, %s", r.code, r.err)
	}
	mentions(t, "hostler drain", r.out, "stopped default/slow", "stopped default/late", "2 pods stopped")
	ended(t, slow)
	if _, code := ended(t, late); code != 0 {
		t.Errorf("exit code of the late pod = %d, want 0", code)
	}
	a.stop()
}

func TestEveryWayToSayWhoIsCriticalAndHowLongCounts(t *testing.T) {
	run := func(name, namespace string, labels, annotations map[string]string) *lab.Pod {
		t.Helper()
		_, err := containerd.Pull(t.Context(), lab.ImageSpec{Names: []string{webImage}})
		check(t, err)
		p, err := containerd.RunPod(t.Context(), lab.PodSpec{
			Name: name, Namespace: namespace, Labels: labels, Annotations: annotations,
			Containers: []lab.ContainerSpec{{Name: "main", Image: webImage, Command: lab.ServeFor(0), Ready: "ready"}},
		})
		check(t, err)
		t.Cleanup(func() {
			eventually(t, "pod "+name+" is removed", func() bool { return containerd.RemovePod(context.Background(), p) == nil })
		})
		return p
	}
	pods := []*lab.Pod{
		run("lowest", "", map[string]string{"hostler.io/priority": "-10"}, nil),
		run("brief", "", map[string]string{"hostler.io/grace-period": "22s"}, nil),
		run("middle", "", nil, map[string]string{"hostler.io/priority": "1500"}),
		run("by-label", "", map[string]string{"hostler.io/critical": "true"}, nil),
		run("by-annotation", "", nil, map[string]string{"hostler.io/critical": "true"}),
		run("by-namespace", "kube-system", nil, nil),
		run("by-name-7", "", nil, nil),
		run("by-rule", "", map[string]string{"tier": "storage"}, nil),
	}
	a := startAgent(t, quick+`shutdown:
  byPriority: [{priority: -100, gracePeriod: 23s}, {priority: 0, gracePeriod: 25s}, {priority: 1000, gracePeriod: 24s}, {priority: 2000000000, gracePeriod: 26s}]
  critical: [{namespace: kube-*}, {name: 'by-name-?'}, {labels: {tier: storage}}]
`)
	a.awaitNode()
	got := map[string]string{}
	for _, phase := range answers[plan.Plan](a, "shutdown", "plan").Phases {
		for _, p := range phase.Pods {
			got[p.Name] = phase.Name + " " + p.Grace.Duration.String()
		}
	}
	for name, want := range map[string]string{
		"lowest": "priority--100 23s", "brief": "priority-0 22s", "middle": "priority-1000 24s", "by-label": "priority-2000000000 26s",
		"by-annotation": "priority-2000000000 26s", "by-namespace": "priority-2000000000 26s", "by-name-7": "priority-2000000000 26s", "by-rule": "priority-2000000000 26s",
	} {
		if got[name] != want {
			t.Errorf("pod %s is planned for %q, want %q", name, got[name], want)
		}
	}

	if r := a.hostler("drain", "--all"); r.code != 0 {
		t.Fatalf("hostler drain --all = %d, %s%s", r.code, r.out, r.err)
	}
	var last time.Time
	for _, p := range pods[:4] { // in the order of their phases
		at, _ := ended(t, p)
		if at.Before(last) {
			t.Errorf("pod %s ended %v before one of an earlier phase", p.Name, last.Sub(at))
		}
		last = at
	}
	a.stop()
}

func TestWhatTheLastShutdownEndedIsReportedAndKeptForADay(t *testing.T) {
	login := logind(t)
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	_, err := c.Pull(t.Context(), lab.ImageSpec{Names: []string{webImage}})
	check(t, err)
	run := func(name string, grace time.Duration, command []string) *lab.Pod {
		t.Helper()
		p, err := c.RunPod(t.Context(), lab.PodSpec{Name: name, Grace: grace, Containers: []lab.ContainerSpec{{Name: "main", Image: webImage, Command: command}}})
		check(t, err)
		return p
	}
	old := run("old", 0, lab.ExitWith(3)) // not ended by a shutdown
	_, err = c.AwaitExit(t.Context(), old.Containers["main"])
	check(t, err)
	web, deaf := run("web", 0, lab.ServeFor(0)), run("deaf", time.Second, lab.IgnoreTerm())
	a := startAgent(t, phases+"runtimes: [{type: cri, endpoint: "+c.Endpoint+"}]\n")
	a.awaitGuard(shutdown.Armed)
	a.awaitReady(corev1.ConditionTrue)
	began := time.Now()
	check(t, login.Reboot(t.Context()))
	_, err = login.Manager.AwaitStart(within(t), "reboot.target", began)
	check(t, err)
	a.awaitGuard(shutdown.Released)
	a.stop()
	boot(t, login)

	// Root can read it without an agent, too.
	type reported struct {
		Pods []struct {
			Name, UID string
			Status    journal.PodStatus
		}
	}
	r := command(t, []string{"HOSTLER_SOCKET=" + a.socket, "HOSTLER_CONFIG=" + a.config}, "ps", "--last-shutdown")
	if r.code != 0 {
		t.Errorf("hostler ps --last-shutdown without an agent = %d, %s", r.code, r.err)
	}
	mentions(t, "stderr", r.err, "no agent answers; reading its records in "+a.state)
	mentions(t, "stdout", r.out, "1 of 2 pods KILLED", "Succeeded", "Failed (Terminated)")
	a.start()
	a.awaitReady(corev1.ConditionTrue)
	status := map[string]journal.PodStatus{}
	for _, p := range answers[reported](a, "ps", "--last-shutdown").Pods {
		status[p.Name] = p.Status
		if want := map[string]string{"web": web.UID, "deaf": deaf.UID}[p.Name]; p.UID != want {
			t.Errorf("UID of %s = %q, want %q", p.Name, p.UID, want)
		}
	}
	if status["web"].Phase != corev1.PodSucceeded || status["deaf"] != (journal.PodStatus{Phase: corev1.PodFailed, Reason: "Terminated", Message: "Pod was terminated in response to imminent node shutdown."}) {
		t.Errorf("ps --last-shutdown says %+v, want web succeeded and deaf terminated", status)
	}

	reasons := map[string]string{}
	for _, d := range answers[api.CollectPlan](a, "gc", "plan", "--containers", "--all-unused").Containers {
		reasons[d.Pod] = string(d.Action) + " " + string(d.Reason)
	}
	if reasons["default/web"] != "keep last-shutdown" || reasons["default/deaf"] != "keep last-shutdown" || reasons["default/old"] == "keep last-shutdown" {
		t.Errorf("gc plan = %v, want what the shutdown ended kept, and no other for that reason", reasons)
	}
	a.prints("gc", "run", "--containers", "--all-unused")
	for _, p := range []*lab.Pod{web, deaf} {
		if _, err := c.Container(t.Context(), p.Containers["main"]); err != nil {
			t.Errorf("container of pod %s: %v, want it still there", p.Name, err)
		}
	}
	sandboxes, err := c.Runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil || len(sandboxes.Items) != 3 {
		t.Errorf("sandboxes = %v, %v, want all three", sandboxes, err)
	}
	a.stop()
	wantEvents(t, a, "LastShutdownGraceful", "left no pod running: 2 pods: 1 stopped, 1 killed after their grace period", "ShutdownReleased",
		"Rebooted", "has been rebooted, boot id: ", "announced by logind), pods killed: 1, pods were stopped in ")
}

// wantEvents checks for texts of Events in the state file of an agent that has ended: the embedded
// control plane stores them there.
func wantEvents(t testing.TB, a *agent, texts ...string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(a.state, "events.state"))
	check(t, err)
	for _, text := range texts {
		if !bytes.Contains(data, []byte(text)) {
			t.Errorf("no Event says %q", text)
		}
	}
}

func TestAForcedRebootIsReportedInPlainWords(t *testing.T) {
	login := logind(t)
	web := pod(t, "web", nil, 0, lab.ServeFor(0))
	a := startAgent(t, phases)
	a.awaitGuard(shutdown.Armed)
	eventually(t, "the journal knows the pod", func() bool {
		data, err := os.ReadFile(filepath.Join(a.state, "shutdown.json"))
		return err == nil && bytes.Contains(data, []byte(web.ID))
	})
	a.kill() // with the whole host
	boot(t, login)
	a.start()
	a.awaitNode()
	mentions(t, "hostler status", a.screen(), "last shutdown NOT graceful, 1 pod cut off: the host went down without a drain")
	mentions(t, "hostler ps --last-shutdown", a.prints("ps", "--last-shutdown"), "NOT graceful", "web", "Failed (Terminated)")
	if lines := a.logLines("msg=\"last shutdown\"", "level=WARN", "graceful=false"); len(lines) != 1 {
		t.Errorf("log lines = %q, want one", lines)
	}
	for range 2 { // also after a restart of the agent
		if r := answers[api.Status](a, "status").Reboots; r.Unexpected != 1 || r.Expected+r.Unknown != 0 || r.Last == nil || r.Last.Verdict != reboots.Unexpected {
			t.Errorf("hostler status reports reboots %+v, want one unexpected reboot", r)
		}
		a.stop()
		a.start()
		a.awaitNode()
	}
	a.stop()
	wantEvents(t, a, "LastShutdownNotGraceful", "the host went down without a drain: 1 pod cut off", "Rebooted", "unexpected (forced, without a reboot of the kernel)")
}
