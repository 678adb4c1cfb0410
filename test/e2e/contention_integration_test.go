//go:build integration

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/status"
)

// TestContentionIsReportedWhereItIsSwitchedOn runs more processes than there are CPUs, on this
// kernel, with or without pressure stall information.
func TestContentionIsReportedWhereItIsSwitchedOn(t *testing.T) {
	const pressure = quick + "pressure: {transitionPeriod: 1s, psi: {cpu: {kind: some, window: 10s, threshold: 1%}, memory: {kind: full, window: 5m, threshold: 99%}}}\n"
	want, reason, says := corev1.ConditionTrue, status.ReasonStallsAboveThreshold, "CPU stalled some"
	if _, err := os.ReadFile("/proc/pressure/cpu"); err != nil {
		want, reason, says = corev1.ConditionUnknown, status.ReasonPSIUnavailable, "psi=1"
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range 2 * goruntime.NumCPU() {
		busy := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		check(t, busy.Start())
		defer func() { _ = busy.Wait() }() // its error says that it was killed
	}
	defer cancel() // before the waits

	a := startAgent(t, pressure)
	s := a.await("CPUs are contended", func(s api.Status) bool { return condition(s, status.CPUContention).Status == want })
	if c := condition(s, status.CPUContention); c.Reason != reason {
		t.Errorf("condition %+v, want reason %s", c, reason)
	}
	mentions(t, "hostler status", a.prints("status", "-o", "wide"), string(status.CPUContention), says, "cgroup v"+strconv.Itoa(s.Topology.CgroupVersion))
	if c := condition(s, status.MemoryContention); c.Status == "" || c.Status == corev1.ConditionTrue {
		t.Errorf("condition of memory is %+v, want it there, and not True", c)
	}
	if c := condition(s, status.IOContention); c.Status != "" {
		t.Errorf("condition of I/O is %+v, want none: it is not switched on", c)
	}
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	if v2 := s.Topology.CgroupVersion == 2; v2 != (err == nil) {
		t.Errorf("topology has cgroups of version %d, and cgroup.controllers says: %v", s.Topology.CgroupVersion, err)
	}
	if s.Topology.CgroupVersion > 0 {
		metric(t, a, "hostler_cgroup_version", strconv.Itoa(s.Topology.CgroupVersion))
	}

	a.configure(quick)
	mentions(t, "hostler reload", a.prints("reload"), "pressure.psi.cpu.kind", "pressure.psi.memory.threshold")
	a.await("contention is not reported any more", func(s api.Status) bool {
		return s.Node != nil && condition(s, status.CPUContention).Status == "" && condition(s, status.MemoryContention).Status == ""
	})

	a.configure(quick + "pressure:\n  psi:\n    cpu:\n      kind: full\n      window: 10s\n      threshold: 1%\n")
	refused := a.hostler("reload")
	if refused.code != 1 {
		t.Errorf("hostler reload = %+v, want it refused", refused)
	}
	mentions(t, "the refusal", refused.err, filepath.Base(a.config)+":", "pressure.psi.cpu.kind", "write some")
	a.stop()
}
