package reboots

import (
	"context"
	"time"

	"hostler.io/hostler/controlplane/store"
)

// Due returns the actions that are due.
func (c *Controller) Due(now time.Time) ([]Action, error) {
	due, _, err := c.decide(now)
	return due, err
}

// Write makes the write of an action.
func (c *Controller) Write(ctx context.Context, term store.Term, a Action) error {
	return a.write(ctx, c, term)
}
