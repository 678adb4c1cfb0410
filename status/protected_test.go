package status_test

import (
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
)

func TestProtectedReportsTheTruth(t *testing.T) {
	armed := status.Shutdown{State: "Armed", Reason: "shutdown lock held", Granted: 40 * time.Second, Needed: 36 * time.Second}
	short := armed
	short.Granted, short.Shortage = 8*time.Second, "granted 8s, because /etc/systemd/logind.conf.d/zzz.conf sets it"
	unknown := short
	unknown.Granted = 0
	untimed := armed
	untimed.Untimed = []string{"priority-0"}
	unresponsive := armed
	unresponsive.Granted = 35 * time.Second
	disarmed := func(fault string) status.Shutdown {
		return status.Shutdown{State: "Disarmed", Reason: "something is missing", Fault: fault}
	}
	for _, c := range []struct {
		name     string
		shutdown status.Shutdown
		spoil    func(*status.Facts)
		want     bool
		reason   string
		message  string // a part of it
	}{
		{"armed, and granted what the phases take", armed, nil, true, "Armed", "a shutdown waits for the pods to stop: shutdown lock held"},
		{"a phase without time", untimed, nil, true, "Armed", "a shutdown waits for the pods to stop, except those of phase priority-0, which has 0s: they may be killed at once: shutdown lock held"},
		{"granted too little", short, nil, false, "DelayTooShort", "a shutdown shortens the pods' phases: granted 8s, because /etc/systemd/logind.conf.d/zzz.conf"},
		{"granted too little, and nobody says why", unresponsive, nil, false, "DelayTooShort", "waits for 35s, but the pods' phases take 36s with their margin: they are shortened to fit"},
		{"granted nobody knows what", unknown, nil, false, "DelayTooShort", "may stop services before the pods' phases end, which take 36s with their margin: granted"},
		{"no runtime yet asked", armed, func(f *status.Facts) { f.RuntimesQueried, f.Runtimes = false, nil }, true, "Armed", ""},
		{"no runtime found", armed, func(f *status.Facts) { f.Runtimes = nil }, false, "PodsOutOfReach", "no container runtime was found"},
		{"a runtime that is down", armed, func(f *status.Facts) { f.Runtimes[0].Ready = false }, false, "PodsOutOfReach", "the pods of containerd, which is not ready"},
		{"containers of a runtime that was found and does not answer", armed, func(f *status.Facts) { f.Unreachable = []runtime.Health{{Info: runtime.Info{Name: "podman"}}} }, false, "PodsOutOfReach", "the pods of podman, which is not ready"},
		{"two of them", armed, func(f *status.Facts) {
			f.Runtimes[0].Ready = false
			f.Unreachable = []runtime.Health{{Info: runtime.Info{Name: "docker"}}, {Info: runtime.Info{Name: "podman"}}}
		}, false, "PodsOutOfReach", "the pods of containerd, docker and podman, which are not ready"},
		{"a shutdown in progress with a runtime down", status.Shutdown{State: "Draining"}, func(f *status.Facts) { f.Runtimes[0].Ready = false }, true, "ShuttingDown", ""},
		{"delegated", status.Shutdown{State: "Delegated", Reason: "kubelet"}, nil, true, "Delegated", "kubelet"},
		{"no bus", disarmed(status.ReasonNoBus), nil, false, "NoBus", "a shutdown will not wait for the pods to stop: something is missing"},
		{"no logind", disarmed(status.ReasonNoLogind), nil, false, "NoLogind", "something is missing"},
		{"no lock", disarmed(status.ReasonNoLock), nil, false, "NoLock", "something is missing"},
		{"switched off", disarmed(status.ReasonSwitchedOff), nil, false, "SwitchedOff", "something is missing"},
		{"just started", disarmed(status.ReasonStarting), nil, false, "Starting", "does not know yet whether a shutdown will wait for the pods to stop: something is missing"},
		{"not armed yet", disarmed(""), nil, false, "Disarmed", "something is missing"},
		{"a guard that says nothing", status.Shutdown{}, nil, false, "NotMeasured", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts := healthy()
			facts.Shutdown = c.shutdown
			if c.spoil != nil {
				c.spoil(&facts)
			}
			got, reason, message := status.Protected(facts)
			if got != c.want || reason != c.reason || !strings.Contains(message, c.message) {
				t.Errorf("Protected() = %v, %s, %q, want %v, %s and %q in it", got, reason, message, c.want, c.reason, c.message)
			}
		})
	}
}
