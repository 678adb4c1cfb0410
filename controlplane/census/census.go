// Package census searches a fleet for other hosts with this host's machine ID. It knows no control
// plane by name and only reports what it finds.
package census

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
)

const (
	// interval is from one check through the fleet to the next, which costs it
	// as many reads as it is large.
	interval = 6 * time.Hour
	// again is the same while a clone is known, so that its end is.
	again = 10 * time.Minute
	// limit bounds how many Leases are read: a machine ID that is that
	// common is told by any of them.
	limit = 10
	// timeout bounds a check through the fleet.
	timeout = 2 * time.Minute
	// watched is how long a Lease is watched for a renewal: as long as it is good for
	// by default.
	watched = 40 * time.Second
)

// Census searches for machines that have this one's machine ID under another Node's
// name, where the control plane lets it.
type Census struct {
	finder controlplane.MachineFinder
	leases interface {
		Lease(ctx context.Context, nodeName string) (*coordinationv1.Lease, error)
	}
	self *corev1.Node // its name and NodeInfo
	log  *slog.Logger

	mu     sync.Mutex // guards clones
	clones []controlplane.Clone
}

// New returns a census that has found nobody yet, of the machine that the Node
// self reports by its name and NodeInfo.
func New(client controlplane.Client, finder controlplane.MachineFinder, self *corev1.Node, log *slog.Logger) *Census {
	return &Census{finder: finder, leases: client, self: self, log: log.With("component", "census")}
}

// Clones are those that were alive at the last check.
func (c *Census) Clones() []controlplane.Clone {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.clones)
}

// Run looks through the fleet now and then until ctx ends. Beat is told how it goes,
// and changed after each change. That the control plane does not let it is no failure.
func (c *Census) Run(ctx context.Context, heartbeat func(error), changed func()) error {
	if c.self.Status.NodeInfo.MachineID == "" {
		<-ctx.Done() // nothing to search for
		return context.Cause(ctx)
	}
	next := rand.N(time.Minute) // hosts that started together need not come together
	for {
		if err := bounded.Sleep(ctx, next); err != nil {
			return err
		}
		clones, err := c.scan(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		forbidden := errors.Is(err, controlplane.ErrForbidden)
		if forbidden {
			err = nil
		}
		heartbeat(err)
		next = interval/2 + rand.N(interval)
		if err != nil || len(clones) > 0 {
			next = again
		}
		if err == nil && c.take(clones) {
			changed()
		}
	}
}

// take keeps what was found, and reports whether it is news.
func (c *Census) take(clones []controlplane.Clone) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Equal(c.clones, clones) {
		return false
	}
	c.clones = clones
	if len(clones) == 0 {
		c.log.Info("no other node shares this host's machine ID any more")
	}
	for _, clone := range clones {
		c.log.Error("another node shares this host's machine ID", "problem", clone.Message(c.self.Name), "mend", clone.Fix())
	}
	return true
}

// scan finds the clones whose Leases are renewed while it watches. A Node of this
// very boot is this host's own under another name, such as its kubelet's.
func (c *Census) scan(ctx context.Context) ([]controlplane.Clone, error) {
	finding, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info := c.self.Status.NodeInfo
	found, err := c.finder.NodesOf(finding, info.MachineID)
	if err != nil {
		return nil, fmt.Errorf("find clones: %w", err)
	}
	found = slices.DeleteFunc(found, func(n corev1.Node) bool {
		own := n.Status.NodeInfo.BootID != "" && n.Status.NodeInfo.BootID == info.BootID
		return own || n.Name == c.self.Name
	})
	found = found[:min(len(found), limit)]
	watch := controlplane.NewLeaseWatch(nil)
	var clones []controlplane.Clone
	for round := range 2 {
		if len(found) == 0 {
			break
		}
		if round > 0 {
			if err := bounded.Sleep(ctx, watched); err != nil {
				return nil, err
			}
		}
		for _, n := range found {
			reading, cancel := context.WithTimeout(ctx, timeout/limit)
			lease, err := c.leases.Lease(reading, n.Name)
			cancel()
			if err != nil && !errors.Is(err, controlplane.ErrNotFound) {
				return nil, fmt.Errorf("find clones: %w", err)
			}
			if watch.See(lease).Renewed {
				clones = append(clones, controlplane.Clone{Node: n.Name})
			}
		}
	}
	slices.SortFunc(clones, func(a, b controlplane.Clone) int { return strings.Compare(a.Node, b.Node) })
	return clones, nil
}
