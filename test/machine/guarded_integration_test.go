//go:build integration

package machine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
)

// actsWithin is longer than a busy host takes to act on a pod that was sent the stop signal.
func actsWithin(bed machine.Bed) time.Duration {
	if bed == machine.VM {
		return time.Minute
	}
	return 30 * time.Second
}

// lingering returns a pod that a test acts on between its stop signal and its end.
func lingering(name string, bed machine.Bed) machine.Pod {
	return machine.Pod{Name: name, Grace: regularPeriod, Containers: []machine.ContainerSpec{{Name: "main", EndsSlowly: actsWithin(bed)}}}
}

// inhibitor is a lock in logind's list.
type inhibitor struct{ What, Who, Why, Mode string }

// inhibitors returns the locks of logind.
func inhibitors(t *testing.T, m *machine.Machine) []inhibitor {
	t.Helper()
	var answer struct {
		Data [][][]any `json:"data"`
	}
	var out string
	m.Eventually("logind lists its locks", func() bool { // one that was just killed may still be on the bus
		ctx, cancel := context.WithTimeout(context.Background(), machine.Patience)
		defer cancel()
		r, err := m.Try(ctx, "busctl --json=short call org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager ListInhibitors")
		out = r.Stdout
		return err == nil && r.Code == 0
	})
	if err := json.Unmarshal([]byte(out), &answer); err != nil || len(answer.Data) != 1 {
		t.Fatalf("ListInhibitors = %v:\n%s", err, out)
	}
	var found []inhibitor
	for _, lock := range answer.Data[0] {
		text := func(i int) string { return fmt.Sprint(lock[i]) }
		found = append(found, inhibitor{What: text(0), Who: text(1), Why: text(2), Mode: text(3)})
	}
	return found
}

// descriptors returns the targets of the agent's open descriptors. One may be closed between the
// listing and the read.
func descriptors(m *machine.Machine) []string {
	return strings.Fields(m.Run("readlink /proc/$(systemctl show -P MainPID hostler)/fd/* || true"))
}

// expectOneLock checks every place where a lock could be: logind lists one of hostler, the agent
// has one descriptor of it, and the service manager stores one more.
func expectOneLock(t *testing.T, m *machine.Machine, when string) {
	t.Helper()
	ours := 0
	locks := inhibitors(t, m)
	for _, l := range locks {
		if l.Who == "hostler" {
			ours++
		}
	}
	open := 0
	for _, d := range descriptors(m) {
		if strings.HasSuffix(d, ".ref") {
			open++
		}
	}
	kept := strings.TrimSpace(m.Run("systemctl show -P NFileDescriptorStore hostler"))
	if ours != 1 || open != 1 || kept != "1" {
		t.Errorf("%s: logind lists %+v, the agent has %d descriptors of locks, the service manager keeps %s; want one of hostler's in each", when, locks, open, kept)
	}
}

// awaitState waits until the guard is in a state, and returns the status.
func awaitState(t *testing.T, m *machine.Machine, want shutdown.State) api.Status {
	t.Helper()
	var s api.Status
	m.Eventually(fmt.Sprintf("hostler is %s", want), func() bool {
		var err error
		s, err = m.TryStatus()
		return err == nil && s.Shutdown.State == want
	})
	return s
}

// ready reports whether the Node is Ready.
func ready(s api.Status) bool {
	return s.Node != nil && slices.ContainsFunc(s.Node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// awaitReady waits until the Node is Ready.
func awaitReady(t *testing.T, m *machine.Machine, when string) {
	t.Helper()
	m.Eventually("the Node is Ready "+when, func() bool {
		s, err := m.TryStatus()
		return err == nil && ready(s)
	})
}

// awaitAsked waits until hostler has written down that the runtime was asked to stop a pod, and
// returns its record.
func awaitAsked(t *testing.T, m *machine.Machine, pod string) (p journal.PodRecord) {
	t.Helper()
	m.Eventually(pod+" is sent the stop signal, and hostler has written it down", func() bool {
		lives := m.Work().Boot(m.BootID()).Pod(pod)
		if len(lives) == 0 || lives[0].Term().IsZero() {
			return false
		}
		p = writtenOf(t, m, pod)
		return len(p.Asked)+len(p.Late) > 0
	})
	return p
}

// doctorSays returns the text of hostler doctor without line breaks. If a program has not answered in
// time, it runs doctor again.
func doctorSays(m *machine.Machine, flags ...string) (text string) {
	m.Eventually("all answer hostler doctor in time", func() bool {
		text = flat(m.Run("hostler doctor " + strings.Join(flags, " ") + " || true"))
		return inTime(text)
	})
	return text
}

// inTime reports whether a text of hostler doctor does not say that something has not answered in
// time, as may happen on a busy machine.
func inTime(text string) bool {
	return !strings.Contains(text, context.DeadlineExceeded.Error()) && !strings.Contains(text, "is the host busy?")
}

// terms returns the number of SIGTERMs of a life.
func terms(l machine.Life) int {
	n := 0
	for _, s := range l.Signals {
		if s.Signal == "SIGTERM" {
			n++
		}
	}
	return n
}

// expectTerms checks that every container of a pod got that many SIGTERMs.
func expectTerms(t *testing.T, work machine.Work, pod string, want int) {
	t.Helper()
	lives := work.Pod(pod)
	if len(lives) == 0 {
		t.Errorf("Work() knows no pod %s:\n%s", pod, work)
	}
	for _, l := range lives {
		if n := terms(l); n != want {
			t.Errorf("%s/%s got SIGTERM %d times, want %d:\n%s", l.Pod, l.Container, n, want, work)
		}
	}
}

// expectOrder checks that a pod and a critical one ended by themselves and in order in a boot, and
// returns their records.
func expectOrder(t *testing.T, m *machine.Machine, boot, web, db string) machine.Work {
	t.Helper()
	work := m.Work().Boot(boot)
	expectTerms(t, work, web, 1)
	expectTerms(t, work, db, 1)
	if !work.GoneBefore(web, db) || !work.Ended(web) || !work.Ended(db) {
		t.Errorf("Work() = want %s, then %s to end:\n%s", web, db, work)
	}
	return work
}

// expectRecord checks that the last shutdown was that of a boot, was graceful, and had these
// outcomes; other pods are not checked.
func expectRecord(t *testing.T, m *machine.Machine, boot string, want map[string]journal.Outcome) *journal.Record {
	t.Helper()
	last := m.LastShutdown()
	if last == nil || !last.Graceful || last.Trigger != journal.TriggerShutdown || !strings.HasPrefix(last.BootID, boot) || last.FinishedAt.IsZero() || !last.CancelledAt.IsZero() {
		t.Fatalf("LastShutdown() = %+v, want a graceful one that was announced, in boot %s", last, boot)
	}
	got := map[string]journal.Outcome{}
	for _, p := range last.Pods {
		if _, twice := got[p.Name]; twice {
			t.Errorf("LastShutdown() has pod %s twice: %+v", p.Name, last.Pods)
		}
		got[p.Name] = p.Outcome
	}
	for name, outcome := range want {
		if got[name] != outcome {
			t.Errorf("LastShutdown() says of pod %s %q, want %q: %+v", name, got[name], outcome, last.Pods)
		}
	}
	return last
}
