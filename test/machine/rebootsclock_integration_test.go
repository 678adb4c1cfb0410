//go:build integration

package machine_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/test/machine"
)

// negative is a duration below zero, as people and programs would see it.
var negative = regexp.MustCompile(`(^|[ "])-[0-9]+(\.[0-9]+)?(ns|ms|s|m|h|d)`)

// TestHostsWhoseClocksAreWrongRebootInTurn has a VM, with a server and the agent of a host, whose clock is an hour ahead
// of that of two other hosts, and then an hour behind. Its boots correct the time. The window of the VM is open by its
// own clock alone.
func TestHostsWhoseClocksAreWrongRebootInTurn(t *testing.T) {
	if bed() != machine.VM {
		t.Skip("needs a VM: run make test-machine")
	}
	t.Parallel()
	f := newFleet(t, machine.VM, machine.Container, machine.Container)
	vm, right := f.hosts[0], f.hosts[2]
	f.hosts[1].Run("systemctl disable --now hostler-server") // all slots are given by the clock of the VM
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		now := time.Now().UTC().Add(by)
		window := fmt.Sprintf("reboot: {window: [\"%s-%s UTC\"]}\n", now.Add(-29*time.Minute).Format("15:04"), now.Add(29*time.Minute).Format("15:04"))
		for _, m := range []*machine.Machine{vm, right} {
			m.Write("/etc/hostler/conf.d/window.yaml", window)
		}
		vm.Run(fmt.Sprintf("date --set '%+d seconds' && hostler reload", int(by.Seconds())))
		right.Run("hostler reload && hostler reboot --reason test")
		f.showsNoNegative(func() { f.rebootAll(f.hosts[:2], "hostler reboot --reason test") })
		if r := machine.Answer[reboot.Report](right, "reboot", "--dry-run"); r.Step != controlplane.RebootWanted || !strings.Contains(r.Message, "the window opens at") {
			t.Errorf("report = %+v, want that a host whose clock is right waits for its window", r.Request)
		}
		f.rebootAll(f.hosts[2:], "rm /etc/hostler/conf.d/window.yaml && hostler reload")
		f.settled()
		for i, m := range f.hosts {
			r, _ := report(m)
			for _, past := range r.Past {
				if past.Took.Duration <= 0 || past.Took.Duration > machine.Patience {
					t.Errorf("%s reports past reboots %+v with a clock that was wrong by %v, want the time that each took", node(i), r.Past, by)
				}
			}
		}
	}
}

// showsNoNegative has all hosts print what they know until a function returns. No duration is below zero.
func (f *fleet) showsNoNegative(do func()) {
	f.Helper()
	over := make(chan struct{})
	go func() { defer close(over); do() }()
	for {
		for i, m := range f.hosts {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(f.Context()), time.Minute)
			r, err := m.Try(ctx, "hostler status; hostler reboot --dry-run; hostler fleet slots -o wide; hostler fleet status; hostler fleet plan")
			cancel()
			if err == nil && negative.MatchString(r.Stdout) {
				f.Errorf("%s prints a duration below zero:\n%s", node(i), r.Stdout)
			}
		}
		select {
		case <-over:
			return
		case <-time.After(time.Second):
		}
	}
}
