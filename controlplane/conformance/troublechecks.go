package conformance

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
)

const (
	// soon is how long a call may take to end after its context has ended. It is generous, for busy
	// machines: a call that ignores its context takes far longer.
	soon = 15 * time.Second
	// ownDeadline is the longest time that a call without a deadline may take.
	ownDeadline = 45 * time.Second
)

// endedEarly reports whether err is allowed for a call whose context ends while it is in progress.
// The call itself, or an earlier one whose result is unknown, may have been executed.
func endedEarly(err error) bool {
	return err == nil || errors.Is(err, context.Canceled) || errors.Is(err, controlplane.ErrNotFound) || errors.Is(err, controlplane.ErrConflict)
}

// checkCancelledAnytime cancels each call several times, after increasing pauses.
func checkCancelledAnytime(ctx context.Context, b *Backend) error {
	name := b.Name("cancelled-anytime")
	if _, err := registerAlive(ctx, b, name, here); err != nil {
		return err
	}
	leaks := watchGoroutines(ctx, b)
	for _, call := range slices.Sorted(maps.Keys(calls(b.Client, name))) {
		run := calls(b.Client, name)[call]
		for after := time.Duration(0); after <= 20*time.Millisecond; after = after*2 + 50*time.Microsecond {
			err := leaks.call(func(ctx context.Context) error {
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				stop := time.AfterFunc(after, cancel)
				defer stop.Stop()
				return within(b, call+" cancelled after "+after.String(), func() error { return run(ctx) })
			})
			if !endedEarly(err) {
				return fmt.Errorf("%s cancelled after %v = %w, want that it was cancelled", call, after, err)
			}
		}
	}
	if err := leaks.awaitEnd(ctx); err != nil {
		return err
	}
	return recovers(ctx, b, name)
}

// recovers registers a Node and renews its Lease after a fault. It retries, because requests from
// the time of the fault may be executed late.
func recovers(ctx context.Context, b *Backend, name string) error {
	deadline := time.Now().Add(b.patient(soon))
	for {
		err := works(ctx, b, name)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%v after the trouble is over: %w", b.patient(soon), err)
		}
		if err := bounded.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func works(ctx context.Context, b *Backend, name string) error {
	node, err := register(ctx, b, name, here)
	if err != nil {
		return err
	}
	if _, err := b.Client.UpdateStatus(ctx, node); err != nil {
		return fmt.Errorf("UpdateStatus() = %w, want no error", err)
	}
	lease, err := b.Client.Lease(ctx, name)
	if errors.Is(err, controlplane.ErrNotFound) {
		lease, err = newLease(name, here, time.Now()), nil
	}
	if err == nil {
		_, err = b.Client.RenewLease(ctx, controlplane.Renew(lease, time.Now()))
	}
	if err != nil {
		return fmt.Errorf("RenewLease() of the lease as it is stored = %w, want no error", err)
	}
	return nil
}

// withFault registers a Node with a Lease, and then causes a fault in answers.
func withFault(ctx context.Context, b *Backend, own string, f Fault) (name string, restore func(), err error) {
	name = b.Name(own)
	if _, err = registerAlive(ctx, b, name, here); err == nil {
		restore, err = b.injectFault(f)
	}
	return name, restore, err
}

func checkSlow(ctx context.Context, b *Backend) error {
	name, restore, err := withFault(ctx, b, "slow", Slow)
	if err != nil {
		return err
	}
	defer restore()
	if err := recovers(ctx, b, name); err != nil {
		return fmt.Errorf("late answers: %w", err)
	}
	for call, run := range calls(b.Client, name) {
		var err error
		// If this process is stalled, the answer arrives before the end of the context is noticed.
		for tries := 0; !errors.Is(err, context.DeadlineExceeded) && tries < 5; tries++ {
			err = within(b, call+" that is given 20ms", func() error {
				ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				defer cancel()
				return run(ctx)
			})
		}
		if err := wantError(call+" of a slow server that is given 20ms", err, context.DeadlineExceeded); err != nil {
			return err
		}
	}
	restore()
	return recovers(ctx, b, name)
}

func checkNoAnswer(ctx context.Context, b *Backend) error {
	name, restore, err := withFault(ctx, b, "silent", NoAnswer)
	if err != nil {
		return err
	}
	defer restore()
	leaks := watchGoroutines(ctx, b)
	for call, run := range calls(b.Client, name) {
		err := leaks.call(func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer time.AfterFunc(100*time.Millisecond, cancel).Stop()
			return within(b, call+" of a server that does not answer, cancelled,", func() error { return run(ctx) })
		})
		if err := wantError(call+" of a server that does not answer", err, context.Canceled); err != nil {
			return err
		}
	}
	restore()
	if err := leaks.awaitEnd(ctx); err != nil {
		return err
	}
	return recovers(ctx, b, name)
}

