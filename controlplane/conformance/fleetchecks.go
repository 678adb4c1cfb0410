package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// checkFleet lists a fleet of one host if the control plane keeps only one, else of more hosts than
// fit on a small page. Other hosts may be in the list.
func checkFleet(ctx context.Context, b *Backend) error {
	lister, able := as[controlplane.FleetLister](b)
	if !able {
		return &AbsentError{"hosts cannot read other hosts"}
	}
	names, without := []string{b.Name("fleet-a")}, b.Name("fleet-c") // the second has no Lease
	_, many := as[controlplane.NodeWatcher](b)                       // other clients write there, too
	if many {
		names = append(names, b.Name("fleet-a-1"), b.Name("fleet-a.b"), without, b.Name("fleet-d"))
	}
	for i := range slices.Backward(names) {
		name := names[i]
		if _, err := register(ctx, b, name, here); err != nil {
			return err
		}
		if name == without {
			continue
		}
		if _, err := renew(ctx, b, name, here); err != nil {
			return err
		}
	}
	var reported []string
	err := lister.Fleet(ctx, func(node *corev1.Node, lease *coordinationv1.Lease) error {
		reported = append(reported, node.Name)
		if !slices.Contains(names, node.Name) {
			return nil
		}
		if node.Kind != "Node" || node.APIVersion != "v1" || node.UID == "" || node.Status.NodeInfo.MachineID != here.MachineID {
			return fmt.Errorf("node %s is a %s of %s with UID %q, of machine %q, want it whole", node.Name, node.Kind, node.APIVersion, node.UID, node.Status.NodeInfo.MachineID)
		}
		if has := lease != nil; has != (node.Name != without) || has && (lease.Name != node.Name || lease.Spec.RenewTime == nil) {
			return fmt.Errorf("node %s has the lease %v, want its own, and %s none", node.Name, lease, without)
		}
		node.Labels, node.Status.Conditions[0].Reason = nil, "Changed" // the caller may change it
		return nil
	})
	if err != nil {
		return fmt.Errorf("Fleet() = %w, want no error", err)
	}
	if !slices.IsSorted(reported) {
		return fmt.Errorf("Fleet() returned %q, want them by name", reported)
	}
	if ours := slices.DeleteFunc(slices.Clone(reported), func(n string) bool { return !strings.HasPrefix(n, b.Name("fleet-")) }); !slices.Equal(ours, names) {
		return fmt.Errorf("Fleet() returned %q, want each of %q once", ours, names)
	}
	if read, err := b.Client.Node(ctx, names[0]); err != nil || read.Status.Conditions[0].Reason == "Changed" {
		return fmt.Errorf("Node() = %v, %w after the caller of Fleet() had changed its copy, want it as it was", read, orNone(err))
	}
	enough := errors.New("enough")
	if err := lister.Fleet(ctx, func(*corev1.Node, *coordinationv1.Lease) error { return enough }); !errors.Is(err, enough) {
		return fmt.Errorf("Fleet() = %w after its callback returned an error, want that error", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	err = lister.Fleet(ended, func(*corev1.Node, *coordinationv1.Lease) error { return nil })
	err = wantError("Fleet() after its context's end", err, context.Canceled)
	if err == nil && !many {
		return &AbsentError{"hosts cannot list the fleet"}
	}
	return err
}

func checkPace(ctx context.Context, b *Backend) error {
	pacer, able := as[controlplane.Pacer](b)
	switch {
	case !able:
		return &AbsentError{"hosts are configured one by one, by an annotation of their Nodes"}
	case b.RequestPace == nil:
		return &UntriedError{"it affects every host of the fleet"}
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen, ended := make(chan string), make(chan error, 1)
	go func() { ended <- pacer.WatchPace(watching, seen) }()
	for i, asked := range []string{"", "2m", "3m", "", "not a duration"} {
		if i > 0 {
			if err := b.RequestPace(ctx, asked); err != nil {
				return fmt.Errorf("set lease duration: %w", err)
			}
		}
		for reported := "before"; reported != asked; {
			select {
			case reported = <-seen:
			case err := <-ended:
				return fmt.Errorf("WatchPace() = %w before it reported %q", err, asked)
			case <-ctx.Done():
				return fmt.Errorf("WatchPace() reported %q, want %q", reported, asked)
			}
		}
	}
	stop()
	err := <-ended
	return errors.Join(wantError("WatchPace() after its context's end", err, context.Canceled), b.RequestPace(ctx, ""))
}
