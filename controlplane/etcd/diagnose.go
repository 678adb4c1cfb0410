package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
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
	// Weaknesses are the CVEs of etcd by which this host, and each other one, can use keys that its rights do not
	// cover. It is empty if the rights cover all keys.
	Weaknesses []string
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
	s.Weaknesses, s.RightsErr = store.weaknesses(ctx, node)
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
	return s.try(ctx, r, func(ctx context.Context, c *conn) error { return c.never(ctx, r.path, op) })
}

// never sends an operation in a transaction whose condition is never true. The condition takes the right to read a key.
func (c *conn) never(ctx context.Context, key string, op clientv3.Op) error {
	never := clientv3.Compare(clientv3.ModRevision(key), "<", 0)
	_, err := c.kv.Txn(ctx).If(never).Then(op).Commit()
	return err
}

// try reports whether etcd refuses a request because this host lacks a right.
func (s *Store) try(ctx context.Context, r right, request func(context.Context, *conn) error) (refused bool, err error) {
	if _, err = s.dialer.do(ctx, request); err == nil || errors.Is(err, rpctypes.ErrPermissionDenied) {
		return err != nil, nil
	}
	return false, s.o.fault(ctx, call{operation: "check permission to " + r.verb, object: r.path, right: r.verb, path: r.path}, s.Endpoint(), err)
}

// weaknesses returns the CVEs by which etcd does what it refuses to this host otherwise. The requests change nothing.
func (s *Store) weaknesses(ctx context.Context, node string) (found []string, err error) {
	own := s.path(objects.Key{Kind: objects.Node, Node: node})
	write, read := right{"write", s.folder(objects.Node, "")}, right{"read", s.settingPath()}
	for _, w := range []struct {
		cve   string
		right right
		plain clientv3.Op // is refused
		by    func(context.Context, *conn) error
	}{
		{"CVE-2026-33343", write, clientv3.OpPut(write.path, ""), func(ctx context.Context, c *conn) error {
			return c.never(ctx, own, clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut(write.path, "")}, nil))
		}},
		{"CVE-2026-73499", read, clientv3.OpGet(read.path, clientv3.WithFromKey(), clientv3.WithKeysOnly()), func(ctx context.Context, c *conn) error {
			return c.watchesOnward(ctx, read.path)
		}},
	} {
		refused, err := s.try(ctx, w.right, func(ctx context.Context, c *conn) error { return c.never(ctx, own, w.plain) })
		if err != nil {
			return found, err
		}
		if !refused {
			continue
		}
		if refused, err = s.try(ctx, w.right, w.by); err != nil {
			return found, err
		}
		if !refused {
			found = append(found, w.cve)
		}
	}
	return found, nil
}

// watchesOnward requests a watch of all keys that are not before a key, from a revision that is never reached.
func (c *conn) watchesOnward(ctx context.Context, key string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := c.watch(ctx, &etcdserverpb.WatchCreateRequest{Key: []byte(key), RangeEnd: []byte{0}}, position{revision: math.MaxInt64 - 1})
	if err != nil {
		return err
	}
	select {
	case answer := <-w.answers:
		if answer.Canceled {
			return refused(answer.CancelReason)
		}
		return nil
	case err := <-w.failed:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
