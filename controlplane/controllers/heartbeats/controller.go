package heartbeats

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
)

// Name is the controller's name in the configuration, in elections and in metrics.
const Name = "heartbeats"

// interval is the longest time between decisions, and between reads of the setting.
const interval = 10 * time.Second

// Controller changes the setting while it leads.
type Controller struct {
	*executor.Executor[Change]
	settings store.Settings
	contact  *store.Contact
	nodes    *store.Table[struct{}]
	changed  loop.Signal
	reread   loop.Signal
	log      *slog.Logger

	mu       sync.Mutex // guards the fields below
	known    Facts      // Hosts is not set: nodes has the count
	read     bool       // the setting was read
	decision Decision
}

// Report is the state of the controller. It is immutable.
type Report struct {
	executor.Report
	Decision Decision
}

// New returns a controller of a store's setting.
func New(s store.Settings, contact *store.Contact, maxPerSecond float64, log *slog.Logger) *Controller {
	changed := loop.NewSignal()
	c := &Controller{
		settings: s, contact: contact, changed: changed, reread: loop.NewSignal(), log: log.With("component", Name),
		nodes: store.NewTable(store.Nodes, func(struct{}, store.Object, bool) (struct{}, bool) { return struct{}{}, false }, changed.Send),
		known: Facts{MaxPerSecond: maxPerSecond},
	}
	c.Executor = executor.New(executor.Job[Change]{Facts: c.facts, Decide: c.decide, Write: c.write, Done: c.done}, changed, c.log)
	return c
}

// SetMax applies a changed configuration.
func (c *Controller) SetMax(perSecond float64) {
	c.mu.Lock()
	c.known.MaxPerSecond = perSecond
	c.mu.Unlock()
	c.changed.Send()
}

// Nodes returns the follower for the Nodes of the fleet.
func (c *Controller) Nodes() store.Follower { return c.nodes }

// Report returns the last decision and the state of its execution.
func (c *Controller) Report() Report {
	r := Report{Report: c.Executor.Report()}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.Decision = c.decision
	return r
}

// RunReads reads the setting at every interval, and after each write, until ctx ends.
func (c *Controller) RunReads(ctx context.Context, heartbeat func(error)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		setting, err := c.settings.Setting(ctx, store.LeaseDuration)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		heartbeat(err)
		if err == nil {
			c.recordSetting(setting)
		}
		select {
		case <-ticker.C:
		case <-c.reread:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// recordSetting records the setting that was read.
func (c *Controller) recordSetting(setting store.Setting) {
	c.mu.Lock()
	news := !c.read || c.known.Setting != setting
	c.known.Setting, c.read = setting, true
	c.mu.Unlock()
	if news {
		c.changed.Send()
	}
}

// facts returns an error unless the setting is known, and the Nodes are known and recent.
func (c *Controller) facts(now time.Time) error {
	if _, err := c.contact.Fresh(now, c.nodes); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read {
		return errors.New("reading the setting")
	}
	return nil
}

// decide returns the change that is due.
func (c *Controller) decide(now time.Time) ([]Change, time.Time, error) {
	if err := c.facts(now); err != nil {
		return nil, time.Time{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	facts := c.known
	facts.Hosts = c.nodes.Len()
	c.decision = Decide(facts)
	return c.decision.Now, now.Add(interval), nil
}

func (c *Controller) write(ctx context.Context, term store.Term, change Change) error {
	defer c.reread.Send()
	return c.settings.Set(ctx, store.LeaseDuration, change.Before, change.Value, term)
}

// done logs a change.
func (*Controller) done(change Change, log *slog.Logger) {
	log.Info("lease duration of all hosts changed", "duration", cmp.Or(change.Value, DefaultLease.String()), "before", cmp.Or(change.Before.Value, DefaultLease.String()), "reason", change.Reason)
}
