//go:build integration

package machine_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/machine"
)

// wordPath selects a Node's condition Ready. With a range, kubectl would stop watching at the first
// change.
const wordPath = `jsonpath={.status.conditions[?(@.type=="Ready")].status}/{.status.conditions[?(@.type=="Ready")].reason}{"\n"}`

// TestTheControlPlaneIsUnreachable shuts down while no packets to and from kube-apiserver arrive.
// The pods get their time, and nothing waits for the control plane. What happened is reported after
// the boot.
func TestTheControlPlaneIsUnreachable(t *testing.T) {
	inVMs(t, func(t *testing.T, o machine.Options) {
		cluster := kube.For(t, kube.Options{Apart: true})
		o.Uplink, o.Config, o.Files = true, clusterConfig+workloadConfig(), credentials(t, cluster)
		m := machine.Boot(t, o)
		m.Deploy(machine.Pod{Name: "web"}, machine.Pod{Name: "db", Critical: true})
		word := func() string {
			out, _ := kubectl(t, cluster, "get", "node", "machine", "-o", wordPath) // it does not exist yet
			return strings.TrimSpace(out)
		}
		const up, down = "True/" + status.ReasonHostReady, "False/" + status.ReasonDraining
		m.Eventually("the cluster sees the node Ready", func() bool { return word() == up })
		text := recording(t, cluster, "get", "node", "machine", "--watch", "-o", wordPath)
		if err := cluster.Cut(); err != nil {
			t.Fatal(err)
		}
		boot := m.BootID()

		m.GoesDown("systemctl reboot")

		expectOrder(t, m, boot, "web", "db")
		last := expectRecord(t, m, boot, map[string]journal.Outcome{"web": journal.Stopped, "db": journal.Stopped})
		waited := loggedAt(t, m, "state="+shutdown.Released.String()).Sub(last.FinishedAt)
		t.Logf("seen: a control plane that is away is waited for %v", waited.Round(10*time.Millisecond))
		// The guard gives the control plane two seconds, which its own tests check with a fake clock.
		if waited > late {
			t.Errorf("the lock was released %v after the last pod had ended, want no longer a wait than %v", waited, late)
		}
		logindWaited(t, m)
		m.AwaitArmed()
		if err := cluster.Restore(); err != nil {
			t.Fatal(err)
		}
		m.Eventually("the cluster sees the node Ready again", func() bool {
			return word() == up && strings.Contains(m.Journal(0, "-u hostler"), "wrote final status of the last shutdown")
		})
		for _, event := range []string{"Shutdown", "ShutdownReleased", "LastShutdownGraceful"} {
			var output string
			m.Eventually("the cluster has the Event "+event, func() bool {
				var err error
				output, err = kubectl(t, cluster, "get", "events", "--all-namespaces", "--field-selector", "involvedObject.name=machine,reason="+event, "-o", "jsonpath={.items[*].message}")
				return err == nil && output != ""
			})
			if event == "Shutdown" && o.Release != machine.Debian12 && !strings.Contains(output, "(reboot)") {
				t.Errorf("the Event %s is %q, want it to report a reboot", event, output)
			}
		}
		if got := slices.Compact(text()); !slices.Equal(got, []string{up, down, up}) {
			t.Errorf("the cluster received %v, want an Event about the shutdown that it missed", got)
		}
	})
}

// loggedAt returns when the agent first logged a text in the previous boot.
func loggedAt(t *testing.T, m *machine.Machine, text string) time.Time {
	t.Helper()
	log := m.Journal(-1, "-u hostler", "-o short-unix")
	for line := range strings.Lines(log) {
		if stamp, _, _ := strings.Cut(line, " "); strings.Contains(line, text) {
			seconds, err := strconv.ParseFloat(stamp, 64)
			if err != nil {
				t.Fatalf("journalctl prints %q: %v", line, err)
			}
			return time.UnixMicro(int64(seconds * 1e6))
		}
	}
	t.Fatalf("the agent's log has no %q:\n%s", text, log)
	return time.Time{}
}

// TestTheStoreIsUnreachable makes the store of the embedded control plane, which is the default
// one, unavailable, and shuts down. The pods get their time, and nothing waits for the store.
func TestTheStoreIsUnreachable(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		storeRefuses(t, m)
		if o.Bed == machine.VM { // to freeze a filesystem needs a separate kernel
			storeHangs(t, m)
		}
	})
}

