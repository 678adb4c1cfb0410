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
	keyEvents   = "events" // Events that are not on the control plane yet
	keyReported = "told"   // the boot whose end was reported
)

// maxKeptEvents bounds the stored Events. The latest are kept, because they report the end of the
// boot.
const maxKeptEvents = 200

// BootEvents records Events of how boots began and ended, and stores Events that the control plane
// has not received, for the next start. It is safe for concurrent use.
type BootEvents struct {
	node     string
	recorder *controlplane.Recorder
	journal  *journal.Journal
	reboots  *reboots.Ledger
	store    Store
	log      *slog.Logger

	keeping   sync.Mutex // guards the fields below; orders the writes of the queue
	reporting string     // the boot whose end was recorded as an Event by this process
	rebooted  bool       // this process has recorded the Event of the reboot
}

// NewBootEvents returns the BootEvents of a Node. It queues the Events that an earlier process
// could not send.
func NewBootEvents(node string, recorder *controlplane.Recorder, j *journal.Journal, ledger *reboots.Ledger, store Store, log *slog.Logger) *BootEvents {
	c := &BootEvents{node: node, recorder: recorder, journal: j, reboots: ledger, store: store, log: log}
	c.restore()
	return c
}

const (
	// retryInterval is how often the agent checks whether the previous boot's journal is readable,
	// and whether the control plane has received the Events.
	retryInterval = time.Minute
	// retryPatience is after how many checks the reboot is judged without a journal.
	retryPatience = 5
)

// ReportLastBoot records an Event of the reboot that began this boot, and one of how the previous
// boot ended its pods, each once. It returns when the control plane has received both, or ctx ends.
func (c *BootEvents) ReportLastBoot(ctx context.Context) {
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for check := 0; ; check++ {
		settled := c.reboots.Settle(check >= retryPatience)
		if settled {
			c.recordReboot()
		}
		// Read first: what the journal learns after this is reported by the next check.
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
				// If the write is lost, the Event is recorded again.
				_ = c.store.Write(map[string][]byte{keyReported: quote(last)}, nil)
				return
			case read:
				return // the journal has no previous boot
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// recordReboot records an Event of the unreported reboot, with kubelet's reason and message.
func (c *BootEvents) recordReboot() {
	c.keeping.Lock()
	defer c.keeping.Unlock()
	r := c.reboots.Unreported()
	if r == nil || c.rebooted {
		return
	}
	kind := corev1.EventTypeWarning // always Warning in kubelet
	if r.Good() {
		kind = corev1.EventTypeNormal
	}
	c.rebooted = true
	c.event(kind, "Rebooted", fmt.Sprintf("Node %s has been rebooted, boot id: %s: %v", c.node, r.BootID, r))
}

// recordLastBoot records an Event of how the previous boot ended, if that is known, and returns
// that boot. reported is true if an earlier process of this boot has done so.
func (c *BootEvents) recordLastBoot() (boot string, reported bool) {
	last := c.journal.LastBoot()
	if last == nil {
		return "", false
	}
	c.keeping.Lock()
	defer c.keeping.Unlock()
	switch {
	case c.reporting == last.BootID: // already recorded
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

// quote returns the text as JSON.
func quote(text string) []byte {
	value, err := json.Marshal(text)
	if err != nil {
		panic(err) // cannot happen for a string
	}
	return value
}

// event records an Event about the Node.
func (c *BootEvents) event(kind, reason, message string) {
	c.recorder.Record(controlplane.NodeReference(c.node), kind, reason, message)
}

// verdict returns the Event for how a boot ended.
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

// Keep stores the Events that the control plane has not received, for the next start.
func (c *BootEvents) Keep() {
	c.keeping.Lock() // so that the last write has the last queue
	defer c.keeping.Unlock()
	if c.rebooted { // the next start need not record it again
		c.reboots.Reported()
	}
	events := c.recorder.Queued()
	events = events[max(0, len(events)-maxKeptEvents):]
	if len(events) == 0 {
		_ = c.store.Write(nil, []string{keyEvents}) // an Event that is sent twice counts once
		return
	}
	value, err := json.Marshal(events)
	if err == nil {
		put := map[string][]byte{keyEvents: value}
		if c.reporting != "" { // the next start need not record it again
			put[keyReported] = quote(c.reporting)
		}
		err = c.store.Write(put, nil)
	}
	if err != nil {
		c.log.Warn("cannot persist unpublished events, dropped", "events", len(events), "error", err)
	}
}

// restore queues the stored Events of an earlier process.
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
