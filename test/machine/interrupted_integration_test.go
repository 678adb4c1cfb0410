//go:build integration

package machine_test

import (
	"context"
	"testing"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/machine"
)

const (
	killAgent     = "kill -9 $(systemctl show -P MainPID hostler)"
	restartAgent  = "systemctl restart hostler"
	killLogind    = "kill -9 $(systemctl show -P MainPID systemd-logind)"
	restartLogind = "systemctl restart systemd-logind"
	restartBus    = "systemctl restart dbus"
)

// TestInterruptionsOfTheAgent kills or restarts the agent during and after shutdowns.
func TestInterruptionsOfTheAgent(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		in := newInterrupted(t, o)
		in.agentDuringADrain("killed", killAgent)
		in.agentDuringADrain("restarted", restartAgent)
		in.agentAfterTheRelease("restartedlate", restartAgent)
		in.agentAfterTheRelease("killedlate", killAgent)
	})
}

// TestInterruptionsOfLogind kills or restarts the agent, logind and the bus before shutdowns, and
// logind and the bus during and after them.
func TestInterruptionsOfLogind(t *testing.T) {
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		in := newInterrupted(t, o)
		in.beforeAShutdown()
		in.logindDuringADrain("forgotten", restartLogind)
		in.logindDuringADrain("crashed", killLogind)
		in.busDuringADrain()
		in.logindAfterTheRelease()
	})
}

func newInterrupted(t *testing.T, o machine.Options) interrupted {
	o.Config = workloadConfig()
	return interrupted{t, machine.Boot(t, o), actsWithin(o.Bed)}
}

type interrupted struct {
	*testing.T
	m *machine.Machine

	grace time.Duration // of a stubborn pod that is waited for at an interruption
}

// beforeAShutdown checks that there is one lock after each interruption.
func (in interrupted) beforeAShutdown() {
	expectOneLock(in.T, in.m, "after boot")
	before := len(descriptors(in.m))
	for _, how := range []string{killLogind, restartLogind, restartBus, killAgent, restartAgent, restartLogind} {
		in.m.Run("systemctl reset-failed; " + how)
		if how == restartBus && in.logindLosesTheBus() {
			expectFixable(in.T, in.m, ailment{
				name:   "the bus was restarted, and logind runs on without it",
				reason: status.ReasonNoLogind, check: "logind", verdict: doctor.Fail, message: "systemd-logind", fix: restartLogind,
			})
		}
		in.awaitBack(how)
		expectOneLock(in.T, in.m, "after `"+how+"`")
	}
	if after := len(descriptors(in.m)); after > before+2 { // connections to the restarted program may still be open
		in.Errorf("the agent had %d descriptors, and has %d after all the restarts", before, after)
	}
}

// logindLosesTheBus reports whether logind stays disconnected after a restart of the bus, until it
// is restarted: systemd 257's does, while 252's ends and is restarted.
func (in interrupted) logindLosesTheBus() bool { return in.m.Options.Release == machine.Debian13 }

// awaitBack waits until logind answers and hostler is Armed again.
func (in interrupted) awaitBack(after string) {
	in.Helper()
	in.m.Eventually("logind answers after `"+after+"`", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), machine.Patience)
		defer cancel()
		r, err := in.m.Try(ctx, "busctl --auto-start=no --timeout=2 status org.freedesktop.login1")
		return err == nil && r.Code == 0
	})
	in.m.AwaitArmed()
}

// deploy runs a pod that ends at once, one that never ends, and a critical one. Their names begin
// with prefix.
func (in interrupted) deploy(prefix string, grace time.Duration) {
	in.m.Deploy(
		machine.Pod{Name: prefix + "-quick"},
		machine.Pod{Name: prefix + "-stubborn", Grace: grace, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}},
		machine.Pod{Name: prefix + "-db", Critical: true},
	)
}

// reboot requests a reboot and waits until hostler waits for the stubborn pod, whose record it
// returns.
func (in interrupted) reboot(prefix string) journal.PodRecord {
	in.m.Run("systemctl reboot")
	return awaitAsked(in.T, in.m, prefix+"-stubborn")
}

