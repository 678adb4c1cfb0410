//go:build integration

package machine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/test/machine"
)

// TestCancellations cancels shutdowns at every moment, repeatedly.
func TestCancellations(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		rounds := 12
		if o.Bed == machine.Container && runsAll() {
			rounds = 50
		}
		o.Config = workloadConfig()
		c := &cancelled{T: t, waits: actsWithin(o.Bed)} // to mask a target
		o.Files = map[string]string{"usr/lib/systemd/logind.conf.d/00-slow.conf": maximum(int(c.waits.Seconds()))}
		c.m = machine.Boot(t, o)
		holdAnotherLock(t, c.m) // a shutdown that is cancelled too late does not happen, either
		ways := []func(){c.whileScheduled, c.atOnce, c.inThePhase, c.betweenPhases, c.inTheLastPhase, c.afterTheRelease}
		for round := range rounds {
			ways[round%len(ways)]()
			c.expectUnharmed(fmt.Sprintf("round %d", round))
			c.expectNoLeak(fmt.Sprintf("round %d", round))
			if t.Failed() {
				t.FailNow()
			}
		}
		c.outOfTime()
		c.m.Run("systemctl stop late")

		boot := c.m.BootID()
		c.refill()
		c.m.GoesDown("systemctl reboot")
		expectRecord(t, c.m, boot, map[string]journal.Outcome{c.web: journal.Stopped, c.db: journal.Stopped})
	})
}

// cancelled is a machine with a running pod and a critical one. Each later round has other pods.
type cancelled struct {
	*testing.T
	m *machine.Machine

	waits   time.Duration // how long logind waits if hostler requests no more
	before  int           // descriptors of the agent after the first round, which announces nothing
	web, db string
	pods    int
}

// refill runs a pod and a critical one if the previous ones were stopped.
func (c *cancelled) refill() {
	c.Helper()
	work := c.work()
	var pods []machine.Pod
	for _, p := range []*string{&c.web, &c.db} {
		if *p != "" && c.life(work, *p).Term().IsZero() {
			continue
		}
		c.pods++
		pod := machine.Pod{Name: fmt.Sprintf("web%d", c.pods), Containers: []machine.ContainerSpec{{Name: "main", EndsSlowly: time.Second}}}
		if p == &c.db {
			pod.Name, pod.Critical = fmt.Sprintf("db%d", c.pods), true
		}
		*p = pod.Name
		pods = append(pods, pod)
	}
	if len(pods) > 0 {
		c.m.Deploy(pods...)
	}
}

func (c *cancelled) work() machine.Work {
	c.Helper()
	if c.web == "" {
		return nil
	}
	return c.m.Work()
}

func (c *cancelled) life(work machine.Work, pod string) machine.Life {
	c.Helper()
	lives := work.Pod(pod)
	if len(lives) != 1 {
		c.Fatalf("Work() knows %d lives of %s, want one:\n%s", len(lives), pod, work)
	}
	return lives[0]
}

// await waits until when returns a time for a pod.
func (c *cancelled) await(what, pod string, when func(machine.Life) time.Time) {
	c.Helper()
	c.m.Eventually(pod+" "+what, func() bool { return !when(c.life(c.work(), pod)).IsZero() })
}

// forget restarts logind, which then knows no shutdown.
func (c *cancelled) forget() {
	c.m.Run("systemctl reset-failed systemd-logind; " + restartLogind)
}

// whileScheduled cancels before the announcement.
func (c *cancelled) whileScheduled() {
	c.refill()
	c.m.Run("shutdown -r +60 && shutdown -c")
	c.expectTerms(0, 0)
}

func (c *cancelled) atOnce() {
	c.refill()
	c.m.Run("systemctl reset-failed systemd-logind; systemctl reboot; " + restartLogind)
}

// inThePhase cancels while the regular phase still waits, so that the critical pod's turn never
// comes.
func (c *cancelled) inThePhase() {
	c.refill()
	c.pods++
	slow := fmt.Sprintf("slow%d", c.pods)
	c.m.Deploy(machine.Pod{Name: slow, Grace: regularPeriod, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}})
	c.m.Run("systemctl reboot")
	c.await("is sent the stop signal", c.web, machine.Life.Term)
	c.forget()
	awaitState(c.T, c.m, shutdown.Armed)
	c.expectTerms(1, 0)
	c.m.Run(kill(slow)) // the next shutdown would wait for it
}

func (c *cancelled) betweenPhases() {
	c.refill()
	c.m.Run("systemctl reboot")
	c.await("ends", c.web, func(l machine.Life) time.Time { return l.Ended })
	c.forget()
	// Whether db's turn has come by then cannot be predicted: hostler's record shows it.
	s := awaitState(c.T, c.m, shutdown.Armed).Shutdown
	asked := c.asked(s, c.db) // the runtime may have been asked, and not have sent the signal
	if !asked && !c.asked(s, c.web) {
		c.Errorf("Status().Shutdown = %+v, want a shutdown that has stopped %s", s, c.web)
	}
	work := c.work()
	expectTerms(c.T, work, c.web, 1)
	if n := terms(c.life(work, c.db)); n > 1 || n == 1 && !asked {
		c.Errorf("%s was sent the stop signal %d times, and asked is %t", c.db, n, asked)
	}
}

