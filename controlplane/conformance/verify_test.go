package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// stranger returns a Node that existed before the suite.
func stranger() *corev1.Node {
	node := &corev1.Node{}
	node.Name = "stranger"
	node.Labels = map[string]string{"theirs": "yes"}
	return node
}

// wantOnlyTheStranger fails if an object of the suite is left.
func wantOnlyTheStranger(t *testing.T, fake *controlplanetest.Fake, version string) {
	t.Helper()
	nodes, _ := fake.Nodes(t.Context())
	events, _ := fake.Events(t.Context())
	if len(nodes) != 1 || nodes[0].Name != "stranger" || nodes[0].ResourceVersion != version || len(events) > 0 {
		t.Errorf("after a verification there are nodes %v and events %v, want the stranger alone, untouched", nodes, events)
	}
}

func newFleet(t *testing.T) (fake *controlplanetest.Fake, version string) {
	t.Helper()
	fake = controlplanetest.NewFake(nil)
	fake.Create(stranger())
	node, err := fake.Node(t.Context(), "stranger")
	if err != nil {
		t.Fatal(err)
	}
	return fake, node.ResourceVersion
}

func TestAVerificationLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, version := newFleet(t)
		b := conformance.Backend{Client: fake, Prefix: conformance.NewPrefix()}
		reported := 0
		results, err := conformance.Verify(t.Context(), &b, conformance.Checks(), func(conformance.Result) { reported++ })
		if err != nil || reported != len(results) || len(results) != len(conformance.Checks()) {
			t.Fatalf("Verify() = %d results, %v, %d reported, want all", len(results), err, reported)
		}
		for _, r := range results {
			if r.Status == conformance.Failed || len(r.Left) > 0 {
				t.Errorf("%s: %s %s, left %v, want it not to fail and nothing left", r.Check, r.Status, r.Message, r.Left)
			}
		}
		wantOnlyTheStranger(t, fake, version)
	})
}

// failing is a client whose renewals fail after another object was stored.
type failing struct{ *controlplanetest.Fake }

func (c *failing) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if _, err := c.Fake.RenewLease(ctx, lease); err != nil {
		return nil, err
	}
	return nil, errors.New("the moon is full")
}

func TestAVerificationLeavesNothingBehindWhereChecksFailOrPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, version := newFleet(t)
		b := conformance.Backend{Client: &failing{fake}, Prefix: conformance.NewPrefix()}
		panics := conformance.Check{Name: "panics", Run: func(ctx context.Context, b *conformance.Backend) error {
			node := stranger()
			node.Name = b.Name("panicking")
			if _, err := b.Client.Register(ctx, node, controlplane.RegisterOptions{}); err != nil {
				return err
			}
			panic("at the disco")
		}}
		results, err := conformance.Verify(t.Context(), &b, append(conformance.Checks(), panics), nil)
		if err != nil {
			t.Fatal(err)
		}
		failed := 0
		for _, r := range results {
			if r.Status == conformance.Failed {
				failed++
			}
		}
		if last := results[len(results)-1]; failed < 10 || last.Message != "panic: at the disco" {
			t.Errorf("Verify() of a client that fails gave %d failures, the last %+v, want many, and the panic", failed, last)
		}
		wantOnlyTheStranger(t, fake, version)
	})
}

func TestAVerificationThatIsInterruptedLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, version := newFleet(t)
		ctx, interrupt := context.WithCancel(t.Context())
		b := conformance.Backend{Client: &interrupting{fake, interrupt}, Prefix: conformance.NewPrefix()}
		results, err := conformance.Verify(ctx, &b, conformance.Checks(), nil)
		if err != nil || len(results) != len(conformance.Checks()) {
			t.Fatalf("Verify() = %d results, %v, want all of them", len(results), err)
		}
		if last := results[len(results)-1]; last.Status != conformance.Untried || last.Message != "interrupted" {
			t.Errorf("the last result after an interruption = %+v, want it not tried", last)
		}
		wantOnlyTheStranger(t, fake, version)
	})
}

// interrupting is a client whose user interrupts at the first Lease.
type interrupting struct {
	*controlplanetest.Fake
	interrupt context.CancelFunc
}

func (c *interrupting) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	defer c.interrupt()
	return c.Fake.RenewLease(ctx, lease)
}

// keeping is a client that deletes nothing.
type keeping struct{ *controlplanetest.Fake }