// storeRefuses tests a store that cannot be written. The state is only in memory and is lost.
func storeRefuses(t *testing.T, m *machine.Machine) {
	m.Run("systemctl stop hostler && mount --bind /var/lib/hostler /var/lib/hostler && mount -o remount,bind,ro /var/lib/hostler && systemctl start hostler")
	m.AwaitArmed()
	if s := m.Status(); s.State.Message == "" {
		t.Fatalf("Status().State = %+v, want it to say that nothing is kept", s.State)
	}
	expectAilment(t, m, ailment{
		name: "a state folder that is read-only", reason: status.ReasonArmed, protected: true,
		check: "state", verdict: doctor.Warn, message: "hostler may lose its state: not persisted", fix: "writable",
	})
	m.Deploy(machine.Pod{Name: "web"}, machine.Pod{Name: "db", Critical: true})
	boot := m.BootID()
	m.GoesDown("systemctl reboot")
	expectOrder(t, m, boot, "web", "db")
	awaitReady(t, m, "after a boot without a store")
	if s := m.Status(); s.State.Message != "" {
		t.Errorf("Status().State = %+v, want it well again", s.State)
	}
	expectAilment(t, m, ailment{name: "a state folder that can be written again", reason: status.ReasonArmed, protected: true, check: "state", verdict: doctor.OK})
}

// storeHangs tests a store that blocks writers. The shutdown does not wait. The state is written
// once the store works again, before the machine is down.
func storeHangs(t *testing.T, m *machine.Machine) {
	m.Write("/etc/systemd/system/thaw.service", `[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=true
ExecStop=fsfreeze --unfreeze /var/lib/hostler
`)
	m.Run(`systemctl daemon-reload && systemctl start thaw && systemctl stop hostler
		truncate -s 64M /root/state.img && mkfs.ext4 -q /root/state.img && mkdir /root/old && cp -a /var/lib/hostler/. /root/old
		modprobe loop; mount -o loop /root/state.img /var/lib/hostler && cp -a /root/old/. /var/lib/hostler
		echo '/root/state.img /var/lib/hostler ext4 loop 0 0' >>/etc/fstab
		systemctl daemon-reload && systemctl start hostler`)
	m.AwaitArmed()
	m.Deploy(machine.Pod{Name: "web2"}, machine.Pod{Name: "db2", Critical: true})
	boot := m.BootID()
	m.GoesDown("fsfreeze --freeze /var/lib/hostler && systemctl reboot")
	expectOrder(t, m, boot, "web2", "db2")
	expectRecord(t, m, boot, map[string]journal.Outcome{"web2": journal.Stopped, "db2": journal.Stopped})
	awaitReady(t, m, "after a boot with a store that hung")
}

// TestARuntimeIsUnreachableWhenTheAgentIsNew drains a host with an agent that never reached the
// runtime. It does not assume that there are no pods, and says so after the boot.
func TestARuntimeIsUnreachableWhenTheAgentIsNew(t *testing.T) {
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		for _, scenario := range []struct {
			name  string
			known bool // which pods exist
			web   machine.Pod
			down  func() machine.Down
		}{
			{"before the shutdown", false, machine.Pod{Name: "web"}, func() machine.Down {
				m.Run("systemctl stop containerd && systemctl restart hostler")
				return m.GoesDown("systemctl reboot")
			}},
			{"in the middle of it", true, lingering("web", o.Bed), func() machine.Down {
				return m.AwaitDown("a reboot without a runtime", func() error {
					m.Run("systemctl reboot")
					m.Eventually("web is sent the stop signal", func() bool { return !m.Work().Boot(m.BootID()).Pod("web")[0].Term().IsZero() })
					m.Run("systemctl stop containerd; systemctl restart --no-block hostler; true")
					return nil
				})
			}},
		} {
			m.Deploy(scenario.web, machine.Pod{Name: "db", Critical: true})
			m.AwaitArmed()
			boot := m.BootID()
			scenario.down()
			last := m.LastShutdown()
			if last == nil || !strings.HasPrefix(last.BootID, boot) || last.Graceful || !strings.Contains(last.Error, "containerd") {
				t.Fatalf("LastShutdown() where the runtime went away %s = %+v, want one that was not graceful, and that names it", scenario.name, last)
			}
			if i := slices.IndexFunc(last.Pods, func(p journal.PodRecord) bool { return p.Name == "db" }); scenario.known && (i < 0 || last.Pods[i].Outcome == journal.Stopped) {
				t.Errorf("LastShutdown() where the runtime went away %s = %+v, want db in it, and not stopped: nobody has asked it", scenario.name, last)
			}
		}
	})
}
