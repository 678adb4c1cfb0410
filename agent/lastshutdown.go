package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/shutdown/journal"
)

// Keys in the agent's own store.
const (
	keyEvents = "events" // that the control plane did not take
	keyTold   = "told"   // the boot whose end was told of
)

// maxKeptEvents is how many of them outlive the agent: the latest, which tell of
// its end.
const maxKeptEvents = 200

// protectedPods are those that a shutdown ended, of which everything stays for a
// day, so that a person may look what they did; and the same by their UIDs, by which
// their logs go. One that runs on is not among them: what dies in it later is its
// own affair.
func (a *Agent) protectedPods() (pods map[gc.PodKey]string, uids map[string]string) {
	pods, uids = map[gc.PodKey]string{}, map[string]string{}
	for _, r := range a.journal.Kept(time.Now(), uptime()) {
		detail := "kept for a day; see `hostler ps --last-shutdown`"
		if !r.CancelledAt.IsZero() {
			detail = "kept for a day; a shutdown that was cancelled stopped it"
		}
		for _, p := range r.Pods {
			if r.PodStatus(p).Phase != corev1.PodRunning {
				pods[gc.PodKey{Runtime: p.Runtime, ID: p.ID}] = detail
				uids[cmp.Or(p.UID, p.ID)] = detail
			}
		}
	}
	return pods, uids
}

// uptime is how long the kernel has run, whatever became of the wall clock.
func uptime() time.Duration {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0 // as good as just booted: what is kept too long does no harm
	}
	return time.Duration(now.Nano())
}

// tellInterval is how often the agent looks whether the journal of before can be
// read by now, and whether the control plane has heard.
const tellInterval = time.Minute

// tellOfLastBoot makes an Event of how the boot before this one ended, once.
func (a *Agent) tellOfLastBoot(ctx context.Context) {
	tick := time.NewTicker(tellInterval)
	defer tick.Stop()
	recorded := false
	for {
		if last := a.journal.LastBoot(); last != nil {
			if !recorded && a.toldOf(last) {
				return
			}
			if !recorded {
				kind, reason, message := verdict(*last)
				a.keeping.Lock()
				a.recorder.Record(controlplane.NodeReference(a.node), kind, reason, message)
				a.telling = last.BootID
				a.keeping.Unlock()
				recorded = true
			}
			flushing, cancel := context.WithTimeout(ctx, tellInterval)
			err := a.recorder.Flush(flushing)
			cancel()
			if err == nil {
				// Lost, it is told once more.
				_ = a.kept.Write(map[string][]byte{keyTold: []byte(last.BootID)}, nil)
				return
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// toldOf tells whether an earlier process of this boot has told of the record.
func (a *Agent) toldOf(last *journal.Record) bool {
	values, err := a.kept.Load()
	return err == nil && string(values[keyTold]) == last.BootID
}

// verdict is an Event of how a boot ended.
func verdict(r journal.Record) (kind, reason, message string) {
	what := "the last shutdown"
	if r.Kind != "" {
		what += " (" + r.Kind + ")"
	}
	if r.Graceful {
		return corev1.EventTypeNormal, "LastShutdownGraceful", what + " was graceful: " + tally(r)
	}
	message = what + " was not graceful: "
	if r.Error != "" {
		message += r.Error + ": "
	}
	return corev1.EventTypeWarning, "LastShutdownNotGraceful", message + tally(r)
}

// tally counts what became of a record's pods.
func tally(r journal.Record) string {
	counts := map[journal.Outcome]int{}
	for _, p := range r.Pods {
		counts[p.Outcome]++
	}
	var parts []string
	for _, c := range []struct {
		outcome journal.Outcome
		text    string
	}{
		{journal.Stopped, "stopped"},
		{journal.Killed, "killed at the end of their grace"},
		{journal.Left, "cut off"},
		{journal.Skipped, "not touched"},
		{"", "not yet stopped"},
	} {
		if n := counts[c.outcome]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c.text))
		}
	}
	switch len(parts) {
	case 0:
		return "no pods seen"
	case 1:
		noun := "pods"
		if len(r.Pods) == 1 {
			noun = "pod"
		}
		n, text, _ := strings.Cut(parts[0], " ")
		return n + " " + noun + " " + text
	}
	return fmt.Sprintf("%d pods: %s", len(r.Pods), strings.Join(parts, ", "))
}

// keepEvents keeps what the control plane has not taken, for the next start.
func (a *Agent) keepEvents() {
	a.keeping.Lock() // what is written last is what was queued last
	defer a.keeping.Unlock()
	events := a.recorder.Queued()
	events = events[max(0, len(events)-maxKeptEvents):]
	if len(events) == 0 {
		_ = a.kept.Write(nil, []string{keyEvents}) // one that is published anew gives way to itself
		return
	}
	value, err := json.Marshal(events)
	if err == nil {
		put := map[string][]byte{keyEvents: value}
		if a.telling != "" { // the next start need not make that Event again
			put[keyTold] = []byte(a.telling)
		}
		err = a.kept.Write(put, nil)
	}
	if err != nil {
		a.log.Warn("events that were not published are lost", "events", len(events), "error", err)
	}
}

// restoreEvents queues what an earlier run could not publish.
func (a *Agent) restoreEvents() {
	values, err := a.kept.Load()
	var events []corev1.Event
	if value, found := values[keyEvents]; err == nil && found {
		err = json.Unmarshal(value, &events)
	}
	if err != nil {
		a.log.Warn("events of an earlier run are lost", "error", err)
		return
	}
	a.recorder.Restore(events)
}
