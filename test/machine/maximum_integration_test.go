//go:build integration

package machine_test

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/machine"
)

// Folders of logind's drop-ins, and the names of some.
const (
	ofAdmin    = "/etc/systemd/logind.conf.d/"
	ofRuntime  = "/run/systemd/logind.conf.d/"
	ofPackages = "/usr/lib/systemd/logind.conf.d/"

	upgrades = "unattended-upgrades-logind-maxdelay.conf" // sorts before hostler's
	last     = "zzz.conf"                                 // sorts after it
	ours     = "zz-hostler.conf"
)

// TestLogindsMaximum lets other files set logind's longest delay. Either it is enough, or hostler
// reports everywhere which file sets it to what, and works with less.
func TestLogindsMaximum(t *testing.T) {
	onBothDebians(t, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		for _, c := range []struct {
			name   string
			files  map[string]string // content by path; "" is a mask
			create string            // a command, if it is not a plain file
			source string            // the file that sets it, if not hostler's
			grants time.Duration     // the granted delay, if it is not enough
			blames string            // the file that is named as the cause, if not the source
		}{
			{name: "a package sets 30 s", files: map[string]string{ofPackages + upgrades: maximum(30)}},
			{name: "the administrator sets 30 s, in a file that comes before", files: map[string]string{ofAdmin + upgrades: maximum(30)}},
			{name: "somebody sets 30 s until the next boot, in a file that comes before", files: map[string]string{ofRuntime + upgrades: maximum(30)}},
			{name: "the administrator sets more than enough", files: map[string]string{ofAdmin + last: maximum(3600)}, source: ofAdmin + last},
			{name: "the administrator sets 40 s, in a file that comes after", files: map[string]string{ofAdmin + last: maximum(40)}, source: ofAdmin + last, grants: 40 * time.Second},
			{name: "somebody sets 40 s until the next boot, in a file that comes after", files: map[string]string{ofRuntime + last: maximum(40)}, source: ofRuntime + last, grants: 40 * time.Second},
			{name: "a package sets 40 s, in a file that comes after", files: map[string]string{ofPackages + last: maximum(40)}, source: ofPackages + last, grants: 40 * time.Second},
			{name: "masked, with 30 s from a package", files: map[string]string{ofAdmin + ours: "", ofPackages + upgrades: maximum(30)}, source: ofPackages + upgrades, grants: 30 * time.Second, blames: ofAdmin + ours},
			{name: "masked, with nothing else", files: map[string]string{ofAdmin + ours: ""}, grants: 5 * time.Second, blames: ofAdmin + ours},
			{name: "a torn file that comes before, at which logind stops reading", files: map[string]string{ofAdmin + upgrades: "[Login\nInhibitDelayMaxSec=3600\n"}, grants: 5 * time.Second, blames: ofAdmin + upgrades},
			{name: "a folder in place of a file", create: "mkdir " + ofAdmin + last},
			{name: "a link that leads to itself, at which logind stops reading", create: "ln -s " + upgrades + " " + ofAdmin + upgrades, grants: 5 * time.Second, blames: ofAdmin + upgrades},
			{name: "a file that says nothing that can be understood", files: map[string]string{ofAdmin + last: "[Login]\nInhibitDelayMaxSec=soon\n\xff\xfe=\n"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				for path, text := range c.files {
					if text == "" {
						m.Run("mkdir -p " + ofAdmin + " && ln -s /dev/null " + path)
					} else {
						m.Write(path, text)
					}
				}
				if c.create != "" {
					m.Run("mkdir -p " + ofAdmin + " && " + c.create)
				}
				readAgain(m)
				if c.grants == 0 {
					enough(t, m, c.source)
				} else {
					tooLittle(t, m, c.grants, c.source, cmp.Or(c.blames, c.source))
				}
				m.Run("rm -rf " + ofAdmin + " " + ofPackages + " " + ofRuntime + upgrades + " " + ofRuntime + last)
				readAgain(m)
				awaitEnough(t, m, "")
			})
		}
		t.Run("a shutdown with too little", func(t *testing.T) { shortShutdown(t, m) })
	})
}

