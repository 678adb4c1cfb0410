// Package fleet reads the other hosts from the control plane, for users. It owns the requests for
// that, their time limits, and the hints if the control plane does not allow this host to read
// them. It stores nothing, and does not judge the state of a host.
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
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/sanitize"
)

// memberTime bounds reading one host.
const memberTime = 10 * time.Second

// Reader reads the fleet from a control plane. It is safe for concurrent use.
type Reader struct {
	client controlplane.Client
	node   string       // of this host
	turns  listen.Turns // for lists: they limit the load on the control plane
}

// New returns a reader for the host with this Node name.
func New(client controlplane.Client, node string) *Reader {
	return &Reader{client: client, node: node, turns: listen.NewTurns()}
}

// Fleet calls each for every host, ordered by Node name, and returns the fleet. It waits until no
// other list runs. Its errors have hints.
func (r *Reader) Fleet(ctx context.Context, each func(Member) error) (Fleet, error) {
	var eachErr error
	err := r.walk(ctx, func(m Member) error {
		eachErr = each(m)
		return eachErr
	})
	answer := r.fleet()
	switch {
	case eachErr != nil:
		return Fleet{}, eachErr
	case errors.Is(err, controlplane.ErrIncomplete):
		answer.Message = sanitize.Text(err.Error(), sanitize.MaxText)
	case err != nil:
		return Fleet{}, r.explain("list the nodes", err)
	}
	return answer, nil
}

// Member returns one host. Every host may read itself, even if the control plane does not let it
// read others. Its errors have hints. If there is no such Node, the hint suggests similar names.
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
	return MemberOf{Member: member(node, lease), ControlPlane: r.fleet()}, nil
}

// walk lists the fleet.
func (r *Reader) walk(ctx context.Context, each func(Member) error) error {
	lister, able := r.client.(controlplane.FleetLister)
	if !able {
		return errNoList
	}
	release, err := r.turns.Take(ctx)
	if err != nil {
		return err
	}
	defer release()
	return lister.Fleet(ctx, func(node *corev1.Node, lease *coordinationv1.Lease) error {
		return each(member(node, lease))
	})
}

// member returns a host without managed fields. They are most of some Nodes, and kubectl hides
// them, too.
func member(node *corev1.Node, lease *coordinationv1.Lease) Member {
	node.ManagedFields = nil
	if lease != nil {
		lease.ManagedFields = nil
	}
	return Member{Node: sanitize.Clean(node), Lease: sanitize.Clean(lease), ReadAt: time.Now()}
}

func (r *Reader) fleet() Fleet {
	return Fleet{Type: r.client.Type(), Endpoint: r.client.Endpoint(), Node: r.node, LeasesEnd: controlplane.EndsLeases(r.client)}
}

// errNoList means that the control plane cannot list Nodes.
var errNoList = errors.New("it does not list other hosts")

// explain returns an error with a hint that says what to do instead.
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