// expectShutdown checks that the shutdown of a boot was as without an interruption: each pod was
// sent the stop signal once, in order, and the stubborn one was killed after its grace period. It
// returns the record of that pod.
func (in interrupted) expectShutdown(boot, prefix string, grace time.Duration) journal.PodRecord {
	in.Helper()
	work := in.m.Work().Boot(boot)
	for _, pod := range []string{"-quick", "-stubborn", "-db"} {
		expectTerms(in.T, work, prefix+pod, 1)
	}
	if !work.Ended(prefix+"-quick") || work.Ended(prefix+"-stubborn") || !work.Ended(prefix+"-db") || !work.GoneBefore(prefix+"-stubborn", prefix+"-db") {
		in.Errorf("Work() = want %[1]s-quick to end, %[1]s-stubborn to be killed, then %[1]s-db to end:\n%[2]s", prefix, work)
	}
	last := expectRecord(in.T, in.m, boot, map[string]journal.Outcome{
		prefix + "-quick": journal.Stopped, prefix + "-stubborn": journal.Killed, prefix + "-db": journal.Stopped,
	})
	stubborn := closed{last: *last}.pod(prefix + "-stubborn")
	if took(stubborn) < grace {
		in.Errorf("LastShutdown() reports %+v, want it killed after all of its %v", stubborn, grace)
	}
	return stubborn
}

// agentDuringADrain checks that the drain continues: the time of the stubborn pod does not start
// again.
func (in interrupted) agentDuringADrain(prefix, how string) {
	in.deploy(prefix, in.grace)
	var before journal.PodRecord
	boot := in.m.BootID()
	in.m.AwaitDown("a reboot with `"+how+"`", func() error {
		before = in.reboot(prefix)
		in.m.Run(how)
		if locks := inhibitors(in.T, in.m); len(locks) != 1 || locks[0].Who != "hostler" {
			in.Errorf("after `%s` during a drain logind lists %+v, want hostler's lock in the service manager's keeping", how, locks)
		}
		return nil
	})
	if after := in.expectShutdown(boot, prefix, in.grace); !after.StartedAt.Equal(before.StartedAt) {
		in.Errorf("LastShutdown() reports %+v, want it to have begun at %v, before `%s`", after, before.StartedAt, how)
	}
}

// agentAfterTheRelease lets another lock delay the shutdown: the agent that starts meanwhile has
// nothing to do any more.
func (in interrupted) agentAfterTheRelease(prefix, how string) {
	in.deploy(prefix, stubbornGrace)
	boot := in.m.BootID()
	holdAnotherLock(in.T, in.m)
	in.m.AwaitDown("a reboot with `"+how+"` after the release", func() error {
		in.m.Run("systemctl reboot")
		awaitState(in.T, in.m, shutdown.Released)
		in.m.Run(how)
		awaitState(in.T, in.m, shutdown.Released)
		if locks := inhibitors(in.T, in.m); len(locks) != 1 || locks[0].Who != "late" {
			in.Errorf("after the release and `%s` logind lists %+v, want the other lock alone", how, locks)
		}
		in.m.Run("systemctl stop late")
		return nil
	})
	in.expectShutdown(boot, prefix, stubbornGrace)
}

// holdAnotherLock takes another lock that delays shutdowns, until the unit late is stopped. logind
// waits for it as long as for hostler's.
func holdAnotherLock(t *testing.T, m *machine.Machine) {
	t.Helper()
	m.Run("systemd-run -q --unit=late systemd-inhibit --what=shutdown --mode=delay --who=late --why=slower sleep infinity")
	m.Eventually("the other lock is held", func() bool { return len(inhibitors(t, m)) == 2 })
}

// logindDuringADrain restarts or kills logind. The new logind does not know the shutdown, so it
// counts as cancelled. The next shutdown works as usual.
func (in interrupted) logindDuringADrain(prefix, how string) {
	in.deploy(prefix, in.grace)
	in.reboot(prefix)
	in.m.Run("systemctl reset-failed; " + how)
	in.expectCancelled(prefix, "`"+how+"`")
	in.rebootAfterAll(prefix)
}