func maximum(seconds int) string { return fmt.Sprintf("[Login]\nInhibitDelayMaxSec=%d\n", seconds) }

// readAgain makes logind reload its files, as a person does after a change.
func readAgain(m *machine.Machine) {
	if m.Options.Release == machine.Debian12 {
		m.Run("systemctl kill -s HUP systemd-logind")
		return
	}
	m.Run("systemctl reload systemd-logind")
}

// granted returns the delay that logind itself reports.
func granted(t *testing.T, m *machine.Machine) time.Duration {
	t.Helper()
	_, text, _ := strings.Cut(strings.TrimSpace(m.Run("busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec")), " ")
	microseconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("logind's InhibitDelayMaxUSec: %v", err)
	}
	return time.Duration(microseconds) * time.Microsecond
}

const (
	wanted = regularPeriod + criticalPeriod
	needed = wanted + plan.Margin
)

// protected returns the condition ShutdownProtected.
func protected(t *testing.T, s api.Status) corev1.NodeCondition {
	t.Helper()
	for _, c := range s.Node.Status.Conditions {
		if c.Type == status.ShutdownProtected {
			return c
		}
	}
	t.Fatalf("the Node has no condition %s", status.ShutdownProtected)
	return corev1.NodeCondition{}
}

// awaitEnough waits until logind grants what hostler needs, and hostler reports it.
func awaitEnough(t *testing.T, m *machine.Machine, source string) {
	t.Helper()
	if source == "" {
		source = ofRuntime + ours
	}
	m.Eventually("hostler sees that it is granted enough", func() bool {
		s := m.Status() // the agent may report the files before logind has read them
		grants := granted(t, m)
		return s.Shutdown.State == shutdown.Armed && s.Shutdown.InhibitDelayMax.Duration == grants && grants >= needed && s.Shutdown.InhibitDelaySource == source &&
			protected(t, s).Status == corev1.ConditionTrue
	})
}

// enough also checks what hostler reports.
func enough(t *testing.T, m *machine.Machine, source string) {
	t.Helper()
	awaitEnough(t, m, source)
	if p := machine.Ask[api.ShutdownPlan](m, "/v1/shutdown/plan"); phasesTake(p) != wanted {
		t.Errorf("the phases are planned to take %v, want all of %v", phasesTake(p), wanted)
	}
	if d, _ := diagnosis(t, m); !d.Protected {
		t.Errorf("hostler doctor = %+v, want pods protected", d)
	}
}

// tooLittle waits until hostler knows that logind grants only that, and checks that it reports this
// everywhere, with the cause.
func tooLittle(t *testing.T, m *machine.Machine, grants time.Duration, source, blames string) {
	t.Helper()
	var s api.Status
	m.Eventually("hostler sees that it is granted too little", func() bool {
		s = m.Status()
		return s.Shutdown.State == shutdown.Armed && s.Shutdown.InhibitDelayMax.Duration == grants && s.Shutdown.InhibitDelaySource == source &&
			protected(t, s).Status == corev1.ConditionFalse
	})
	if got := granted(t, m); got != grants {
		t.Errorf("logind grants %v, and hostler says %v", got, grants)
	}
	p := machine.Ask[api.ShutdownPlan](m, "/v1/shutdown/plan")
	if got := phasesTake(p); got > grants || got < grants/2 {
		t.Errorf("the phases are planned to take %v, want most of the %v granted", got, grants)
	}
	// Critical pods keep their share as far as possible.
	share := min(criticalPeriod, grants-plan.Reserve(grants)-time.Second)
	if critical := p.Phases[len(p.Phases)-1]; critical.Grace.Duration != share {
		t.Errorf("critical pods are planned to get %v, want %v", critical.Grace, share)
	}
	expectMetric(t, m, fmt.Sprintf("too little from %s", blames), false)
	d, _ := diagnosis(t, m)
	if d.Protected {
		t.Errorf("hostler doctor = %+v, want pods not protected", d)
	}
	var all strings.Builder
	for _, c := range d.Checks {
		fmt.Fprintln(&all, c.Status, c.Message, c.Hint)
	}
	for who, text := range map[string]string{"condition": protected(t, s).Message, "status": s.Shutdown.Reason, "doctor": all.String()} {
		if !strings.Contains(text, blames) || !strings.Contains(text, grants.String()) {
			t.Errorf("the %s does not name %s and the %v that are granted: %s", who, blames, grants, text)
		}
	}
}

