// Package fleet tells a person of the other hosts, as the control plane has them: it
// owns what is asked of the control plane for that, how long and how often, and what to
// do where it does not let this host see them. It keeps nothing, and refuses to judge
// any host.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/internal/sanitize"
)

// memberTime bounds how long a person waits for one host.
const memberTime = 10 * time.Second

// Reader reads the fleet of a control plane for people. It is safe for concurrent use.
type Reader struct {
	client controlplane.Client
	node   string        // of this host
	turn   chan struct{} // of who goes through the fleet: one at a time, whoever asks how often
}

// New returns a reader for the host of that Node.
func New(client controlplane.Client, node string) *Reader {
	return &Reader{client: client, node: node, turn: make(chan struct{}, 1)}
}

// Fleet calls each for every host, by the name of its Node, once nobody else goes
// through the fleet, and says whose it is. Its errors have hints.
func (r *Reader) Fleet(ctx context.Context, each func(Member) error) (Fleet, error) {
	var whose error // that each ended it
	err := r.walk(ctx, func(m Member) error {
		whose = each(m)
		return whose
	})
	answer := r.whose()
	switch {
	case whose != nil:
		return Fleet{}, whose
	case errors.Is(err, controlplane.ErrIncomplete):
		answer.Message = err.Error()
	case err != nil:
		return Fleet{}, r.explain("list the nodes", err)
	}
	return answer, nil
}

// Member tells of one host: its own as it may, whatever the control plane says of
// others. Its errors have hints; for a name that is not there they are those most
// like it.
func (r *Reader) Member(ctx context.Context, name string) (MemberOf, error) {
	asking, cancel := context.WithTimeout(ctx, memberTime)
	defer cancel()
	node, err := r.client.Node(asking, name)
	if errors.Is(err, controlplane.ErrNotFound) {
		return MemberOf{}, r.missing(asking, name)
	}
	var lease *coordinationv1.Lease
	if err == nil {
		lease, err = r.client.Lease(asking, name)
		if errors.Is(err, controlplane.ErrNotFound) {
			lease, err = nil, nil
		}
	}
	if err != nil {
		return MemberOf{}, r.explain("read node "+name, err)
	}
	return MemberOf{Member: member(node, lease), ControlPlane: r.whose()}, nil
}

// walk goes through the fleet when it is its turn.
func (r *Reader) walk(ctx context.Context, each func(Member) error) error {
	lister, able := r.client.(controlplane.FleetLister)
	if !able {
		return errNoList
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return fmt.Errorf("wait for another list: %w", context.Cause(ctx))
	}
	return lister.Fleet(ctx, func(node *corev1.Node, lease *coordinationv1.Lease) error {
		return each(member(node, lease))
	})
}

// member is what a person gets to see: not who wrote which field when, which is most of
// some Nodes and leads nowhere, as kubectl sees it, too.
func member(node *corev1.Node, lease *coordinationv1.Lease) Member {
	node.ManagedFields = nil
	if lease != nil {
		lease.ManagedFields = nil
	}
	return Member{Node: sanitize.Clean(node), Lease: sanitize.Clean(lease), ReadAt: time.Now()}
}

func (r *Reader) whose() Fleet {
	return Fleet{Type: r.client.Type(), Endpoint: r.client.Endpoint(), Node: r.node, LeasesEnd: controlplane.EndsLeases(r.client)}
}

// errNoList is a control plane that keeps no list.
var errNoList = errors.New("it does not list other hosts")

// explain says what cannot be done, and what to do instead.
func (r *Reader) explain(what string, err error) error {
	e := &hint.Error{Message: fmt.Sprintf("%s of control plane %s at %s: %s", what, r.client.Type(), r.client.Endpoint(), sanitize.Text(err.Error(), sanitize.MaxText))}
	switch {
	case errors.Is(err, controlplane.ErrForbidden) && r.client.Type() == "kubernetes":
		e.Hint = fmt.Sprintf("run `kubectl get nodes` as an administrator, or give this node the right (/usr/share/doc/hostler/docs/reference/kubernetes.md); `hostler nodes %s` shows this one", r.node)
	case errors.Is(err, controlplane.ErrForbidden) && r.client.Type() == "etcd":
		e.Hint = fmt.Sprintf("run these commands, or read the nodes with a user who may (/usr/share/doc/hostler/docs/reference/etcd.md); `hostler nodes %s` shows this one", r.node)
	case errors.Is(err, controlplane.ErrForbidden), errors.Is(err, errNoList):
		e.Hint = fmt.Sprintf("list the nodes with the tools of the control plane, or let this host read them; `hostler nodes %s` shows this one", r.node)
	case errors.Is(err, controlplane.ErrInvalid):
		e.Hint = "the name of a Node is made of a-z, 0-9, - and ., as `hostler nodes` lists them"
	case errors.Is(err, controlplane.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		e.Hint = "run `hostler doctor`, which checks the control plane"
	}
	return e
}
