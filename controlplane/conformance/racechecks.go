package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
)

// machines returns that many different machines.
func machines(count int) []controlplane.Identity {
	var all []controlplane.Identity
	for i := range count {
		all = append(all, controlplane.Identity{
			MachineID:  fmt.Sprintf("%032x", 0x44440000+i),
			SystemUUID: fmt.Sprintf("aaaaaaaa-0000-4000-8000-%012x", 0x44440000+i),
		})
	}
	return all
}

// checkRegisterRace registers one name for several machines at once. For them, a machine without a
// Lease does not count as dead.
func checkRegisterRace(ctx context.Context, b *Backend) error {
	name, all := b.Name("wanted-by-many"), machines(8)
	nodes, errs := make([]*corev1.Node, len(all)), make([]error, len(all))
	var racing sync.WaitGroup
	for i, id := range all {
		racing.Go(func() {
			nodes[i], errs[i] = b.Client.Register(ctx, newNode(name, id), controlplane.RegisterOptions{Lost: true})
		})
	}
	racing.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			return fmt.Errorf("Register() of one name by %d machines at once succeeded for %v and for %v, want it for one", len(all), all[winner], all[i])
		case err == nil:
			winner = i
		case errors.As(err, new(*controlplane.IdentityError)), errors.Is(err, controlplane.ErrConflict):
		default:
			return fmt.Errorf("Register() beside others = %w, want no error, an IdentityError or a conflict", err)
		}
	}
	if winner < 0 {
		return fmt.Errorf("Register() of one name by %d machines at once = %w, want one to succeed", len(all), errors.Join(errs...))
	}
	stored, err := b.Client.Node(ctx, name)
	if err != nil {
		return fmt.Errorf("Node() = %w, want no error", err)
	}
	if stored.UID != nodes[winner].UID || controlplane.IdentityOf(stored) != all[winner] {
		return fmt.Errorf("Node() after a race = %v, want that of %v, whose call succeeded", stored, all[winner])
	}
	for i, id := range all {
		if i == winner {
			continue
		}
		_, err := b.Client.Register(ctx, newNode(name, id), controlplane.RegisterOptions{Lost: true})
		if err := wantOwner("Register() by one that lost the race", err, all[winner], id); err != nil {
			return err
		}
	}
	return nil
}

// checkHolderRace starts two agents with one name at once. Like real agents, they create the Lease
// first.
func checkHolderRace(ctx context.Context, b *Backend) error {
	name, both := b.Name("wanted-by-two"), machines(2)
	begin := func(id controlplane.Identity, w *watch) (holds bool, err error) {
		_, err = b.Client.RenewLease(ctx, newLease(name, id, time.Now()))
		if err != nil && !errors.Is(err, controlplane.ErrConflict) {
			return false, fmt.Errorf("RenewLease() of a new lease = %w, want no error or a conflict", err)
		}
		_, _, registering := registerWatching(ctx, b, newNode(name, id), w, controlplane.RegisterOptions{})
		if registering == nil || errors.As(registering, new(*controlplane.IdentityError)) || errors.Is(registering, controlplane.ErrConflict) {
			return err == nil, nil
		}
		return false, fmt.Errorf("Register() beside another = %w, want no error, an IdentityError or a conflict", registering)
	}
	var holds [2]bool
	var errs [2]error
	watches := [2]*watch{newWatch(), newWatch()}
	var racing sync.WaitGroup
	for i, id := range both {
		racing.Go(func() { holds[i], errs[i] = begin(id, watches[i]) })
	}
	racing.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	if holds[0] == holds[1] {
		return fmt.Errorf("RenewLease() of a new lease by two machines at once succeeded for %v, want one", holds)
	}
	winner, loser := 0, 1
	if holds[1] {
		winner, loser = 1, 0
	}
	node, _, err := registerWatching(ctx, b, newNode(name, both[winner]), watches[winner], controlplane.RegisterOptions{})
	if err != nil {
		return fmt.Errorf("Register() by the machine that holds the lease = %w, want no error", err)
	}
	if got := controlplane.IdentityOf(node); got != both[winner] {
		return fmt.Errorf("Register() by %v gave the node of %v", both[winner], got)
	}
	if _, err := b.Client.UpdateStatus(ctx, newNode(name, both[winner])); err != nil {
		return fmt.Errorf("UpdateStatus() by the machine that holds the lease = %w, want no error", err)
	}
	_, _, err = registerWatching(ctx, b, newNode(name, both[loser]), watches[loser], controlplane.RegisterOptions{})
	return wantOwner("Register() by the machine that does not hold the lease", err, both[winner], both[loser])
}

