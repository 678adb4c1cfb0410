//go:build integration

package machine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine"
)

// sentinel is the file by which Debian's packages request a reboot.
const sentinel = "/run/reboot-required"

// report is what a host says of its reboots; false if its agent does not answer.
func report(m *machine.Machine) (reboot.Report, bool) {
	s, err := m.TryStatus()
	if err != nil || s.Reboot == nil || s.Reboot.Request == nil {
		return reboot.Report{}, false
	}
	return *s.Reboot, true
}

// over waits until the reboot of a host is over.
func (f *fleet) over(m *machine.Machine) (r reboot.Report) {
	f.Helper()
	m.Eventually("the reboot is over", func() (over bool) {
		r, over = report(m)
		return over && r.Step == controlplane.RebootDone
	})
	return r
}

// rebootAll has hosts reboot at once, and returns when each is back and its reboot is over.
func (f *fleet) rebootAll(hosts []*machine.Machine, begin string) {
	f.Helper()
	var waits sync.WaitGroup
	for _, m := range hosts {
		waits.Go(func() {
			down := m.AwaitDown(begin, func() error { m.Run(begin); return nil })
			if !down.NewKernel {
				f.Errorf("%s has not rebooted", m)
			}
			f.over(m)
		})
	}
	waits.Wait()
}

// settled checks that nothing is left of reboots. Only Nodes that a person has cordoned are.
func (f *fleet) settled(cordoned ...string) {
	f.Helper()
	f.hosts[0].Eventually("nobody holds a slot or waits for one", func() bool {
		for _, g := range machine.Answer[answer.Slots](f.hosts[0], "fleet", "slots").Groups {
			if len(g.Holders)+len(g.Waiting) > 0 {
				return false
			}
		}
		return true
	})
	for i, m := range f.hosts {
		want := slices.Contains(cordoned, node(i))
		m.Eventually(fmt.Sprintf("%s is cordoned: %t, and web and slow run", node(i), want), func() bool {
			s, err := m.TryStatus()
			return err == nil && s.Node != nil && s.Node.Spec.Unschedulable == want && m.Run("docker ps --format '{{.Names}}' | sort") == "slow\nweb\n"
		})
	}
}

// node is the name of the Node of a host.
func node(i int) string { return fmt.Sprintf("node-%d", i+1) }

// try runs a command in a machine that may be going down.
func (f *fleet) try(m *machine.Machine, command string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.Context()), time.Minute)
	defer cancel()
	if r, err := m.Try(ctx, command); err != nil || r.Code != 0 {
		f.Logf("`%s` in %s = code %d, %v %s", command, m, r.Code, err, r.Stderr)
	}
}

// disturbances disturb a host at each step of its reboot. All that they stop runs again soon after.
type disturbances struct {
	f    *fleet
	etcd sync.Mutex // held while etcd is restarted
}

func (d *disturbances) killAgent(m *machine.Machine) {
	d.f.try(m, "systemctl kill --kill-whom=main --signal=KILL hostler")
}

func (d *disturbances) killEtcd(*machine.Machine) {
	d.etcd.Lock()
	defer d.etcd.Unlock()
	m := d.f.etcd.Members[0]
	if err := m.Kill(); err != nil {
		d.f.Error(err)
	}
	if err := m.Start(); err != nil {
		d.f.Error(err)
	}
	if err := d.f.etcd.Ready(d.f.Context(), m); err != nil {
		d.f.Error(err)
	}
}

func (d *disturbances) killServers(*machine.Machine) {
	for _, m := range d.f.hosts[:2] {
		go d.f.try(m, "systemctl kill --kill-whom=main --signal=KILL hostler-server")
	}
}

// cutOff drops all packets between a host and etcd until the agent reports it, or stops for the reboot (exit code 3).
// The firewall's rule does not survive a boot.
func (d *disturbances) cutOff(m *machine.Machine) {
	const rule = "OUTPUT --out-interface lo --protocol tcp --dport 2379 --jump DROP"
	const reported = `s=$(hostler status); [ $? = 3 ] || echo "$s" | grep -q 'NOT CONNECTED'`
	// In the background, because a machine that boots again does not answer this call.
	d.f.try(m, "{ iptables --wait --insert "+rule+"; until "+reported+"; do sleep 0.2; done; iptables --wait --delete "+rule+"; } >/dev/null 2>&1 &")
}

// TestHostsRebootOneAfterTheOther has a file on three hosts request a reboot at once. At each step of one host its
// agent is killed, at each of another one etcd, and at each of the third one both servers. One Node was cordoned by a
// person before, and one is meanwhile. Then one host reboots again, and is cut off from etcd at each step. Then it
// loses its power while it drains, and while it is verified.
func TestHostsRebootOneAfterTheOther(t *testing.T) {
	t.Parallel()
	f := newFleet(t, machine.Container, machine.Container, machine.Container)
	d := &disturbances{f: f}
	f.disturbedAtEachStep(d.killAgent, d.killEtcd, d.killServers)
	for i := range f.hosts[1:] { // an agent that is killed loses the Events that it has not yet written
		f.events(f.hosts[i+1], node(i+1), "RebootRequested", "RebootStarted", "RebootFinished")
	}
	if !lab.Long() {
		f.disturbedAtEachStep(nil, nil, d.cutOff)
	} else {
		f.disturbedAtEachStep(d.killEtcd, d.killServers, d.killAgent)
		f.disturbedAtEachStep(d.killServers, d.killAgent, d.killEtcd)
		f.disturbedAtEachStep(d.cutOff, d.cutOff, d.cutOff)
	}
	f.powerCutInADrain(f.hosts[2], node(2))
	f.powerCutAfterTheBoot(f.hosts[2], node(2))

	m := f.hosts[2]
	f.hosts[0].Run("systemctl stop hostler-server") // so that no slot is granted before the request is cancelled
	f.hosts[1].Run("systemctl stop hostler-server")
	m.Run("hostler reboot --reason test && hostler reboot --cancel")
	f.hosts[0].Run("systemctl start hostler-server")
	f.hosts[1].Run("systemctl start hostler-server")
	if r := machine.Answer[reboot.Report](m, "reboot", "--dry-run"); r.Cancelled != "root" {
		t.Errorf("report = %+v, want that it was cancelled by root", r.Request)
	}
	f.settled()
}

