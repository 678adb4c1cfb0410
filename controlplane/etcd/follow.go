package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// Follow reports all objects of a kind at one revision, and then each change. It lists again after
// a compaction, on another connection, and if the cluster's revision went back.
func (f *Fleet) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	fo := following{f, f.folder(kind), kind, scope, to, quota{}}
	return f.dialer.watch(ctx, f.on("follow", "read", fo.folder), fo.once)
}

// surplusInterval is the time between two lists that take what was surplus of a host, and is not any more.
const surplusInterval = 10 * time.Minute

// following is a Follow in progress.
type following struct {
	fleet  *Fleet
	folder string // of the kind
	kind   store.Kind
	scope  store.Scope
	to     store.Follower
	quota  quota
}

// once follows over one connection. When the server has confirmed the watch, it stops late.
func (f following) once(ctx context.Context, c *conn, late *time.Timer) error {
	late.Stop() // each page has its own deadline
	at, err := f.list(ctx, c)
	if err != nil {
		return err
	}
	late.Reset(callTimeout)
	request := &etcdserverpb.WatchCreateRequest{Key: []byte(f.folder), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(f.folder))}
	if f.scope == store.Deletions {
		request.Filters = []etcdserverpb.WatchCreateRequest_FilterType{etcdserverpb.WatchCreateRequest_NOPUT}
	}
	w, err := c.watch(ctx, request, at)
	if err != nil {
		return err
	}
	progress, ticker := f.newProgress(at), time.NewTicker(store.ConfirmInterval)
	defer ticker.Stop()
	listed := time.Now()
	for {
		select {
		case <-ticker.C:
			if time.Since(listed) > surplusInterval && f.quota.room() {
				return errRestartWatch
			}
			if err := progress.ask(ctx, w, time.Now()); err != nil {
				return err
			}
		case answer := <-progress.answers:
			if err := progress.answer(answer, w, time.Now()); err != nil {
				return err
			}
		case answer := <-w.answers:
			late.Stop()
			if err := w.at.pass(answer); err != nil {
				return err
			}
			for _, event := range answer.Events {
				f.report(at.cluster, event)
			}
			if revision := reached(answer); revision > 0 {
				store.Reached(f.to, strconv.FormatInt(revision, 10))
			}
			progress.pass(answer)
		case err := <-w.failed:
			if tooLarge(err) { // the next list reports that object as unreadable
				return errRestartWatch
			}
			return err
		case <-c.Replaced():
			return errRestartWatch
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// reached returns the revision up to which a watch has reported all changes; 0 if that is not known
// to be newer. The header of an answer with changes can be ahead of them.
func reached(answer *etcdserverpb.WatchResponse) int64 {
	switch {
	case answer.Fragment: // the rest of the revision follows
		return 0
	case len(answer.Events) > 0:
		return answer.Events[len(answer.Events)-1].Kv.ModRevision
	case answer.Created || answer.Canceled:
		return 0
	}
	return answer.Header.Revision
}

// list reports all objects, page by page, and returns the position of the list.
func (f following) list(ctx context.Context, c *conn) (position, error) {
	at, asked, most := position{}, time.Now(), int64(pageSize)
	f.to.Begin()
	clear(f.quota)
	for begin := f.folder; begin != ""; {
		answer, err := f.page(ctx, c, begin, at.revision, &most)
		if errors.Is(err, rpctypes.ErrCompacted) {
			return at, errRestartWatch
		}
		if err != nil {
			return at, err
		}
		if at.revision == 0 {
			at = position{answer.Header.ClusterId, answer.Header.Revision}
		}
		begin = ""
		if answer.More && len(answer.Kvs) > 0 {
			begin = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
		}
		for _, kv := range answer.Kvs {
			f.set(at.cluster, kv, true)
		}
	}
	f.to.Synced()
	store.Reached(f.to, strconv.FormatInt(at.revision, 10))
	store.Confirmed(f.to, asked)
	return at, nil
}

// page reads a page of at most so many objects that begins at a key, at a revision, or at the present
// one if that is 0. If the objects are large, it reads a smaller page, and makes most smaller; it makes
// it larger again slowly. If a single object is too large, it reads only its key.
func (f following) page(ctx context.Context, c *conn, begin string, revision int64, most *int64) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, controlplane.ErrNoAnswer)
	defer cancel()
	options := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(f.folder)), clientv3.WithRev(revision)}
	for {
		answer, err := c.kv.Get(ctx, begin, append(options, clientv3.WithLimit(*most))...)
		switch {
		case !tooLarge(err):
			*most = min(pageSize, *most+1)
			return answer, err
		case *most == 1:
			return c.kv.Get(ctx, begin, append(options, clientv3.WithLimit(1), clientv3.WithKeysOnly())...)
		}
		*most = max(1, *most/10)
	}
}

// report reports a change to the Follower.
func (f following) report(cluster uint64, event *mvccpb.Event) {
	if event.Type != mvccpb.DELETE {
		f.set(cluster, event.Kv, event.Kv.CreateRevision == event.Kv.ModRevision)
		return
	}
	name, ok := f.name(event.Kv)
	if !ok {
		return
	}
	if folder := folderOf(f.kind, name); f.quota.remove(folder, name) {
		f.to.Delete(folder)
	}
	f.to.Delete(name)
}

// set reports a stored object to the Follower, unless it is surplus. created reports that it was not stored before, or
// that a list reports it.
func (f following) set(cluster uint64, kv *mvccpb.KeyValue, created bool) {
	name, ok := f.name(kv)
	if !ok {
		return
	}
	folder := folderOf(f.kind, name)
	is := f.quota.put(folder, name, len(kv.Key)+len(kv.Value), created)
	if is.first {
		f.to.Unreadable(folder, errSurplus)
	}
	if is.none {
		f.to.Delete(folder)
	}
	if !is.taken {
		if is.before {
			f.to.Unreadable(name, errSurplus)
		}
		return
	}
	if len(kv.Value) == 0 {
		f.to.Unreadable(name, &store.UnreadableError{
			Version: versionOf(cluster, kv).String(), Cause: fmt.Sprintf("it is empty, or larger than %d MiB: fix or delete it in the store", maxMessageBytes>>20),
		})
		return
	}
	o, err := read(f.kind, name, cluster, kv)
	if err != nil {
		f.to.Unreadable(name, err)
		return
	}
	f.to.Set(name, o)
}

// name returns the name of a key's object. Other keys below the folder are ignored.
func (f following) name(kv *mvccpb.KeyValue) (string, bool) {
	name := strings.TrimPrefix(string(kv.Key), f.folder)
	return name, f.kind.Is(name)
}