// asked reports whether a shutdown that was cancelled, even after its end, has sent a pod the stop
// signal, according to hostler.
func (c *cancelled) asked(s shutdown.Status, pod string) bool {
	for _, r := range []*journal.Record{s.Cancelled, s.Last} {
		if r != nil && !(closed{last: *r}).pod(pod).StartedAt.IsZero() {
			return true
		}
	}
	return false
}

func (c *cancelled) inTheLastPhase() {
	c.refill()
	c.m.Run("systemctl reboot")
	c.await("is sent the stop signal", c.db, machine.Life.Term)
	c.forget()
	awaitState(c.T, c.m, shutdown.Armed)
	c.expectTerms(1, 1)
}

// afterTheRelease lets logind start a target that cannot be started. logind then reports that the
// machine does not shut down. If the target is masked earlier, logind does not even announce the
// shutdown.
func (c *cancelled) afterTheRelease() {
	c.refill()
	c.m.Run("systemctl reboot && systemctl mask --runtime --quiet reboot.target")
	c.await("ends", c.db, func(l machine.Life) time.Time { return l.Ended })
	c.m.Run("systemctl stop late")
	awaitState(c.T, c.m, shutdown.Armed)
	c.m.Run("systemctl unmask --runtime --quiet reboot.target")
	holdAnotherLock(c.T, c.m)
	c.expectTerms(1, 1)
}

// outOfTime lets logind's delay expire in the middle of a phase. logind continues, fails and
// reports it. Its delay is reduced while the agent is stopped.
func (c *cancelled) outOfTime() {
	grace := 2 * c.waits
	c.m.Deploy(machine.Pod{Name: "stubborn", Grace: grace, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}})
	c.refill()
	c.m.Run(fmt.Sprintf(`agent=$(systemctl show -P MainPID hostler)
		kill -STOP $agent
		rm /run/systemd/logind.conf.d/zz-hostler.conf && systemctl kill -s HUP systemd-logind
		until busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec | grep -qx 't %d'; do sleep 0.1; done
		systemctl reboot && systemctl mask --runtime --quiet reboot.target
		kill -CONT $agent`, c.waits.Microseconds()))
	c.await("is sent the stop signal", "stubborn", machine.Life.Term)
	s := awaitState(c.T, c.m, shutdown.Armed)
	c.m.Run("systemctl unmask --runtime --quiet reboot.target")
	c.m.Eventually("stubborn lives longer than it would have", func() bool {
		l := c.life(c.work(), "stubborn")
		return l.LastSeen.Sub(l.Term()) > grace+plan.Margin
	})
	c.expectTerms(1, 0)
	if got := s.Shutdown.InhibitDelayMax.Duration; got < needed {
		c.Errorf("logind grants %v, want it raised to %v again", got, needed)
	}
	c.expectUnharmed("after logind ran out of time")
	c.expectNoLeak("after logind ran out of time")
	if output := c.m.Run("hostler ps --last-shutdown"); !strings.Contains(output, ", cancelled, ") || !strings.Contains(output, " "+c.web+" ") {
		c.Errorf("hostler ps --last-shutdown = %s, want also the one that was cancelled, and that it stopped %s", output, c.web)
	}
}

// expectTerms checks how often the pod and the critical one were sent the stop signal.
func (c *cancelled) expectTerms(web, db int) {
	c.Helper()
	work := c.work()
	for pod, want := range map[string]int{c.web: web, c.db: db} {
		expectTerms(c.T, work, pod, want)
	}
}

// expectUnharmed waits until the guard is Armed, and checks that everything is as without a
// shutdown: one lock, a Ready Node, and running pods that were not sent the stop signal.
func (c *cancelled) expectUnharmed(when string) {
	c.Helper()
	c.m.AwaitArmed()
	s := awaitState(c.T, c.m, shutdown.Armed)
	if s.Shutdown.Current != nil {
		c.Errorf("%s: the status has a shutdown in progress: %+v", when, s.Shutdown.Current)
	}
	expectOneLock(c.T, c.m, when)
	awaitReady(c.T, c.m, when)
	work := c.work()
	for _, pod := range []string{c.web, c.db} {
		l := c.life(work, pod)
		if terms(l) > 1 {
			c.Errorf("%s: %s was sent the stop signal more than once:\n%s", when, pod, work.Pod(pod))
		}
		if l.Term().IsZero() {
			c.m.Eventually(pod+" runs on, "+when, func() bool { return c.life(c.work(), pod).LastSeen.After(l.LastSeen) })
		}
	}
}

// expectNoLeak waits until the agent has no more descriptors than before any shutdown. A connection
// or two may be open for a moment, but none may stay.
func (c *cancelled) expectNoLeak(when string) {
	c.Helper()
	if c.before == 0 {
		for range 20 { // a descriptor may be open again for a moment
			c.before = max(c.before, len(descriptors(c.m)))
		}
	}
	var now []string
	defer func() {
		if len(now) > c.before {
			c.Logf("%s: the agent has %d descriptors, and had %d: %v", when, len(now), c.before, now)
		}
	}()
	c.m.Eventually(when+": the agent has no more descriptors than before any shutdown", func() bool {
		now = descriptors(c.m)
		return len(now) <= c.before
	})
}