// phasesTake returns the duration of all phases of a plan.
func phasesTake(p api.ShutdownPlan) time.Duration {
	var sum time.Duration
	for _, phase := range p.Phases {
		sum += phase.Grace.Duration
	}
	return sum
}

// shortShutdown shuts the machine down in less time than planned: everything happens while logind
// waits. The share of regular pods is longer than a busy host takes to stop them.
func shortShutdown(t *testing.T, m *machine.Machine) {
	const share = 30 * time.Second
	const grants = share + criticalPeriod + plan.Margin
	m.Write(ofAdmin+last, maximum(int(grants.Seconds())))
	readAgain(m)
	m.Eventually("hostler sees that it is granted too little", func() bool { return m.Status().Shutdown.InhibitDelayMax.Duration == grants })
	pods := workload()
	for i := range pods {
		switch pods[i].Name {
		case "stubborn":
			pods[i].Grace = regularPeriod
		case "db":
			pods[i].Grace = criticalPeriod
			pods[i].Containers = []machine.ContainerSpec{{Name: "main", EndsSlowly: 8 * time.Second}}
		}
	}
	m.Deploy(pods...)
	before := m.BootID()
	m.GoesDown("systemctl reboot")
	c := readBack(t, m, before)
	c.logFindings(t, fmt.Sprintf("systemctl reboot, %v granted", grants))
	if took := c.last.FinishedAt.Sub(c.last.StartedAt); !c.last.Graceful || c.last.Trigger != journal.TriggerShutdown || took > grants {
		t.Errorf("LastShutdown() = %+v, want a graceful one within %v", c.last, grants)
	}
	stubborn := c.pod("stubborn")
	if stubborn.Outcome != journal.Killed || stubborn.Grace.Duration <= 0 || stubborn.Grace.Duration >= regularPeriod {
		t.Errorf("LastShutdown() reports stubborn: %+v, want it killed, after some time and less than %v", stubborn, regularPeriod)
	}
	// The runtime decides how long it takes to kill stubborn, and the host how long it takes to stop
	// it: db's turn comes when the regular phase is over.
	turn := c.pod("db").StartedAt
	if after := turn.Sub(c.last.StartedAt); after < share*9/10 {
		t.Errorf("db was sent the stop signal %v after the shutdown began, want after the %v that are left to the regular phase", after, share)
	}
	if after := turn.Sub(stubborn.StartedAt); after < stubborn.Grace.Duration*9/10 {
		t.Errorf("db was sent the stop signal %v after stubborn, want after the %v that it was given", after, stubborn.Grace)
	}
	if !c.work.Ended("db") || !c.work.TermBefore("stubborn", "db") || !c.work.GoneBefore("web", "db") {
		t.Errorf("Work() = want db to be asked last, and to have its share:\n%s", c.work)
	}
	logindWaited(t, m)
}

