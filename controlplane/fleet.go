package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
)

// FleetLister is a Client that can report all hosts of its control plane.
type FleetLister interface {
	// Fleet calls each for every stored Node, sorted by name, with its Lease; nil if there is none. It
	// reads pages, so it holds only a few hundred objects of a fleet of any size. Objects that are
	// created or deleted meanwhile may be left out. If each returns an error, Fleet returns it
	// unchanged. Fleet has no deadline of its own: the number of requests grows with the fleet.
	// Errors: ErrForbidden if this host may not list; ErrIncomplete, after all readable hosts, if some
	// objects cannot be read.
	Fleet(ctx context.Context, each Member) error
}

// Member receives one host of a fleet. It may keep and change its arguments.
type Member func(node *corev1.Node, lease *coordinationv1.Lease) error

// LeaseEnder is a Client of a control plane that may delete expired Leases by itself.
type LeaseEnder interface {
	// EndsLeases reports whether the control plane deletes expired Leases. If so, a Node without a
	// Lease belongs to a host that gives no sign of life.
	EndsLeases() bool
}

// EndsLeases reports whether the client's control plane deletes expired Leases by itself.
func EndsLeases(client Client) bool {
	ender, able := client.(LeaseEnder)
	return able && ender.EndsLeases()
}

// Pages reads one page of objects, sorted by name, and returns the token of the next page. The token
// is empty for the first page, and after the last.
type Pages[T any] func(ctx context.Context, page string) (objects []T, next string, err error)

// Skipped collects the reasons why objects of a fleet were skipped. It keeps the first ten
// reasons, and counts the others.
type Skipped struct {
	first []error
	more  int
}

// Add adds the reason of one object.
func (l *Skipped) Add(why error) {
	if len(l.first) < 10 {
		l.first = append(l.first, why)
	} else {
		l.more++
	}
}

// Err returns ErrIncomplete with the reasons; nil if nothing was skipped.
func (l Skipped) Err() error {
	if len(l.first) == 0 {
		return nil
	}
	reasons := l.first
	if l.more > 0 {
		reasons = append(slices.Clip(reasons), fmt.Errorf("and %d more", l.more))
	}
	return fmt.Errorf("list nodes: %w: %w", ErrIncomplete, errors.Join(reasons...))
}

// JoinFleet calls each for every Node with the Lease of the same name. It reads both lists in
// parallel and holds one page of each.
func JoinFleet(ctx context.Context, nodes Pages[corev1.Node], leases Pages[coordinationv1.Lease], each Member) error {
	held := leasesByName{read: leases, more: true}
	for page := ""; ; {
		found, next, err := nodes(ctx, page)
		if err != nil {
			return err
		}
		for i := range found {
			lease, err := held.of(ctx, found[i].Name)
			if err != nil {
				return err
			}
			if err := each(&found[i], lease); err != nil {
				return err
			}
		}
		if page = next; page == "" {
			return nil
		}
	}
}

// leasesByName reads pages of Leases and returns the Leases of names in ascending order.
type leasesByName struct {
	read Pages[coordinationv1.Lease]
	held []coordinationv1.Lease
	next string
	more bool // not all pages were read yet
}

// of returns the Lease of that name; nil if there is none.
func (l *leasesByName) of(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	for {
		for len(l.held) > 0 && l.held[0].Name < name {
			l.held = l.held[1:]
		}
		switch {
		case len(l.held) > 0 && l.held[0].Name == name:
			return &l.held[0], nil
		case len(l.held) > 0 || !l.more:
			return nil, nil
		}
		var err error
		if l.held, l.next, err = l.read(ctx, l.next); err != nil {
			return nil, err
		}
		l.more = l.next != ""
	}
}