// disturbedAtEachStep reboots all hosts that have a disturbance once, and disturbs each at each step.
func (f *fleet) disturbedAtEachStep(disturb ...func(*machine.Machine)) {
	f.Helper()
	var over []<-chan struct{}
	var hosts []*machine.Machine
	var cordoned []string
	boots, past := map[string]int{}, map[string]int{}
	for i, m := range f.hosts {
		if disturb[i] == nil {
			continue
		}
		hosts = append(hosts, m)
		before, _ := report(m)
		boots[node(i)], past[node(i)] = f.booted(node(i)), len(before.Past)
		if i < 2 {
			cordoned = append(cordoned, node(i))
		}
		if i == 1 {
			m.Run("touch " + held)
		}
		for _, step := range []controlplane.RebootStep{
			controlplane.RebootWaiting, controlplane.RebootGranted, controlplane.RebootDraining, controlplane.RebootRebooting, controlplane.RebootVerifying,
		} {
			over = append(over, f.on(node(i), step, func() {
				if i == 1 && step == controlplane.RebootDraining {
					f.try(m, "{ until hostler cordon; do sleep 0.2; done; rm "+held+"; } >/dev/null 2>&1 &")
				}
				disturb[i](m)
			}))
		}
	}
	before := len(f.releases())
	if disturb[0] != nil {
		f.hosts[0].Run("hostler cordon")
	}
	f.rebootAll(hosts, "touch "+sentinel)
	for _, done := range over {
		<-done
	}
	f.settled(cordoned...)
	for i, m := range f.hosts {
		if disturb[i] == nil {
			continue
		}
		if i < 2 {
			m.Run("hostler uncordon")
		}
		if n := f.booted(node(i)) - boots[node(i)]; n != 1 {
			f.Errorf("%s has rebooted %d times, want once", node(i), n)
		}
		r, _ := report(m)
		if len(r.Past) != past[node(i)]+1 || r.Past[0].ByOther || r.Past[0].Took.Duration <= 0 || r.Attempt.Failed != 0 {
			f.Errorf("%s reports %+v, past %+v, want its reboot, without attempts that failed", node(i), r.Request, r.Past)
		}
	}
	if all := f.releases(); len(all) != min(before+len(hosts), 10) || slices.ContainsFunc(all, func(r slots.Release) bool { return r.Cause != slots.GivenBack }) {
		f.Errorf("releases = %+v, want that each host gave its slot back once", all)
	}
}

// events waits until the Events of a Node have these reasons.
func (f *fleet) events(m *machine.Machine, node string, reasons ...string) {
	f.Helper()
	m.Eventually(fmt.Sprintf("Events of %s have reasons %v", node, reasons), func() bool {
		text, err := f.etcd.Ctl(f.Context(), "get", "--prefix", "--print-value-only", "/hostler/events/"+node+"/")
		if err != nil {
			f.Fatal(err)
		}
		return !slices.ContainsFunc(reasons, func(reason string) bool { return !strings.Contains(text, `"reason":"`+reason+`"`) })
	})
}

// powerCutInADrain cuts the power while a container is still waited for. The boot that follows is what was wanted of
// the reboot: there is no other one.
func (f *fleet) powerCutInADrain(m *machine.Machine, node string) {
	f.Helper()
	dockerRunAs(m, "stubborn", "unless-stopped", append(diaryCommand("stubborn"), "-ignore-term"))
	boots := f.booted(node)
	m.Run("hostler reboot --reason 'new kernel'")
	m.Eventually("web has stopped, and stubborn has not", func() bool {
		return strings.TrimSpace(m.Run("docker ps --format '{{.Names}}'")) == "stubborn"
	})
	m.CutPower()
	m.Start()
	r := f.over(m)
	if n := f.booted(node) - boots; n != 1 || !r.Past[0].ByOther || !strings.Contains(r.Message, "the host went down before `reboot.command` was run") {
		f.Errorf("after %d boots %s reports %+v, past %+v, want one boot, which the power cut made", n, node, r.Request, r.Past)
	}
	if text := m.Run("hostler ps --last-shutdown"); !strings.Contains(text, ", NOT finished, ") {
		f.Errorf("after a power cut in a drain `hostler ps --last-shutdown` of %s prints %s", node, text)
	}
	m.Eventually("all containers run again", func() bool {
		return slices.Equal(strings.Fields(m.Run("docker ps --format '{{.Names}}' | sort")), []string{"slow", "stubborn", "web"})
	})
	m.Run("docker rm --force stubborn")
	f.settled()
}

// powerCutAfterTheBoot cuts the power while the host is verified.
func (f *fleet) powerCutAfterTheBoot(m *machine.Machine, node string) {
	f.Helper()
	before, _ := report(m)
	cut := f.on(node, controlplane.RebootVerifying, m.CutPower)
	m.Run("hostler reboot --reason 'after the boot'")
	<-cut
	m.Start()
	r := f.over(m)
	if len(r.Past) != len(before.Past)+1 || r.Past[0].ByOther || r.Past[0].Reason != "after the boot" {
		f.Errorf("%s reports %+v, past %+v, want one reboot, which hostler made", node, r.Request, r.Past)
	}
	f.settled()
}
