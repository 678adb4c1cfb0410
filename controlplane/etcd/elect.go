package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// term is a Term as etcd compares it. A restored backup may use its revision for another key, but
// not its etcd lease, whose ID is random.
type term struct {
	path   string // PREFIX/elections/CONTROLLER
	create int64  // revision of the key
	lease  clientv3.LeaseID
}

// tokenFormat is the format of Term.Token.
const tokenFormat = "%d-%016x"

// token returns the text that parse reads.
func (t term) token() string { return fmt.Sprintf(tokenFormat, t.create, uint64(t.lease)) }

// comparisons returns the comparisons of a transaction that fail once the term has ended.
func (t term) comparisons() []clientv3.Cmp {
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.CreateRevision(t.path), "=", t.create),
		clientv3.Compare(clientv3.LeaseValue(t.path), "=", t.lease),
	}
}

// matches reports whether the found key belongs to the term.
func (t term) matches(found []*mvccpb.KeyValue) bool {
	return len(found) == 1 && found[0].CreateRevision == t.create && found[0].Lease == int64(t.lease)
}

// parse decodes a Term; ErrInvalid.
func (f *Fleet) parse(of store.Term) (term, error) {
	t, lease := term{path: f.electionPath(of.Controller)}, uint64(0)
	if _, err := fmt.Sscanf(of.Token, tokenFormat, &t.create, &lease); err != nil {
		return term{}, fmt.Errorf("%w: term %q does not belong to this store", controlplane.ErrInvalid, of.Token)
	}
	t.lease = clientv3.LeaseID(lease)
	return t, nil
}

// electionPath returns the key of a controller's leader.
func (f *Fleet) electionPath(controller string) string {
	return f.o.Prefix + "/elections/" + controller
}

// Elect stores the candidate's name under a new etcd lease, unless there is a leader.
func (f *Fleet) Elect(ctx context.Context, controller, candidate string, ttl time.Duration) (store.Term, store.Leader, error) {
	if err := store.CheckElect(controller, candidate, ttl); err != nil {
		return store.Term{}, store.Leader{}, err
	}
	var won store.Term
	var leader store.Leader
	err := f.callElection(ctx, "elect", "write", controller, func(ctx context.Context, c *conn, path string) error {
		_, kv, err := c.read(ctx, path)
		if !errors.Is(err, controlplane.ErrNotFound) {
			if err == nil {
				leader, err = parseLeader(kv)
			}
			return err
		}
		won, leader, err = c.elect(ctx, path, store.Term{Controller: controller, Candidate: candidate, TTL: ttl})
		return err
	})
	if err != nil {
		return store.Term{}, store.Leader{}, err
	}
	return won, leader, nil
}

// elect stores a leader if there was none. If another candidate was faster, it returns that one.
func (c *conn) elect(ctx context.Context, path string, won store.Term) (store.Term, store.Leader, error) {
	leader := store.Leader{Candidate: won.Candidate, Since: time.Now().UTC().Truncate(time.Second)}
	value, err := json.Marshal(leader)
	if err != nil {
		return store.Term{}, store.Leader{}, fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	lease, err := newGrant(ctx, c, won.TTL)
	if err != nil {
		return store.Term{}, store.Leader{}, err
	}
	answer, err := c.kv.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(path), "=", 0)).
		Then(clientv3.OpPut(path, string(value), clientv3.WithLease(lease))).Else(clientv3.OpGet(path)).Commit()
	switch {
	case err != nil: // the etcd lease ends by itself
		return store.Term{}, store.Leader{}, err
	case answer.Succeeded:
		won.Token = term{create: answer.Header.Revision, lease: lease}.token()
		return won, leader, nil
	}
	_ = c.revoke(ctx, lease) // if that fails, it ends by itself
	leader, err = parseLeader(answer.Responses[0].GetResponseRange().GetKvs()[0])
	return store.Term{}, leader, err
}

// parseLeader decodes the leader; ErrInvalid.
func parseLeader(kv *mvccpb.KeyValue) (store.Leader, error) {
	var leader store.Leader
	err := json.Unmarshal(kv.Value, &leader)
	if err == nil && leader.Candidate == "" {
		err = errors.New("no candidate is named")
	}
	if err != nil {
		return store.Leader{}, fmt.Errorf("%w: %w: %w: delete %s in the store", controlplane.ErrInvalid, store.ErrUnreadable, err, kv.Key)
	}
	return leader, nil
}

// Extend renews the etcd lease, and then checks that the key still belongs to it: a person may have
// deleted the key.
func (f *Fleet) Extend(ctx context.Context, of store.Term) error {
	t, err := f.parse(of)
	if err != nil {
		return fmt.Errorf("extend term of %q: %w", of.Controller, err)
	}
	return f.callElection(ctx, "extend", "write", of.Controller, func(ctx context.Context, c *conn, path string) error {
		if alive, err := keepAlive(ctx, c, t.lease); err != nil || !alive {
			return orDeposed(err)
		}
		_, kv, err := c.read(ctx, path)
		if errors.Is(err, controlplane.ErrNotFound) || err == nil && !t.matches([]*mvccpb.KeyValue{kv}) {
			return store.ErrDeposed
		}
		return err
	})
}

// orDeposed returns err; if it is nil, the error of a term that has ended.
func orDeposed(err error) error {
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return store.ErrDeposed
	}
	return err
}

// Resign revokes the etcd lease, and so deletes the leader's key. No other key belongs to the etcd
// lease.
func (f *Fleet) Resign(ctx context.Context, of store.Term) error {
	t, err := f.parse(of)
	if err != nil {
		return fmt.Errorf("resign from %q: %w", of.Controller, err)
	}
	return f.callElection(ctx, "resign", "write", of.Controller, func(ctx context.Context, c *conn, _ string) error {
		err := c.revoke(ctx, t.lease)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil
		}
		return err
	})
}

// revoke revokes an etcd lease, which deletes all its keys.
func (c *conn) revoke(ctx context.Context, lease clientv3.LeaseID) error {
	_, err := c.leases.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: int64(lease)})
	return rpctypes.Error(err)
}

// Leader reads the leader.
func (f *Fleet) Leader(ctx context.Context, controller string) (store.Leader, error) {
	var leader store.Leader
	err := f.callElection(ctx, "get", "read", controller, func(ctx context.Context, c *conn, path string) error {
		_, kv, err := c.read(ctx, path)
		if err == nil {
			leader, err = parseLeader(kv)
		} else if errors.Is(err, controlplane.ErrNotFound) {
			err = nil
		}
		return err
	})
	return leader, err
}

// callElection makes a call on the election of a controller.
func (f *Fleet) callElection(ctx context.Context, operation, right, controller string, request func(ctx context.Context, c *conn, path string) error) error {
	if err := controlplane.CheckCall(ctx, operation+" elections", controller); err != nil {
		return err
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	path := f.electionPath(controller)
	return f.election.call(ctx, f.on(operation, right, path), func(ctx context.Context, c *conn) error { return request(ctx, c, path) })
}
