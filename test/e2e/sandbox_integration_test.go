//go:build integration

package e2e_test

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/lab"
)

// processOf returns the process in CRI's verbose information.
func processOf(t testing.TB, info map[string]string) int {
	t.Helper()
	var text struct{ PID int }
	check(t, json.Unmarshal([]byte(info["info"]), &text))
	if text.PID <= 1 {
		t.Fatalf("CRI reports no process in %s", info["info"])
	}
	return text.PID
}

// killSandbox kills the process that holds a pod's namespaces, as the OOM killer does, and waits
// until the runtime has noticed. The pod's container continues to run.
func killSandbox(t testing.TB, p *lab.Pod) {
	t.Helper()
	before := mainOf(t, p)
	sandbox := func() *cri.PodSandboxStatusResponse {
		reply, err := containerd.Runtime.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: p.ID, Verbose: true})
		check(t, err)
		return reply
	}
	check(t, syscall.Kill(processOf(t, sandbox().Info), syscall.SIGKILL))
	eventually(t, "the sandbox of "+p.Name+" is not ready", func() bool {
		return sandbox().Status.State == cri.PodSandboxState_SANDBOX_NOTREADY
	})
	untouched(t, p, before)
}

// TestPodsWhoseSandboxesDieAmidADrainAreStoppedInOrder kills the sandbox of a pod that was sent the
// stop signal, and that of a pod whose turn has not come.
func TestPodsWhoseSandboxesDieAmidADrainAreStoppedInOrder(t *testing.T) {
	login := logind(t)
	web := pod(t, "web", nil, 10*time.Minute, endsOnUSR1()) // so that the sandboxes are dead long before
	database := pod(t, "database", critical, 0, lab.ServeFor(0))
	a := startAgent(t, phases)
	a.awaitGuard(shutdown.Armed)
	began := time.Now()
	check(t, login.Reboot(t.Context()))
	awaitAsked(t, web)
	killSandbox(t, web)
	killSandbox(t, database)
	if s := a.status(); s.Shutdown.State != shutdown.Draining {
		t.Errorf("hostler is %s when two sandboxes have died, want it Draining: their containers run", s.Shutdown.State)
	}
	endAsked(t, web)

	down, err := login.Manager.AwaitStart(within(t), "reboot.target", began)
	check(t, err)
	webEnd, webCode := ended(t, web)
	databaseEnd, databaseCode := ended(t, database)
	if webCode != 3 || databaseCode != 0 || databaseEnd.Before(webEnd) {
		t.Errorf("web ended with code %d, database with %d, %v later, want 3, then 0", webCode, databaseCode, databaseEnd.Sub(webEnd))
	}
	if late := down.Time.Sub(databaseEnd); late < 0 || late > 5*time.Minute { // of its 10 minutes
		t.Errorf("the host went down %v after the last container ended, want it at once", late)
	}
	s := a.awaitGuard(shutdown.Released)
	r := s.Shutdown.Current
	if r == nil || !r.Graceful || r.Error != "" || len(r.Pods) != 2 {
		t.Fatalf("record = %+v, want a graceful one of two pods", r)
	}
	for _, p := range r.Pods {
		if p.Outcome != journal.Stopped || p.Error != "" || len(p.Stuck) > 0 || p.StartedAt.IsZero() || p.FinishedAt.IsZero() {
			t.Errorf("record has %+v, want it stopped, and when", p)
		}
	}
}