// checkStatusRace sets labels on the Node as another client while its status is written.
func checkStatusRace(ctx context.Context, b *Backend) error {
	name := b.Name("busy-node")
	node, err := register(ctx, b, name, here)
	if err != nil {
		return err
	}
	const labels = 5
	editing := make(chan error, 1)
	go func() {
		editing <- func() error {
			for i := range labels {
				label := fmt.Sprintf("theirs.example.com/l%d", i)
				if err := b.edit(ctx, name, func(n *corev1.Node) { n.Labels[label] = "kept" }); err != nil {
					return err
				}
			}
			return nil
		}()
	}()
	var last string
	for i, done := 0, false; ; i++ {
		node.Status.Conditions[0].Reason = fmt.Sprint("Round", i)
		switch _, err := b.Client.UpdateStatus(ctx, node); {
		case err == nil:
			last = node.Status.Conditions[0].Reason
		case done || !errors.Is(err, controlplane.ErrConflict): // a conflict with the other client: try again
			return fmt.Errorf("UpdateStatus() beside others = %w, want no error", err)
		}
		if done {
			break
		}
		select {
		case err := <-editing:
			if err != nil {
				return err
			}
			done = true // one more round without the other client
		default:
		}
	}
	read, err := b.Client.Node(ctx, name)
	if err != nil {
		return fmt.Errorf("Node() = %w, want no error", err)
	}
	if got := reasons(read)[corev1.NodeReady]; got != last {
		return fmt.Errorf("Node() gave Ready with reason %q, want %q, which was written last", got, last)
	}
	for i := range labels {
		if read.Labels[fmt.Sprintf("theirs.example.com/l%d", i)] != "kept" {
			return fmt.Errorf("Node() gave labels %v, want all %d that another client has set meanwhile", read.Labels, labels)
		}
	}
	return nil
}

// checkExpiry lets a Lease expire by the control plane's own clock. It measures the times of its
// own calls. If this process was too slow, the check starts again.
func checkExpiry(ctx context.Context, b *Backend) error {
	if !b.Expires {
		return &AbsentError{"the Lease is kept; the next machine of that name watches whether it is renewed"}
	}
	name, good := b.Name("expiring"), 2*time.Second
	if _, err := register(ctx, b, name, there); err != nil {
		return err
	}
	lease, err := controlplane.NewLease(name, there, good)
	if err != nil {
		return err
	}
	started, renewed := time.Now(), time.Time{}
	for time.Since(started) < good+good/2 {
		before := renewed
		renewed = time.Now()
		stored, err := b.Client.RenewLease(ctx, controlplane.Renew(lease, renewed))
		if err != nil {
			return fmt.Errorf("RenewLease() of a lease of %v that is renewed in time = %w, want no error", good, err)
		}
		if lease.UID != "" && stored.UID != lease.UID {
			if gap := time.Since(before); gap < good {
				return fmt.Errorf("a lease of %v was removed although it was renewed after %v", good, gap)
			}
			started = time.Now() // the Lease expired rightly: this process was too slow
		}
		lease = stored
		if err := bounded.Sleep(ctx, good/4); err != nil {
			return err
		}
	}
	for {
		_, err := b.Client.Lease(ctx, name)
		lived := time.Since(renewed)
		if errors.Is(err, controlplane.ErrNotFound) {
			if lived < good {
				return fmt.Errorf("a lease of %v was removed %v after its renewal", good, lived)
			}
			break
		}
		if lived > b.patient(soon) {
			return fmt.Errorf("a lease of %v still exists %v after its renewal, want it removed", good, lived)
		}
		if err != nil {
			return fmt.Errorf("Lease() = %w, want it there or not found", err)
		}
		if err := bounded.Sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return wantLeaselessWatched(ctx, b, name)
}
