package etcd_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/store"
)

// odd is a member that answers as it likes.
type odd struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedLeaseServer
	etcdserverpb.UnimplementedWatchServer
	found   *etcdserverpb.RangeResponse
	swapped *etcdserverpb.TxnResponse
	granted *etcdserverpb.LeaseGrantResponse
	watched *etcdserverpb.WatchResponse
}

func (o *odd) Range(context.Context, *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return o.found, nil
}

func (o *odd) Txn(context.Context, *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	return o.swapped, nil
}

func (o *odd) LeaseGrant(context.Context, *etcdserverpb.LeaseGrantRequest) (*etcdserverpb.LeaseGrantResponse, error) {
	return o.granted, nil
}

func (o *odd) Watch(stream etcdserverpb.Watch_WatchServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	return stream.Send(o.watched)
}

func (o *odd) register(server *grpc.Server) {
	etcdserverpb.RegisterKVServer(server, o)
	etcdserverpb.RegisterLeaseServer(server, o)
	etcdserverpb.RegisterWatchServer(server, o)
}

// TestAMembersOddAnswersAreErrors has answers that do not belong to the requests, in all calls of agents and servers.
func TestAMembersOddAnswersAreErrors(t *testing.T) {
	header := &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 10}
	keys := func(keys ...string) *etcdserverpb.RangeResponse {
		r := &etcdserverpb.RangeResponse{Header: header, More: true}
		for _, key := range keys {
			r.Kvs = append(r.Kvs, &mvccpb.KeyValue{Key: []byte(key), Value: []byte("{}"), CreateRevision: 1, ModRevision: 1})
		}
		return r
	}
	part := func(r *etcdserverpb.RangeResponse) *etcdserverpb.ResponseOp {
		return &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: r}}
	}
	node, lease := objects.Key{Kind: objects.Node, Node: "n"}, objects.Key{Kind: objects.Lease, Node: "n"}
	type calls = map[string]func(context.Context, *etcd.Store, *etcd.Fleet) error
	reads := calls{
		"Get()": func(ctx context.Context, s *etcd.Store, _ *etcd.Fleet) error { _, err := s.Get(ctx, node); return err },
		"Fleet.Get()": func(ctx context.Context, _ *etcd.Store, f *etcd.Fleet) error {
			_, err := f.Get(ctx, store.Nodes, "n")
			return err
		},
		"Leader()": func(ctx context.Context, _ *etcd.Store, f *etcd.Fleet) error {
			_, err := f.Leader(ctx, "c")
			return err
		},
		"Watch()": func(ctx context.Context, s *etcd.Store, _ *etcd.Fleet) error {
			return s.Watch(ctx, node, make(chan objects.Object, 1000))
		},
	}
	lists := calls{
		"List()": func(ctx context.Context, s *etcd.Store, _ *etcd.Fleet) error {
			_, _, err := s.List(ctx, objects.Node, "", "")
			return err
		},
		"Pods.List()": func(ctx context.Context, s *etcd.Store, _ *etcd.Fleet) error {
			_, err := s.Pods("n").List(ctx, "")
			return err
		},
		"Follow()": func(ctx context.Context, _ *etcd.Store, f *etcd.Fleet) error {
			return f.Follow(ctx, store.Nodes, store.AllChanges, ignores{})
		},
	}
	writes := calls{
		"Put()": func(ctx context.Context, s *etcd.Store, _ *etcd.Fleet) error {
			_, err := s.Put(ctx, node, objects.Put{Value: []byte("{}")})
			return err
		},
		"Delete()": func(ctx context.Context, s *etcd.Store, _ *etcd.Fleet) error {
			return s.Delete(ctx, node, objects.None)
		},
		"Pods.Put()": func(ctx context.Context, s *etcd.Store, _ *etcd.Fleet) error {
			_, err := s.Pods("n").Put(ctx, "a/b", []byte("{}"), controlplane.PodVersion{})
			return err
		},
		"Setting()": func(ctx context.Context, _ *etcd.Store, f *etcd.Fleet) error {
			_, err := f.Setting(ctx, "s")
			return err
		},
	}
	elect := calls{"Elect()": func(ctx context.Context, _ *etcd.Store, f *etcd.Fleet) error {
		_, _, err := f.Elect(ctx, "c", "a", time.Minute)
		return err
	}}
	grants := calls{"Put() of a Lease": func(ctx context.Context, s *etcd.Store, _ *etcd.Fleet) error {
		_, err := s.Put(ctx, lease, objects.Put{Value: []byte("{}"), TTL: time.Minute})
		return err
	}}
	watches := calls{"Watch()": reads["Watch()"], "Follow()": lists["Follow()"]}
	for name, c := range map[string]struct {
		member odd
		calls  []calls
	}{
		"an empty answer":                       {odd{found: &etcdserverpb.RangeResponse{}, swapped: &etcdserverpb.TxnResponse{}, granted: &etcdserverpb.LeaseGrantResponse{}}, []calls{reads, lists, writes, elect, grants}},
		"another key":                           {odd{found: keys("/hostler/nodes/m")}, []calls{reads}},
		"two keys":                              {odd{found: keys("/hostler/nodes/n", "/hostler/nodes/n")}, []calls{reads}},
		"keys of another folder":                {odd{found: keys("/another/nodes/n")}, []calls{lists}},
		"keys in the wrong order":               {odd{found: keys("/hostler/nodes/n", "/hostler/nodes/n")}, []calls{lists}},
		"a failed transaction without a read":   {odd{swapped: &etcdserverpb.TxnResponse{Header: header}}, []calls{writes}},
		"a transaction without answers":         {odd{swapped: &etcdserverpb.TxnResponse{Header: header, Succeeded: true}}, []calls{writes}},
		"a transaction with too many answers":   {odd{swapped: &etcdserverpb.TxnResponse{Header: header, Responses: make([]*etcdserverpb.ResponseOp, 5)}}, []calls{writes}},
		"a transaction that read another key":   {odd{swapped: &etcdserverpb.TxnResponse{Header: header, Responses: []*etcdserverpb.ResponseOp{part(keys("/a"))}}}, []calls{writes}},
		"an election without an answer":         {odd{found: &etcdserverpb.RangeResponse{Header: header}, swapped: &etcdserverpb.TxnResponse{Header: header}}, []calls{elect}},
		"an event without a key":                {odd{found: &etcdserverpb.RangeResponse{Header: header}, watched: &etcdserverpb.WatchResponse{Header: header, Events: []*mvccpb.Event{{}}}}, []calls{watches}},
		"an answer of a watch without a header": {odd{found: &etcdserverpb.RangeResponse{Header: header}, watched: &etcdserverpb.WatchResponse{}}, []calls{watches}},
	} {
		member := serve(t, c.member.register)
		for _, group := range c.calls {
			for call, try := range group {
				t.Run(name+"/"+call, func(t *testing.T) {
					s := open(t, func(o *etcd.Options) { o.Endpoints = []string{member} })
					f, err := etcd.NewFleet(etcd.Options{Endpoints: []string{member}, Prefix: "/hostler"})
					if err != nil {
						t.Fatal(err)
					}
					t.Cleanup(func() {
						if err := f.Close(); err != nil {
							t.Error(err)
						}
					})
					if err := try(t.Context(), s, f); !errors.Is(err, controlplane.ErrUnavailable) {
						t.Errorf("%s = %v, want ErrUnavailable", call, err)
					}
				})
			}
		}
	}
}

// ignores is a store.Follower that takes everything.
type ignores struct{}

func (ignores) Begin()                   {}
func (ignores) Set(string, store.Object) {}
func (ignores) Delete(string)            {}
func (ignores) Unreadable(string, error) {}
func (ignores) Synced()                  {}