// TestLogindsOwnMaximum shuts the machine down in the five seconds that logind grants by default,
// because hostler's drop-in is masked. An emulated processor has hardly started by then, so this
// runs in containers, even in `make test-machine`.
func TestLogindsOwnMaximum(t *testing.T) {
	t.Parallel()
	for _, release := range machine.Releases() {
		t.Run("debian"+string(release)+"-"+string(machine.Container), func(t *testing.T) {
			t.Parallel()
			m := machine.Boot(t, machine.Options{Release: release, Bed: machine.Container, Config: workloadConfig()})
			m.Run("mkdir -p " + ofAdmin + " && ln -s /dev/null " + ofAdmin + ours)
			readAgain(m)
			tooLittle(t, m, logindsOwn, "", ofAdmin+ours)
			if output := m.Hostler("status"); !strings.Contains(output, ofAdmin+ours) {
				t.Errorf("hostler status does not name %s:\n%s", ofAdmin+ours, output)
			}
			// A busy machine may need more than the five seconds: one boot in time is enough, and several
			// without it, although the signals arrived at once, are a fault of hostler.
			for tries, misses := 0, 0; tries < 5 && misses < 3; tries++ {
				faults, prompt := shortestShutdown(t, m)
				if len(faults) == 0 {
					return
				}
				t.Logf("the stop signals arrived at once: %t\n%s", prompt, strings.Join(faults, "\n"))
				if prompt {
					misses++
				}
				if misses == 3 {
					t.Error("three shutdowns in which the stop signals arrived at once were not as planned")
				}
			}
		})
	}
}

const logindsOwn = 5 * time.Second

// shortestShutdown has one second for regular pods, and the rest for critical ones. It returns what
// was not as planned, which may be the fault of a slow machine, and whether each stop signal that
// hostler sent arrived at once.
func shortestShutdown(t *testing.T, m *machine.Machine) (faults []string, prompt bool) {
	t.Helper()
	const regular = time.Second
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	m.Deploy(
		machine.Pod{Name: "web"},
		machine.Pod{Name: "stubborn", Grace: regularPeriod, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}},
		// Longer than its half of the periods.
		machine.Pod{Name: "db", Critical: true, Grace: criticalPeriod, Containers: []machine.ContainerSpec{{Name: "main", EndsSlowly: 2 * time.Second}}},
	)
	before := m.BootID()
	m.GoesDown("systemctl reboot")
	c := readBack(t, m, before)
	c.logFindings(t, "systemctl reboot, 5 s granted")
	short := journal.Shortened{
		Granted: metav1.Duration{Duration: logindsOwn}, Wanted: metav1.Duration{Duration: wanted}, Had: metav1.Duration{Duration: logindsOwn - plan.Reserve(logindsOwn)},
	}
	if c.last.Shortened == nil || *c.last.Shortened != short || c.last.Trigger != journal.TriggerShutdown {
		fault("LastShutdown() = %+v, want one of which it says that %v", c.last, &short)
	}
	if !c.last.Graceful {
		fault("LastShutdown() = %+v, want a graceful one", c.last)
	}
	prompt = true
	for name, want := range map[string]journal.Outcome{"web": journal.Stopped, "stubborn": journal.Killed, "db": journal.Stopped} {
		if got := c.pod(name); got.Outcome != want {
			fault("LastShutdown() reports %s: %+v, want it %s", name, got, want)
		}
		life := c.work.Pod(name)[0]
		if sent := c.pod(name).StartedAt; !sent.IsZero() && (life.Term().IsZero() || life.Term().Sub(sent) >= time.Second/4) {
			prompt = false
		}
	}
	if grace := c.pod("stubborn").Grace.Duration; grace > regular {
		t.Errorf("stubborn was given %v, want no more than the %v that regular pods have", grace, regular)
	} else if grace <= 0 {
		fault("stubborn was given no time")
	}
	if grace := c.pod("db").Grace.Duration; grace > short.Had.Duration {
		t.Errorf("db was given %v, want no more than the %v that there were", grace, short.Had)
	} else if grace <= regular {
		fault("db was given %v, want most of the %v that there were", grace, short.Had)
	}
	if !c.work.Ended("db") || !c.work.TermBefore("stubborn", "db") || !c.work.GoneBefore("web", "db") {
		fault("Work() = want db to be asked last, and to have its share:\n%s", c.work)
	}
	if log := m.Journal(-1, "-u systemd-logind"); strings.Contains(log, "inhibitor timeout") {
		fault("logind gave up waiting:\n%s", log)
	}
	return faults, prompt
}
