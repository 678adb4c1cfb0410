package reboots

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

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

// HostOf returns the facts of a Node, after those that are known of it, and whether they may lead to another decision.
func HostOf(before Host, node *corev1.Node, listing bool) (Host, bool) {
	return taker(nil)(before, node, listing)
}

// GroupOf returns a group of a Report with these hosts.
func GroupOf(hosts map[string]Host, emptying map[string]Emptying) Group {
	return Group{hosts: hosts, emptying: emptying}
}

// Others returns the names of all groups but one.
func (c *Controller) Others(group string) []string { return c.others(group) }
