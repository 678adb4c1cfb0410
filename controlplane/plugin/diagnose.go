package plugin

import (
	"context"
	"errors"
	"sync"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
)

// Diagnosis is the result of one check of a plugin. The check changes nothing.
type Diagnosis struct {
	// Unreached is why no trusted server answers at the socket, and Fix the command that helps against
	// an untrusted one. NoAnswer is why the server does not answer Info.
	Unreached error
	Fix       string
	NoAnswer  error

	Name, Version, Endpoint string // as the plugin reports them
	Lists, Watches, Ends    bool   // its abilities, as it reports them

	// Node reports that the Node exists, Leaseless that it has no Lease. Reading is why they could not
	// be read.
	Node, Leaseless bool
	Reading         error
	// Listing and Watching are the errors of a list and a watch that the plugin reports as supported.
	Listing, Watching error
}

// Diagnose calls Info, reads the Node of that name, and tries the abilities that the plugin
// reports, until ctx ends.
func (s *Store) Diagnose(ctx context.Context, node string) Diagnosis {
	conn, err := connect(ctx, s.o.Socket)
	if err != nil {
		diagnosis := Diagnosis{Unreached: err}
		if stranger, ok := errors.AsType[*untrustedError](err); ok {
			diagnosis.Unreached, diagnosis.Fix = errors.New(stranger.why), stranger.fix
		}
		return diagnosis
	}
	_ = conn.Close()
	if err := s.Probe(ctx); err != nil {
		return Diagnosis{NoAnswer: err}
	}
	s.mu.Lock()
	a := s.about
	s.mu.Unlock()
	diagnosis := Diagnosis{Name: a.name, Version: a.version, Endpoint: a.endpoint, Lists: a.list, Watches: a.watch, Ends: a.ends}
	var checks sync.WaitGroup
	checks.Go(func() { diagnosis.Node, diagnosis.Leaseless, diagnosis.Reading = s.finds(ctx, node) })
	checks.Go(func() {
		if a.list {
			diagnosis.Listing = s.lists(ctx)
		}
	})
	checks.Go(func() {
		if a.watch {
			diagnosis.Watching = s.watches(ctx, objects.Key{Kind: objects.Node, Node: node})
		}
	})
	checks.Wait()
	return diagnosis
}

// finds reports whether a Node exists, and whether its Lease does not.
func (s *Store) finds(ctx context.Context, node string) (found, leaseless bool, err error) {
	_, err = s.Get(ctx, objects.Key{Kind: objects.Node, Node: node})
	if errors.Is(err, controlplane.ErrNotFound) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	_, err = s.Get(ctx, objects.Key{Kind: objects.Lease, Node: node})
	if errors.Is(err, controlplane.ErrNotFound) {
		return true, true, nil
	}
	return true, false, err
}

// lists reads one page. ErrForbidden is no error: a plugin may refuse a list to this host.
func (s *Store) lists(ctx context.Context) error {
	_, _, err := s.List(ctx, objects.Node, "", "")
	if errors.Is(err, controlplane.ErrForbidden) && !errors.Is(err, errUnimplemented) {
		return nil
	}
	return err
}

// watches waits for the first message of a watch.
func (s *Store) watches(ctx context.Context, key objects.Key) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, ended := make(chan objects.Object), make(chan error, 1)
	go func() { ended <- s.follow(ctx, "watch "+key.String(), key, seen) }()
	select {
	case <-seen:
		cancel()
		<-ended
		return nil
	case err := <-ended:
		return err
	}
}
