//go:build integration

package machine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/reboots"
	"hostler.io/hostler/test/machine"
)

// shutdownKind is a way to end a boot.
type shutdownKind struct {
	name string
	down func(m *machine.Machine) machine.Down
	off  bool   // the machine is off afterwards
	same bool   // the kernel stays the same
	kind string // reported by logind
}

func by(command string) func(m *machine.Machine) machine.Down {
	return func(m *machine.Machine) machine.Down { return m.GoesDown(command) }
}

// TestAnnouncedShutdowns shuts a machine down in every way that uses logind: pods stop in two
// phases while logind waits.
func TestAnnouncedShutdowns(t *testing.T) {
	onBothDebians(t, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		t.Logf("seen: %s", versions(m))
		ways := []shutdownKind{
			{name: "systemctl reboot", down: by("systemctl reboot"), kind: "reboot"},
			{name: "shutdown -r now", down: by("shutdown -r now"), kind: "reboot"},
			{name: "reboot", down: by("reboot"), kind: "reboot"},
			{name: "systemctl poweroff", down: by("systemctl poweroff"), off: true, kind: "poweroff"},
			{name: "shutdown -h, scheduled", down: scheduled, off: true, kind: "poweroff"},
		}
		if o.Bed == machine.VM {
			ways = append(ways,
				shutdownKind{name: "power button", down: (*machine.Machine).PowerButton, off: true, kind: "poweroff"},
				shutdownKind{name: "systemctl kexec", down: by("kexec --load /boot/vmlinuz --initrd=/boot/initrd --reuse-cmdline && systemctl kexec"), kind: "kexec"})
		}
		if o.Release != machine.Debian12 {
			// It is the last one: the boot ID does not distinguish what follows.
			ways = append(ways, shutdownKind{name: "systemctl soft-reboot", down: by("systemctl soft-reboot"), same: true, kind: "soft-reboot"})
		}
		t.Run("scheduled and cancelled", func(t *testing.T) { cancelAnnounced(t, m) })
		for i, way := range ways {
			pods := workload() // started in the previous boot
			if i > 0 {
				m.Deploy(pods...)
			}
			t.Run(way.name, func(t *testing.T) { goDown(t, m, way, pods) })
			if i == 1 && o.Bed == machine.VM { // a container's clock is the host's
				t.Run("kept for a day", func(t *testing.T) { keptForADay(t, m) })
			}
		}
	})
}

// goDown shuts the machine down in one way, and checks the result in the next boot.
func goDown(t *testing.T, m *machine.Machine, kind shutdownKind, pods []machine.Pod) {
	t.Helper()
	before := m.BootID()
	down := kind.down(m)
	if down.Off != kind.off || down.NewKernel == kind.same {
		t.Errorf("the machine went down as %+v, want off = %t and a new kernel = %t", down, kind.off, !kind.same)
	}
	if down.Off {
		m.Start()
	}
	c := readBack(t, m, before)
	c.logFindings(t, kind.name)
	checkWorkload(t, c, pods, journal.TriggerShutdown)
	expectReboot(t, m, reboots.Expected)
	if m.Options.Release == machine.Debian12 && kind.name == "power button" {
		kind.kind = "" // logind does not report it
	}
	if c.last.Kind != kind.kind {
		t.Errorf("LastShutdown() is of kind %q, want %q", c.last.Kind, kind.kind)
	}
	if output := m.Hostler("status"); !strings.Contains(output, kind.kind+" "+c.last.StartedAt.UTC().Format(time.RFC3339)) {
		t.Errorf("hostler status does not report the %q:\n%s", kind.kind, output)
	}
	logindWaitedIn(t, m, logOf(kind))
}

// logindWaited checks that logind waited until the end of the previous boot for the holder of a
// lock.
func logindWaited(t *testing.T, m *machine.Machine) {
	t.Helper()
	logindWaitedIn(t, m, -1)
}

func logindWaitedIn(t *testing.T, m *machine.Machine, boot int) {
	t.Helper()
	if log := m.Journal(boot, "-u systemd-logind"); strings.Contains(log, "inhibitor timeout") {
		t.Errorf("logind gave up waiting:\n%s", log)
	}
}

// logOf returns the boot, counted from this one, whose journal has the shutdown.
func logOf(kind shutdownKind) int {
	if kind.same {
		return 0
	}
	return -1
}

// scheduled schedules a shutdown, as `shutdown -h +1` does, but sooner: it makes the same call to
// logind.
func scheduled(m *machine.Machine) machine.Down {
	return m.GoesDown(scheduleIn(3*time.Second, "poweroff"))
}

// scheduleIn returns the command that makes logind shut down after a while.
func scheduleIn(d time.Duration, kind string) string {
	return fmt.Sprintf("busctl call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager ScheduleShutdown st %s $(($(date +%%s%%6N) + %d))",
		kind, d.Microseconds())
}

