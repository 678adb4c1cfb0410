package maintenance_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/internal/loop"
)

// keeps renews the Lease like the agent. It pauses when the gate closes, but a running renewal ends
// a second later.
func (d *desk) keeps(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- d.Member.While(ctx, loop.New("lease", 0, nil), func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			lease, err := controlplane.NewLease(nodeName, controlplane.Identity{}, 40*time.Second)
			if err != nil {
				return err
			}
			_, err = d.client.RenewLease(context.Background(), controlplane.Renew(lease, time.Now()))
			return err
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	time.Sleep(time.Second)
}

func TestTheLeaseIsPausedBeforeTheNodeLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.register(t)
		d.keeps(t)
		got, err := maintenance.New(d.Options).Leave(t.Context())
		if err != nil || got != (maintenance.LeaveReport{Node: nodeName, ControlPlane: "fake", By: "unknown user", Changed: true}) {
			t.Errorf("Leave() = %+v, %v, want it done", got, err)
		}
		time.Sleep(time.Hour)
		_, nodeErr := d.client.Node(t.Context(), nodeName)
		_, leaseErr := d.client.Lease(t.Context(), nodeName)
		if !errors.Is(nodeErr, controlplane.ErrNotFound) || !errors.Is(leaseErr, controlplane.ErrNotFound) {
			t.Errorf("an hour later: Node() = %v, Lease() = %v, want both gone", nodeErr, leaseErr)
		}
		if d.Member.Reason() == "" {
			t.Error("the lease is kept again")
		}
	})
}

func TestTheLeaseIsPausedFromTheStartAndUntilTheNodeReturns(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.register(t)
		if got, err := maintenance.New(d.Options).Return(t.Context()); got.Changed || err != nil {
			t.Errorf("Return() of a Node that is there = %+v, %v, want nothing done", got, err)
		}
		if _, err := maintenance.New(d.Options).Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.Member = loop.NewGate("") // as in a new agent
		next := maintenance.New(d.Options)
		if d.Member.Reason() == "" {
			t.Error("the lease is kept again after a start")
		}
		if got, err := next.Return(t.Context()); !got.Changed || err != nil || d.Member.Reason() != "" {
			t.Errorf("Return() = %+v, %v, the lease is paused for %q, want it renewed again", got, err, d.Member.Reason())
		}
	})
}

func TestALeaveThatFailsSaysWhatToDo(t *testing.T) {
	kubelet := ownedBy(owner.Auto, &owner.Owner{Name: owner.Kubelet, Evidence: "process kubelet, pid 7"})
	for name, c := range map[string]struct {
		prepare func(*desk)
		paused  bool
		want    []string
	}{
		"a node may not":     {func(d *desk) { d.fails(controlplane.ErrForbidden) }, true, []string{"forbidden", "have an administrator delete", "hostler leave --undo"}},
		"there is no answer": {func(d *desk) { d.fails(controlplane.ErrUnavailable) }, false, []string{"unavailable", "nothing has changed"}},
		"the Node is another machine's": {func(d *desk) {
			d.fails(&controlplane.IdentityError{Name: "node-a", Theirs: controlplane.Identity{MachineID: "theirs"}})
		}, false, []string{"theirs", "and stays", "node.enabled: false"}},
		"the Node is a kubelet's": {func(d *desk) { d.Owners = kubelet; d.over(d.client) }, false, []string{"pid 7", "kubectl delete node node-a"}},
		"there is no Node":        {func(d *desk) { d.Owners = ownedBy(owner.Off, nil); d.over(d.client) }, false, []string{"switched off", "node.enabled: false"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.register(t)
				c.prepare(d)
				_, err := maintenance.New(d.Options).Leave(t.Context())
				var reported *hint.Error
				if !errors.As(err, &reported) {
					t.Fatalf("Leave() = %v, want an error with a hint", err)
				}
				for _, want := range c.want {
					if !strings.Contains(reported.Error(), want) {
						t.Errorf("Leave() = %v, want %q in it", reported, want)
					}
				}
				if got := d.Member.Reason() != ""; got != c.paused {
					t.Errorf("the lease is paused: %v, want %v", got, c.paused)
				}
			})
		})
	}
}

func TestAHostThatLeavesRemovesTheObjectsOfItsPods(t *testing.T) {
	for name, c := range map[string]struct {
		fault controlplanetest.Fault // of the control plane
		err   error                  // of the removal
		calls int
		want  string
	}{
		"all go":                         {controlplanetest.Fault{}, nil, 1, ""},
		"they stay":                      {controlplanetest.Fault{}, controlplane.ErrForbidden, 1, "objects of pods stay, remove them: forbidden"},
		"they stay, as the lease":        {controlplanetest.Fault{LeaseStays: true}, controlplane.ErrUnavailable, 1, "objects of pods stay"},
		"the Node has to be deleted":     {controlplanetest.Fault{Err: controlplane.ErrForbidden}, controlplane.ErrForbidden, 1, "objects of pods stay"},
		"the Node stays, and so do they": {controlplanetest.Fault{Err: controlplane.ErrUnavailable}, nil, 0, "nothing has changed"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.register(t)
				d.client.Inject(controlplanetest.Leave, c.fault)
				calls := 0
				d.RemovePods = func(context.Context) error { calls++; return c.err }
				got, err := maintenance.New(d.Options).Leave(t.Context())
				text := got.Message
				if err != nil {
					text = err.Error()
				}
				if calls != c.calls || !strings.Contains(text, c.want) || c.want == "" && text != "" {
					t.Errorf("Leave() = %+v, %v, with %d removals, want %q, with %d", got, err, calls, c.want, c.calls)
				}
			})
		})
	}
}

func TestALeaveSucceedsEvenIfTheLeaseStays(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.register(t)
		d.client.Inject(controlplanetest.Leave, controlplanetest.Fault{LeaseStays: true})
		got, err := maintenance.New(d.Options).Leave(t.Context())
		if err != nil || !got.Changed || !strings.Contains(got.Message, "runs out by itself") || d.Member.Reason() == "" {
			t.Errorf("Leave() = %+v, %v, the lease is paused for %q, want the Lease deleted, and the pause reported", got, err, d.Member.Reason())
		}
	})
}

// fails makes the control plane reject the deletion of the Node.
func (d *desk) fails(err error) {
	d.client.Inject(controlplanetest.Leave, controlplanetest.Fault{Err: err})
}
