package etcd

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// A leader writes its record at PREFIX/elections/CONTROLLER again and again, and other candidates see it change. The
// record has no etcd lease: everybody can keep an etcd lease alive.

// record is the record of a term.
type record struct {
	store.Leader
	// Term is a random text, so that each term has another record, also after a backup was restored.
	Term string `json:"term"`
	// Seconds is how long the term lasts after the record was last written.
	Seconds int64 `json:"seconds"`
}

// term is a Term as etcd compares it.
type term struct {
	path  string // of the record
	value string // the record as JSON, which is Term.Token
}

func (f *Fleet) termOf(of store.Term) term {
	return term{f.electionPath(of.Controller), of.Token}
}

// comparison is that of a transaction that fails once the term has ended.
func (t term) comparison() clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(t.path), "=", t.value)
}

// matches reports whether the found key belongs to the term.
func (t term) matches(found []*mvccpb.KeyValue) bool {
	return len(found) == 1 && string(found[0].Value) == t.value
}

// electionPath returns the key of a controller's leader.
func (f *Fleet) electionPath(controller string) string {
	return f.o.Prefix + "/elections/" + controller
}

// Elect stores a record of the candidate, unless there is a leader.
func (f *Fleet) Elect(ctx context.Context, controller, candidate string, ttl time.Duration) (store.Term, store.Leader, error) {
	if err := store.CheckElect(controller, candidate, ttl); err != nil {
		return store.Term{}, store.Leader{}, err
	}
	won := store.Term{Controller: controller, Candidate: candidate, TTL: ttl}
	var leader store.Leader
	err := f.callElection(ctx, "elect", "write", controller, func(ctx context.Context, c *conn, path string) error {
		revision := int64(0)
		header, kv, err := c.read(ctx, path)
		switch {
		case errors.Is(err, controlplane.ErrNotFound):
		case err != nil:
			return err
		default:
			if now, err := f.leaderIn(controller, header, kv); err != nil || now != (store.Leader{}) {
				leader = now
				return err
			}
			revision = kv.ModRevision
		}
		won.Token, leader, err = f.elect(ctx, c, path, revision, won)
		return err
	})
	if err != nil || won.Token == "" {
		return store.Term{}, leader, err
	}
	return won, leader, nil
}

// elect stores a record, and returns it. If another candidate was faster, it returns that one as the leader.
func (f *Fleet) elect(ctx context.Context, c *conn, path string, revision int64, won store.Term) (string, store.Leader, error) {
	r := record{store.Leader{Candidate: won.Candidate, Since: time.Now().UTC().Truncate(time.Second)}, rand.Text(), int64(won.TTL / time.Second)}
	value, err := json.Marshal(r)
	if err != nil {
		return "", store.Leader{}, fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	answer, err := c.kv.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(path), "=", revision)).
		Then(clientv3.OpPut(path, string(value))).Else(clientv3.OpGet(path)).Commit()
	switch {
	case err != nil:
		return "", store.Leader{}, err
	case answer.Succeeded:
		return string(value), r.Leader, nil
	}
	found := answer.Responses[0].GetResponseRange().GetKvs()
	if len(found) == 0 { // it was faster, and has resigned
		return "", store.Leader{}, nil
	}
	leader, err := f.leaderIn(won.Controller, answer.Header, found[0])
	return "", leader, err
}

// leaderIn returns the leader in a record; the zero value if its term has ended, ErrInvalid if the term lasts and the
// record cannot be read.
func (f *Fleet) leaderIn(controller string, header *etcdserverpb.ResponseHeader, kv *mvccpb.KeyValue) (store.Leader, error) {
	var r record
	err := json.Unmarshal(kv.Value, &r)
	if err == nil && r.Candidate == "" {
		err = errors.New("no candidate is named")
	}
	switch {
	case !f.sightings.Alive(controller, versionOf(header.ClusterId, kv).String(), store.TermOf(r.Seconds)):
		return store.Leader{}, nil
	case err != nil:
		return store.Leader{}, fmt.Errorf("%w: %w: %w: delete %s in the store", controlplane.ErrInvalid, store.ErrUnreadable, err, kv.Key)
	}
	return r.Leader, nil
}

// Extend stores the same record again, which other candidates see.
func (f *Fleet) Extend(ctx context.Context, of store.Term) error {
	return f.callElection(ctx, "extend", "write", of.Controller, func(ctx context.Context, c *conn, path string) error {
		_, err := f.swap(ctx, c, nil, nil, of, clientv3.OpPut(path, of.Token))
		return err
	})
}

// Resign deletes the record.
func (f *Fleet) Resign(ctx context.Context, of store.Term) error {
	return f.callElection(ctx, "resign", "write", of.Controller, func(ctx context.Context, c *conn, path string) error {
		_, err := f.swap(ctx, c, nil, nil, of, clientv3.OpDelete(path))
		if errors.Is(err, store.ErrDeposed) {
			return nil
		}
		return err
	})
}

// Leader reads the leader.
func (f *Fleet) Leader(ctx context.Context, controller string) (store.Leader, error) {
	var leader store.Leader
	err := f.callElection(ctx, "get", "read", controller, func(ctx context.Context, c *conn, path string) error {
		header, kv, err := c.read(ctx, path)
		if err == nil {
			leader, err = f.leaderIn(controller, header, kv)
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
