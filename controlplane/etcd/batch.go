package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

const (
	// mostInBatch is the maximum number of writes in a batch. With the comparisons of each, the batch
	// stays below the default of etcd's --max-txn-ops, 128.
	mostInBatch = 16
	// mostBatchBytes is the maximum size of the values in a batch with several writes. etcd accepts
	// requests of 1.5 MiB.
	mostBatchBytes = 512 << 10
)

// batches are writes that compare ranges of keys. For such a comparison, etcd reads all keys of the range and blocks
// other writes: 100 ms for 10,000 objects. So there is one transaction at a time. It has all writes that wait for it.
type batches struct {
	running chan struct{} // has one element while a batch is in progress

	mu     sync.Mutex // guards what follows
	next   [2]*batch  // accept more writes: the second one those that compare what hosts write; nil if there is none
	halved int        // how often mostInBatch was too many for a cluster with a lower --max-txn-ops
}

// batch is a transaction that contains several writes.
type batch struct {
	ranges map[store.Range]int64 // no key there may have changed after that revision
	writes []clientv3.Op         // one nested transaction for each write
	keys   map[string]bool       // keys that the writes compare; true if a write changes the key
	bytes  int                   // of their values
	done   chan struct{}         // closed when answer and err are valid
	answer *clientv3.TxnResponse
	err    error
}

// accepts reports whether the batch can accept another write. etcd makes all comparisons of a
// transaction before its first write. So if one write changes a key, another one cannot compare it.
func (b *batch) accepts(compare []clientv3.Cmp, then []clientv3.Op) bool {
	bytes := b.bytes
	for _, cmp := range compare {
		if b.keys[string(cmp.KeyBytes())] {
			return false
		}
	}
	for _, op := range then {
		bytes += len(op.ValueBytes())
		if _, known := b.keys[string(op.KeyBytes())]; known {
			return false
		}
	}
	return bytes <= mostBatchBytes
}

// commit writes if no key of the ranges has changed after its revision, and the comparisons hold;
// otherwise ErrConflict.
func (c *conn) commit(ctx context.Context, ranges map[store.Range]int64, compare []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	next := 0
	for r := range ranges {
		if r.Hosts { // a host may write all the time, which must fail no other writes
			next = 1
		}
	}
	c.batches.mu.Lock()
	b := c.batches.next[next]
	if b == nil || len(b.writes) >= mostInBatch>>c.batches.halved || !b.accepts(compare, then) {
		b = &batch{ranges: map[store.Range]int64{}, keys: map[string]bool{}, done: make(chan struct{})}
		c.batches.next[next] = b
		go c.run(context.WithoutCancel(ctx), b)
	}
	n := len(b.writes)
	b.writes = append(b.writes, clientv3.OpTxn(compare, then, otherwise))
	for _, cmp := range compare {
		b.keys[string(cmp.KeyBytes())] = b.keys[string(cmp.KeyBytes())]
	}
	for _, op := range then {
		b.keys[string(op.KeyBytes())], b.bytes = true, b.bytes+len(op.ValueBytes())
	}
	for r, revision := range ranges {
		if before, known := b.ranges[r]; !known || revision < before {
			b.ranges[r] = revision
		}
	}
	c.batches.mu.Unlock()
	select {
	case <-b.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	switch {
	case b.err != nil:
		return nil, b.err
	case !b.answer.Succeeded:
		return nil, errChanged
	}
	own := b.answer.Responses[n].GetResponseTxn()
	return &clientv3.TxnResponse{Header: b.answer.Header, Succeeded: own.Succeeded, Responses: own.Responses}, nil
}

// run waits for its turn and commits the batch.
func (c *conn) run(ctx context.Context, b *batch) {
	defer close(b.done)
	c.batches.running <- struct{}{}
	defer func() { <-c.batches.running }()
	c.batches.mu.Lock()
	for i, next := range c.batches.next {
		if next == b {
			c.batches.next[i] = nil
		}
	}
	c.batches.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, controlplane.ErrNoAnswer)
	defer cancel()
	var compare []clientv3.Cmp
	for r, revision := range b.ranges {
		compare = append(compare, unchangedSince(r, revision))
	}
	b.answer, b.err = c.kv.Txn(ctx).If(compare...).Then(b.writes...).Commit()
	if errors.Is(b.err, rpctypes.ErrTooManyOps) && len(b.writes) > 1 {
		c.batches.mu.Lock()
		defer c.batches.mu.Unlock()
		c.batches.halved++
		b.err = fmt.Errorf("%w: %d writes are too many for one transaction", controlplane.ErrConflict, len(b.writes))
	}
}