func (c *keeping) Leave(context.Context, string, controlplane.Identity) error {
	return fmt.Errorf("leave: %w", controlplane.ErrForbidden)
}

func TestWhatCannotBeRemovedIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, _ := newFleet(t)
		b := conformance.Backend{Client: &keeping{fake}, Prefix: conformance.NewPrefix()}
		r := conformance.Try(t.Context(), conformance.Checks()[0], &b)
		if r.Status != conformance.Failed || len(r.Left) != 1 || r.Left[0] != b.Name("new") || !strings.Contains(r.Message, "cannot remove the objects") {
			t.Errorf("Try() of a client that may not delete = %+v, want it failed, and the node named", r)
		}
		if err := conformance.Remove(t.Context(), fake, r.Left[0]); err != nil {
			t.Errorf("Remove(%q) = %v, want no error", r.Left[0], err)
		}
		if _, err := fake.Node(t.Context(), r.Left[0]); !errors.Is(err, controlplane.ErrNotFound) {
			t.Errorf("Node(%q) after Remove() = %v, want it not found", r.Left[0], err)
		}
		if err := conformance.Remove(t.Context(), fake, "stranger"); err == nil {
			t.Error("Remove() of another's node = no error, want it refused")
		}
	})
}

// poor is a client without any rights.
type poor struct{ *controlplanetest.Fake }

func (c *poor) Register(_ context.Context, node *corev1.Node, _ controlplane.RegisterOptions) (*corev1.Node, error) {
	return nil, fmt.Errorf("create node %q: %w", node.Name, controlplane.ErrForbidden)
}

func TestWhatIsForbiddenIsNotTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, version := newFleet(t)
		b := conformance.Backend{Client: &poor{fake}, Prefix: conformance.NewPrefix()}
		r := conformance.Try(t.Context(), conformance.Checks()[0], &b)
		if r.Status != conformance.Untried || !r.Forbidden || !strings.Contains(r.Message, "not allowed by the credentials") {
			t.Errorf("Try() of a client that may not register = %+v, want it not tried", r)
		}
		wantOnlyTheStranger(t, fake, version)
	})
}

// reticent is a client that may not publish Events.
type reticent struct{ *controlplanetest.Fake }

func (c *reticent) PublishEvent(_ context.Context, event *corev1.Event) error {
	return fmt.Errorf("publish event %q: %w", event.Name, controlplane.ErrForbidden)
}

func TestWhatFailsBesideSomethingForbiddenHasFailed(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(refused error) error
		want conformance.Status
	}{
		"for another reason":  {func(error) error { return errors.New("the moon is full") }, conformance.Failed},
		"for being forbidden": {func(refused error) error { return fmt.Errorf("PublishEvent() = %w, want no error", refused) }, conformance.Untried},
		"not at all":          {func(error) error { return nil }, conformance.OK},
	} {
		synctest.Test(t, func(t *testing.T) {
			fake, _ := newFleet(t)
			b := conformance.Backend{Client: &reticent{fake}, Prefix: conformance.NewPrefix()}
			r := conformance.Try(t.Context(), conformance.Check{Name: "tells", Run: func(ctx context.Context, b *conformance.Backend) error {
				event := &corev1.Event{InvolvedObject: controlplane.NodeReference(b.Name("told"))}
				event.Name = b.Name("told.1")
				return c.end(b.Client.PublishEvent(ctx, event))
			}}, &b)
			if r.Status != c.want || r.Forbidden != (c.want == conformance.Untried) {
				t.Errorf("Try() of a check that ends %s = %+v, want it %s", name, r, c.want)
			}
			if want := `not allowed by the credentials: publish event "` + b.Name("told.1") + `": forbidden`; r.Forbidden && !strings.HasPrefix(r.Message, want) {
				t.Errorf("Try() of a check that ends %s says %q, want %q", name, r.Message, want)
			}
		})
	}
}

func TestAControlPlaneThatDoesNotAnswerIsNotVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake, _ := newFleet(t)
		fake.Inject(controlplanetest.Any, controlplanetest.Fault{Err: controlplane.ErrUnavailable})
		b := conformance.Backend{Client: fake, Prefix: conformance.NewPrefix()}
		if results, err := conformance.Verify(t.Context(), &b, conformance.Checks(), nil); !errors.Is(err, controlplane.ErrUnavailable) {
			t.Errorf("Verify() of a control plane that does not answer = %v, %v, want that it is unavailable", results, err)
		}
	})
}