// cancelAnnounced schedules shutdowns and cancels them before their time: logind has not announced
// anything by then, and nothing happens.
func cancelAnnounced(t *testing.T, m *machine.Machine) {
	m.Deploy(workload()...)
	plans := func() string {
		return m.Run("busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager ScheduledShutdown")
	}
	m.Run("shutdown -h +10")
	if got := plans(); !strings.Contains(got, `"poweroff"`) {
		t.Errorf("logind has scheduled %s, want a power-off", got)
	}
	// The agent shows no scheduled shutdown if logind takes long to answer.
	m.Eventually("the API, hostler status and doctor name the scheduled power-off", func() bool {
		s := m.Status().ScheduledShutdown
		return s != nil && s.Kind == "poweroff" && strings.Contains(m.Hostler("status"), "poweroff at ") && strings.Contains(doctorSays(m), "will start a poweroff at ")
	})
	stillOpen(t, m, "a shutdown is scheduled")
	m.Run("shutdown -c")
	if got := plans(); strings.Contains(got, `"poweroff"`) {
		t.Errorf("logind has scheduled %s, want nothing", got)
	}
	m.Run(scheduleIn(30*time.Second, "poweroff") + " && shutdown -c && sleep 32")
	stillOpen(t, m, "it was cancelled, and its time is over")
}

// TestAShutdownIsCancelledTooLate cancels a shutdown while it is delayed. systemd 252 reports
// success, but shuts down nevertheless (systemd#34554). systemd 257 cancels it, but sends no
// signal: the remaining pods run until the next shutdown.
func TestAShutdownIsCancelledTooLate(t *testing.T) {
	onBothDebians(t, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		pods, before := workload(), m.BootID()
		tooLate := func() error {
			m.Run(scheduleIn(time.Second, "reboot"))
			m.Eventually("hostler drains, or has drained", func() bool { return m.Status().Shutdown.Current != nil })
			m.Run("shutdown -c")
			return nil
		}
		if o.Release == machine.Debian12 {
			m.Deploy(pods...)
			holdAnotherLock(t, m) // otherwise the machine may be down before it is cancelled
			m.AwaitDown("`shutdown -c`", func() error {
				err := tooLate()
				m.Run("systemctl stop late")
				return err
			})
			checkWorkload(t, readBack(t, m, before), pods, journal.TriggerShutdown)
			return
		}
		for i := range pods {
			if pods[i].Name == "stubborn" { // db's turn must not come before the shutdown is cancelled
				pods[i].Grace = regularPeriod
			}
		}
		m.Deploy(pods...)
		if err := tooLate(); err != nil {
			t.Fatal(err)
		}
		m.AwaitArmed()
		if n := hostlersLocks(m); n != 1 {
			t.Errorf("hostler holds %d locks after the shutdown was cancelled, want 1", n)
		}
		if work := m.Work().Boot(before); len(work.Pod("db")) != 1 || !work.Pod("db")[0].Term().IsZero() {
			t.Errorf("db was sent the stop signal although the shutdown was cancelled before its turn:\n%s", work)
		}
		m.AwaitDown("a reboot", func() error {
			m.Run("systemctl reboot")
			m.Eventually("stubborn is sent the stop signal", func() bool {
				current := m.Status().Shutdown.Current
				return current != nil && len(closed{last: *current}.pod("stubborn").Late) > 0
			})
			m.Run(kill("stubborn"))
			return nil
		})
		if c := readBack(t, m, before); !c.work.Ended("db") || c.last.Trigger != journal.TriggerShutdown || !c.last.Graceful || c.pod("db").Outcome != journal.Stopped || c.pod("stubborn").Outcome != journal.Killed {
			t.Errorf("LastShutdown() after one that was cancelled = %+v, want it announced, and the record finished:\n%s", c.last, c.work)
		}
	})
}

// stillOpen checks that no shutdown has started: hostler is Armed with one lock, and no workload
// has got a signal.
func stillOpen(t *testing.T, m *machine.Machine, when string) {
	t.Helper()
	if s := m.Status().Shutdown; s.State != shutdown.Armed || s.Current != nil {
		t.Errorf("hostler is %s (%s) when %s, want Armed", s.State, s.Reason, when)
	}
	if n := hostlersLocks(m); n != 1 {
		t.Errorf("hostler holds %d locks when %s, want 1", n, when)
	}
	untouched(t, m, when)
}

// untouched checks that all workloads of this boot run, and never got a signal.
func untouched(t *testing.T, m *machine.Machine, when string) {
	t.Helper()
	work := m.Work().Boot(m.BootID())
	if len(work) == 0 {
		t.Fatalf("no workload runs when %s", when)
	}
	for _, life := range work {
		if len(life.Signals) > 0 || !life.CutOff() {
			t.Errorf("%s/%s was touched when %s:\n%s", life.Pod, life.Container, when, work)
		}
	}
	m.Eventually("all workloads show that they live", func() bool {
		for i, life := range m.Work().Boot(m.BootID()) {
			if !life.LastSeen.After(work[i].LastSeen) {
				return false
			}
		}
		return true
	})
}
