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
	// Unreached is why there is nobody at the socket who is trusted, and Fix what a person
	// does about one who is not; Silent why who is there does not say who it is.
	Unreached error
	Fix       string
	NoAnswer  error

	Name, Version, Endpoint string // as it says
	Lists, Watches, Ends    bool   // as it says that it can

	// Node is whether that is there, Leaseless whether it is known to have no Lease;
	// Reading is why the two could not be read.
	Node, Leaseless bool
	Reading         error
	// Listing and Watching are why the plugin does not list or watch as it reports.
	Listing, Watching error
}

// Diagnose requests, until ctx ends, Info and the Node of that name, and tries the abilities that the
// plugin reports.
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
	var looking sync.WaitGroup
	looking.Go(func() { diagnosis.Node, diagnosis.Leaseless, diagnosis.Reading = s.finds(ctx, node) })
	looking.Go(func() {
		if a.list {
			diagnosis.Listing = s.lists(ctx)
		}
	})
	looking.Go(func() {
		if a.watch {
			diagnosis.Watching = s.watches(ctx, objects.Key{Kind: objects.Node, Node: node})
		}
	})
	looking.Wait()
	return diagnosis
}

// finds reports whether a Node is there, and none of its Lease.
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

// lists reads one page. That this host may not is a plugin's right to say.
func (s *Store) lists(ctx context.Context) error {
	_, _, err := s.List(ctx, objects.Node, "", "")
	if errors.Is(err, controlplane.ErrForbidden) && !errors.Is(err, errLacks) {
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
