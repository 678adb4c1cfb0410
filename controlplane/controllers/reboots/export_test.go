package reboots

import (
	"context"
	"time"

	"hostler.io/hostler/controlplane/store"
)

// Actions returns the actions that are due once the Nodes are confirmed.
func (c *Controller) Actions(now time.Time) ([]Action, error) {
	c.due = nil
	due, _, err := c.decide(now)
	c.due = nil
	return due, err
}

// Write makes the write of an action.
func (c *Controller) Write(ctx context.Context, term store.Term, a Action) error {
	return a.write(ctx, c, term)
}
