package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
)

// Status is the outcome of a check.
type Status string

// The outcomes of a check.
const (
	OK      Status = "ok"
	Failed  Status = "failed"
	Absent  Status = "not promised"
	Untried Status = "not tried"
)

// Result is the result of one check.
type Result struct {
	Check   string `json:"check"`
	Status  Status `json:"status"`
	Message string `json:"message,omitempty"` // the defect, or why the check was not tried, or why there is no such promise
	// Forbidden reports that the check was not tried because the credentials do not allow it.
	Forbidden bool `json:"-"`
	// Left are the names of Nodes that could not be removed completely.
	Left []string `json:"left,omitempty"`
}

// Try runs one check and returns its result. It removes all objects of the check, even after a
// failure or when ctx has ended; the clean-up has its own Timeout. The Backend may have another
// Client afterwards, which the caller closes.
func Try(ctx context.Context, c Check, b *Backend) Result {
	n := &recordingClient{Client: b.Client}
	b.Client = n
	err := attempt(ctx, c, b)
	b.Client = n.Client
	r := Result{Check: c.Name, Status: OK}
	if err != nil {
		r.Status, r.Message = Failed, err.Error()
	}
	absent, isAbsent := errors.AsType[*AbsentError](err)
	untried, isUntried := errors.AsType[*UntriedError](err)
	switch {
	case err == nil:
	case isAbsent:
		r.Status, r.Message = Absent, absent.Why
	case isUntried:
		r.Status, r.Message = Untried, untried.Why
	case ctx.Err() != nil:
		r.Status, r.Message = Untried, "interrupted"
	case errors.Is(err, controlplane.ErrForbidden):
		r.Status, r.Forbidden, r.Message = Untried, true, fmt.Sprintf("not allowed by the credentials: %v", n.refusal(err))
	}
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.patient(Timeout))
	defer cancel()
	left, err := n.clean(cleaning, b)
	if err != nil {
		r.Left = left
		if r.Status != Failed {
			r.Status = Failed
			r.Message = fmt.Sprintf("cannot remove the objects of this check: %v", err)
		}
	}
	return r
}

// attempt runs the check with its timeout. A panic of the client counts as a failure.
func attempt(ctx context.Context, c Check, b *Backend) (err error) {
	ctx, cancel := context.WithTimeout(ctx, b.patient(Timeout))
	defer cancel()
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("panic: %v", what)
		}
	}()
	return c.Run(ctx, b)
}

// recordingClient is a Client that records the names of objects that it may have stored, and the
// calls that were forbidden.
type recordingClient struct {
	controlplane.Client

	mu         sync.Mutex // guards the fields below
	made       []string   // names of Nodes and Leases
	withEvents []string   // names of Nodes that have Events
	forbidden  []error
}

// record records the result of a call that stores something under that name.
func (n *recordingClient) record(names *[]string, name string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if errors.Is(err, controlplane.ErrForbidden) {
		n.forbidden = append(n.forbidden, err)
	}
	for _, nothing := range []error{controlplane.ErrForbidden, controlplane.ErrInvalid} {
		if errors.Is(err, nothing) {
			return
		}
	}
	if names != nil && !slices.Contains(*names, name) {
		*names = append(*names, name)
	}
}

// refusal returns the forbidden call that err wraps. If there is none, because the forbidden call
// was one of a role or an edit, it returns err.
func (n *recordingClient) refusal(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.IndexFunc(n.forbidden, func(call error) bool { return errors.Is(err, call) }); i >= 0 {
		return n.forbidden[i]
	}
	return err
}

// clean removes the objects of the check, and returns the names for which that failed. It tries
// each removal three times, because other clients may write at the same time or a server may be
// busy.
func (n *recordingClient) clean(ctx context.Context, b *Backend) (left []string, err error) {
	n.mu.Lock()
	made, reported := slices.Clone(n.made), slices.Clone(n.withEvents)
	n.mu.Unlock()
	var errs []error
	for _, name := range made {
		if err := retry(ctx, func() error { return b.delete(ctx, name) }); err != nil {
			left, errs = append(left, name), append(errs, err)
		}
	}
	remover, able := as[EventRemover](b)
	if !able {
		return left, errors.Join(errs...)
	}
	for _, name := range reported {
		err := retry(ctx, func() error { return remover.RemoveEvents(ctx, name) })
		if err != nil && !errors.Is(err, controlplane.ErrForbidden) { // if forbidden, the control plane removes old Events by itself
			errs = append(errs, err)
			if !slices.Contains(left, name) {
				left = append(left, name)
			}
		}
	}
	return left, errors.Join(errs...)
}

// retry makes up to three calls, a second apart, until one succeeds.
func retry(ctx context.Context, call func() error) (err error) {
	for range 3 {
		if err = call(); err == nil || errors.Is(err, controlplane.ErrForbidden) {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return err
		}
	}
	return err
}

// Register implements controlplane.Client.
func (n *recordingClient) Register(ctx context.Context, node *corev1.Node, o controlplane.RegisterOptions) (*corev1.Node, error) {
	stored, err := n.Client.Register(ctx, node, o)
	n.record(&n.made, node.Name, err)
	return stored, err
}

// Node implements controlplane.Client.
func (n *recordingClient) Node(ctx context.Context, name string) (*corev1.Node, error) {
	stored, err := n.Client.Node(ctx, name)
	n.record(nil, name, err)
	return stored, err
}

// UpdateStatus implements controlplane.Client.
func (n *recordingClient) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	stored, err := n.Client.UpdateStatus(ctx, node)
	n.record(nil, node.Name, err)
	return stored, err
}

// Lease implements controlplane.Client.
func (n *recordingClient) Lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	stored, err := n.Client.Lease(ctx, name)
	n.record(nil, name, err)
	return stored, err
}

// RenewLease implements controlplane.Client.
func (n *recordingClient) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	stored, err := n.Client.RenewLease(ctx, lease)
	n.record(&n.made, lease.Name, err)
	return stored, err
}

// PublishEvent implements controlplane.Client.
func (n *recordingClient) PublishEvent(ctx context.Context, event *corev1.Event) error {
	err := n.Client.PublishEvent(ctx, event)
	n.record(&n.withEvents, event.InvolvedObject.Name, err)
	return err
}

// Leave implements controlplane.Client.
func (n *recordingClient) Leave(ctx context.Context, name string, machine controlplane.Identity) error {
	err := n.Client.Leave(ctx, name, machine)
	n.record(nil, name, err)
	return err
}