// busDuringADrain does the same to the bus, if logind ends with it. Otherwise logind can neither
// continue the shutdown nor report it: the drain continues, and the next logind does not know the
// shutdown.
func (in interrupted) busDuringADrain() {
	in.deploy("busless", in.grace)
	in.reboot("busless")
	in.m.Run(restartBus)
	if !in.logindLosesTheBus() {
		in.expectCancelled("busless", "`"+restartBus+"`")
		in.rebootAfterAll("busless")
		return
	}
	boot := in.m.BootID()
	awaitState(in.T, in.m, shutdown.Released)
	in.m.Run(restartLogind)
	in.awaitBack(restartLogind)
	expectOneLock(in.T, in.m, "after a release that logind did not report")
	in.deploy("after", stubbornGrace)
	in.m.GoesDown("systemctl reboot")
	work := in.m.Work().Boot(boot)
	for _, pod := range []string{"busless-quick", "busless-stubborn", "busless-db", "after-quick", "after-stubborn", "after-db"} {
		expectTerms(in.T, work, pod, 1)
	}
	expectRecord(in.T, in.m, boot, map[string]journal.Outcome{
		"after-quick": journal.Stopped, "after-stubborn": journal.Killed, "after-db": journal.Stopped,
	})
}

// logindAfterTheRelease lets logind forget a shutdown that another lock still delays, by itself or
// with the bus. The host continues to run without its pods, and is guarded again. The record is
// that of a complete shutdown.
func (in interrupted) logindAfterTheRelease() {
	boot := in.m.BootID()
	holdAnotherLock(in.T, in.m)
	for _, after := range []struct{ prefix, how string }{{"restartedafter", restartLogind}, {"killedafter", killLogind}, {"buslessafter", restartBus}} {
		in.deploy(after.prefix, stubbornGrace)
		in.m.Run("systemctl reboot")
		awaitState(in.T, in.m, shutdown.Released)
		in.m.Run("systemctl reset-failed; " + after.how)
		if after.how == restartBus && in.logindLosesTheBus() {
			awaitState(in.T, in.m, shutdown.Released) // nobody reports otherwise
			in.m.Run(restartLogind)
		}
		in.awaitBack(after.how)
		when := "after the release and `" + after.how + "`"
		expectOneLock(in.T, in.m, when)
		awaitReady(in.T, in.m, when)
		in.expectShutdown(boot, after.prefix, stubbornGrace)
	}
	in.m.Run("systemctl stop late") // no shutdown waits for it any more
	in.deploy("lastly", stubbornGrace)
	in.m.GoesDown("systemctl reboot")
	in.expectShutdown(boot, "lastly", stubbornGrace)
}

// expectCancelled waits until the guard is Armed again, and checks that the pods that were not
// stopped run longer than they would have had.
func (in interrupted) expectCancelled(prefix, why string) {
	in.Helper()
	awaitState(in.T, in.m, shutdown.Armed)
	expectOneLock(in.T, in.m, "after "+why)
	awaitReady(in.T, in.m, "after "+why)
	in.m.Eventually("the pods run on after "+why, func() bool {
		stubborn, db := in.m.Work().Pod(prefix + "-stubborn")[0], in.m.Work().Pod(prefix + "-db")[0]
		longer := in.grace + plan.Margin
		return stubborn.LastSeen.Sub(stubborn.Term()) > longer && db.LastSeen.Sub(stubborn.Term()) > longer
	})
	expectTerms(in.T, in.m.Work(), prefix+"-db", 0)
}

// rebootAfterAll reboots after a cancellation.
func (in interrupted) rebootAfterAll(prefix string) {
	in.Helper()
	boot := in.m.BootID()
	in.m.GoesDown("systemctl reboot")
	work := in.m.Work().Boot(boot)
	expectTerms(in.T, work, prefix+"-quick", 1)
	expectTerms(in.T, work, prefix+"-stubborn", 1) // containerd sends the stop signal once in a container's life, and then waits and kills
	expectTerms(in.T, work, prefix+"-db", 1)
	expectRecord(in.T, in.m, boot, map[string]journal.Outcome{prefix + "-stubborn": journal.Killed, prefix + "-db": journal.Stopped})
}
