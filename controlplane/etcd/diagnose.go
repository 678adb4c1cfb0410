package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/dial"
	"hostler.io/hostler/controlplane/objects"
)

// Diagnosis is the result of one check of a cluster. The check changes nothing.
type Diagnosis struct {
	Members []MemberDiagnosis // as in Options.Endpoints
	// Node reports that the Node exists, Leaseless that its Lease does not. Both are false if they may
	// not be read, or if no member answers.
	Node, Leaseless bool
	// MissingRights are the rights that this host needs and does not have, such as "write /hostler/leases/n".
	// RightsErr is why they are unknown.
	MissingRights []string
	RightsErr     error
	// Unreachable is the key of the settings for all hosts if this host may not read it; otherwise
	// empty.
	Unreachable string
	// Grants says who runs which commands to give this host all of these rights.
	Grants string
}

// MemberDiagnosis is the result for one member.
type MemberDiagnosis struct {
	Endpoint string
	Err      error // nil if it serves reads confirmed by a majority, even if it refuses them
}

// Diagnose checks each member of the Options once, over connections of its own.
func Diagnose(ctx context.Context, o Options, node string) Diagnosis {
	s := Diagnosis{Members: make([]MemberDiagnosis, len(o.Endpoints))}
	var checks sync.WaitGroup
	o.Node = node
	var first sync.Once // the first member that answers; one that hangs must not use up the time
	for i, to := range o.Endpoints {
		checks.Go(func() {
			alone := o
			alone.Endpoints = []string{to}
			s.Members[i].Endpoint = to
			store, err := New(alone)
			if err != nil {
				s.Members[i].Err = err
				return
			}
			defer func() { _ = store.Close() }()
			found, err := store.nodeExists(ctx, node)
			if s.Members[i].Err = err; err == nil {
				first.Do(func() { s.readShared(ctx, store, node, found) })
			}
		})
	}
	checks.Wait()
	return s
}

// nodeExists reports whether the Node exists; false if the read is forbidden. It returns an error
// if the majority does not answer.
func (s *Store) nodeExists(ctx context.Context, node string) (bool, error) {
	_, err := s.Get(ctx, objects.Key{Kind: objects.Node, Node: node})
	if errors.Is(err, controlplane.ErrNotFound) || errors.Is(err, controlplane.ErrForbidden) {
		return false, nil
	}
	return err == nil, err
}

// readShared reads from one member what is the same for all members.
func (s *Diagnosis) readShared(ctx context.Context, store *Store, node string, found bool) {
	_, err := store.Get(ctx, objects.Key{Kind: objects.Lease, Node: node})
	s.Node, s.Leaseless = found, errors.Is(err, controlplane.ErrNotFound)
	var missing []right
	if missing, s.RightsErr = store.missingRights(ctx, node); s.RightsErr != nil {
		return
	}
	s.Grants = store.o.grants(hostRole(node), missing)
	for _, r := range missing {
		if r.path == store.settingPath() {
			s.Unreachable = r.path
			continue
		}
		s.MissingRights = append(s.MissingRights, r.String())
	}
}

// missingRights returns the rights that a host would use and does not have.
func (s *Store) missingRights(ctx context.Context, node string) (missing []right, err error) {
	for _, r := range s.rights(node) {
		refused, err := s.refuses(ctx, r)
		if err != nil {
			return nil, err
		}
		if refused {
			missing = append(missing, r)
		}
	}
	return missing, nil
}

// refuses reports whether this host lacks a right. It tries a transaction whose condition is never
// true: etcd checks the rights for all its operations before the condition.
func (s *Store) refuses(ctx context.Context, r right) (bool, error) {
	op := clientv3.OpGet(r.path, clientv3.WithKeysOnly())
	if r.verb == "write" {
		op = clientv3.OpPut(r.path, "")
	}
	never := clientv3.Compare(clientv3.ModRevision(r.path), "<", 0)
	_, err := s.dialer.do(ctx, func(ctx context.Context, c *conn) error {
		_, err := c.kv.Txn(ctx).If(never).Then(op).Commit()
		return err
	})
	if err == nil || errors.Is(err, rpctypes.ErrPermissionDenied) {
		return err != nil, nil
	}
	return false, s.o.fault(ctx, call{operation: "check permission to " + r.verb, object: r.path, right: r.verb, path: r.path}, s.Endpoint(), err)
}

// Validity returns when the client certificate begins and ends; zero without a certificate.
func (o Options) Validity() (begins, ends time.Time, err error) {
	if o.Certificate == "" {
		return begins, ends, nil
	}
	pair, err := o.pair()
	if err != nil {
		return begins, ends, fmt.Errorf("certificate %s with key %s: %w: %s", o.Certificate, o.Key, err, dial.FileHint(err))
	}
	return pair.Leaf.NotBefore, pair.Leaf.NotAfter, nil
}
