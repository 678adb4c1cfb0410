package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/reboots"
)

// Keys in the agent's own store.
const (
	keyEvents   = "events" // that the control plane did not take
	keyReported = "told"   // the boot whose end was reported
)

// maxKeptEvents is how many of them outlive the agent: the latest, which report
// its end.
const maxKeptEvents = 200

// BootEvents makes Events of how boots began and ended, and keeps on disk what the
// control plane has not taken, for the next start to tell. It is safe for concurrent use.
type BootEvents struct {
	node     string
	recorder *controlplane.Recorder
	journal  *journal.Journal
	reboots  *reboots.Ledger
	store    Store
	log      *slog.Logger

	keeping   sync.Mutex // held while Events are kept; guards what follows
	reporting string     // the boot whose end an Event reports that was recorded here
	rebooted  bool       // an Event was recorded here that reports the reboot
}

// NewBootEvents returns the boot Events of a Node's shutdowns. It queues the Events
// that an earlier run could not publish.
func NewBootEvents(node string, recorder *controlplane.Recorder, j *journal.Journal, ledger *reboots.Ledger, store Store, log *slog.Logger) *BootEvents {
	c := &BootEvents{node: node, recorder: recorder, journal: j, reboots: ledger, store: store, log: log}
	c.restore()
	return c
}

const (
	// retryInterval is how often the agent checks whether the journal of before can be
	// read now, and whether the control plane has heard.
	retryInterval = time.Minute
	// retryPatience is how often it looks before it judges the reboot without a journal.
	retryPatience = 5
)

// ReportLastBoot makes an Event of the reboot that began this boot, and one of how
// the boot before ended its pods, each once. It returns when the control plane has
// heard of both, or ctx ends.
func (c *BootEvents) ReportLastBoot(ctx context.Context) {
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for check := 0; ; check++ {
		settled := c.reboots.Settle(check >= retryPatience)
		if settled {
			c.recordReboot()
		}
		// Asked first: what is read from here on, the next check reports.
		_, read := c.journal.Found()
		last, reported := c.recordLastBoot()
		if reported && settled {
			return // by an earlier process
		}
		flushing, cancel := context.WithTimeout(ctx, retryInterval)
		err := c.recorder.Flush(flushing)
		cancel()
		if err == nil && settled {
			c.reboots.Reported()
			switch {
			case last != "":
				// If it is lost, it is reported again.
				_ = c.store.Write(map[string][]byte{keyReported: quote(last)}, nil)
				return
			case read:
				return // it knows nothing of a boot before
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// recordReboot makes an Event of the reboot that no control plane has heard of, in
// kubelet's words.
func (c *BootEvents) recordReboot() {
	c.keeping.Lock()
	defer c.keeping.Unlock()
	r := c.reboots.Unreported()
	if r == nil || c.rebooted {
		return
	}
	kind := corev1.EventTypeWarning // as kubelet's always is
	if r.Good() {
		kind = corev1.EventTypeNormal
	}
	c.rebooted = true
	c.event(kind, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s: %v", c.node, r.BootID, r))
}

// recordLastBoot records an Event of how the boot before this one ended, if that is known, and
// returns that boot. reported is true if an earlier process of this boot has recorded it.
func (c *BootEvents) recordLastBoot() (boot string, reported bool) {
	last := c.journal.LastBoot()
	if last == nil {
		return "", false
	}
	c.keeping.Lock()
	defer c.keeping.Unlock()
	switch {
	case c.reporting == last.BootID: // recorded before
	case c.reportedBy(last):
		return last.BootID, c.reboots.Unreported() == nil
	case !c.reboots.Foreign():
		kind, reason, message := verdict(*last)
		c.event(kind, reason, message)
		c.reporting = last.BootID
	}
	return last.BootID, false
}

// reportedBy reports whether an earlier process of this boot has reported the record.
func (c *BootEvents) reportedBy(last *journal.Record) bool {
	values, err := c.store.Load()
	return err == nil && bytes.Equal(values[keyReported], quote(last.BootID))
}

// quote is the text as JSON.
func quote(text string) []byte {
	value, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string
	}
	return value
}

// event is an Event about the Node.
func (c *BootEvents) event(kind, reason, message string) {
	c.recorder.Record(controlplane.NodeReference(c.node), kind, reason, message)
}

// verdict is an Event of how a boot ended.
func verdict(r journal.Record) (kind, reason, message string) {
	what := "the last shutdown"
	if r.Kind != "" {
		what += " (" + r.Kind + ")"
	}
	tally := r.Tally()
	if first := r.First(); first != "" {
		tally += "; " + first
	}
	if r.Shortened != nil {
		tally += "; " + r.Shortened.String()
	}
	switch {
	case r.Graceful && r.Killed() > 0:
		return corev1.EventTypeNormal, "LastShutdownGraceful", what + " left no pod running: " + tally
	case r.Graceful:
		return corev1.EventTypeNormal, "LastShutdownGraceful", what + " was graceful: " + tally
	}
	message = what + " was not graceful: "
	if r.Error != "" {
		message += r.Error + ": "
	}
	return corev1.EventTypeWarning, "LastShutdownNotGraceful", message + tally
}

// Keep keeps what the control plane has not taken, for the next start.
func (c *BootEvents) Keep() {
	c.keeping.Lock() // what is written last is what was queued last
	defer c.keeping.Unlock()
	if c.rebooted { // the next start need not make that Event again
		c.reboots.Reported()
	}
	events := c.recorder.Queued()
	events = events[max(0, len(events)-maxKeptEvents):]
	if len(events) == 0 {
		_ = c.store.Write(nil, []string{keyEvents}) // one that is published again yields to itself
		return
	}
	value, err := json.Marshal(events)
	if err == nil {
		put := map[string][]byte{keyEvents: value}
		if c.reporting != "" { // nor that one
			put[keyReported] = quote(c.reporting)
		}
		err = c.store.Write(put, nil)
	}
	if err != nil {
		c.log.Warn("cannot persist unpublished events, dropped", "events", len(events), "error", err)
	}
}

// restore queues what an earlier run could not publish.
func (c *BootEvents) restore() {
	values, err := c.store.Load()
	var events []corev1.Event
	if value, found := values[keyEvents]; err == nil && found {
		err = json.Unmarshal(value, &events)
	}
	if err != nil {
		c.log.Warn("cannot read unpublished events of an earlier run, dropped", "error", err)
		return
	}
	c.recorder.Restore(events)
}