func checkDeadline(ctx context.Context, b *Backend) error {
	name, restore, err := withFault(ctx, b, "hanging", NoAnswer)
	if err != nil {
		return err
	}
	defer restore()
	unbounded, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	errs := make(chan error)
	all := calls(b.Client, name)
	for call, run := range all {
		go func() {
			err := run(unbounded)
			if err == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, controlplane.ErrUnavailable) {
				err = fmt.Errorf("%s of a server that does not answer = %w, want a deadline error or the control plane unavailable", call, orNone(err))
			} else {
				err = nil
			}
			select {
			case errs <- err:
			case <-ctx.Done():
			}
		}()
	}
	late := time.After(b.patient(ownDeadline))
	for range all {
		select {
		case err := <-errs:
			if err != nil {
				return err
			}
		case <-late:
			return fmt.Errorf("a call without a deadline to a server that does not answer has not ended after %v", b.patient(ownDeadline))
		}
	}
	restore()
	return recovers(ctx, b, name)
}

// checkLost executes each write but loses its answer. Then it repeats the write, as callers do.
func checkLost(ctx context.Context, b *Backend) error {
	name := b.Name("lost")
	lose := func(call string, run func() error) error {
		restore, err := b.injectFault(Lost)
		if err != nil {
			return err
		}
		defer restore()
		if err := run(); !errors.Is(err, controlplane.ErrUnavailable) {
			return fmt.Errorf("%s whose answer is lost = %w, want the control plane unavailable", call, orNone(err))
		}
		return nil
	}
	_, err := b.Client.Node(ctx, name)
	if err := wantError("Node() of a node that is not there", err, controlplane.ErrNotFound); err != nil {
		return err
	}
	first, event := newLease(name, here, time.Now()), newEvent(name, 1)
	for call, run := range map[string]func() error{
		"Register()": func() error {
			_, err := b.Client.Register(ctx, newNode(name, here), controlplane.RegisterOptions{})
			return err
		},
		"RenewLease()":   func() error { _, err := b.Client.RenewLease(ctx, first); return err },
		"PublishEvent()": func() error { return b.Client.PublishEvent(ctx, event) },
	} {
		if err := lose(call, run); err != nil {
			return err
		}
		if err := run(); err != nil && (call != "RenewLease()" || !errors.Is(err, controlplane.ErrConflict)) {
			return fmt.Errorf("%s again after its answer was lost = %w, want no error", call, err)
		}
	}
	events, can, err := eventsOf(ctx, b, name)
	if err != nil {
		return err
	}
	if can && len(events) != 1 {
		return fmt.Errorf("Events() after one was published twice, its answer lost = %d, want 1", len(events))
	}
	if err := recovers(ctx, b, name); err != nil {
		return err
	}
	leave := func() error { return b.Client.Leave(ctx, name, controlplane.Identity{}) }
	if err := lose("Leave()", leave); err != nil {
		return err
	}
	if err := leave(); err != nil {
		return fmt.Errorf("Leave() again after its answer was lost = %w, want no error", err)
	}
	return nil
}

func checkWrongObject(ctx context.Context, b *Backend) error {
	name, restore, err := withFault(ctx, b, "lied-to", WrongObject)
	if err != nil {
		return err
	}
	defer restore()
	node, err := b.Client.Node(ctx, name)
	if err == nil {
		return fmt.Errorf("Node(%q) answered by another object = %v, want an error", name, node)
	}
	lease, err := b.Client.Lease(ctx, name)
	if err == nil {
		return fmt.Errorf("Lease(%q) answered by another object = %v, want an error", name, lease)
	}
	restore()
	return recovers(ctx, b, name)
}

// within returns the result of a call, or an error if the call does not end.
func within(b *Backend, what string, call func() error) error {
	limit := b.patient(soon)
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("%s has not ended after %v", what, limit))
	defer cancel()
	return bounded.Call(ctx, call)
}

// orNone returns err, or an error that says "no error" if err is nil, so that it can be wrapped.
func orNone(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

// goroutines finds the goroutines that calls have started, by a label that they inherit.
type goroutines struct {
	ctx   context.Context
	label string
	limit time.Duration // of awaitEnd
}

// labelKey is the key of that label.
const labelKey = "conformance"

func watchGoroutines(ctx context.Context, b *Backend) goroutines {
	return goroutines{ctx: ctx, label: rand.Text(), limit: b.patient(soon)}
}

// call makes a call whose goroutines get the label.
func (g goroutines) call(call func(context.Context) error) (err error) {
	pprof.Do(g.ctx, pprof.Labels(labelKey, g.label), func(ctx context.Context) { err = call(ctx) })
	return err
}

// awaitEnd waits until every goroutine that calls started in hostler's code has ended. Goroutines of
// connections outlive a call, but run no code of hostler.
func (g goroutines) awaitEnd(ctx context.Context) error {
	deadline := time.Now().Add(g.limit)
	for {
		left := g.remaining()
		switch {
		case left == "":
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("a call that was cancelled has left a goroutine:\n%s", left)
		}
		if err := bounded.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// remaining returns the stack of a remaining goroutine; empty if there is none.
func (g goroutines) remaining() string {
	var text bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		return err.Error() // cannot happen: a buffer accepts all writes
	}
	for stack := range strings.SplitSeq(text.String(), "\n\n") {
		if strings.Contains(stack, fmt.Sprintf("%q:%q", labelKey, g.label)) && strings.Contains(stack, "hostler/controlplane/") {
			return stack
		}
	}
	return ""
}
