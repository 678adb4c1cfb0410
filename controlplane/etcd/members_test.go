package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
)

// stalled is a member whose disk hangs: it accepts connections and calls, but does not answer.
type stalled struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedLeaseServer
	asked atomic.Int32
}

func (s *stalled) Range(ctx context.Context, _ *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	s.asked.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *stalled) LeaseGrant(ctx context.Context, _ *etcdserverpb.LeaseGrantRequest) (*etcdserverpb.LeaseGrantResponse, error) {
	s.asked.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *stalled) register(server *grpc.Server) {
	etcdserverpb.RegisterKVServer(server, s)
	etcdserverpb.RegisterLeaseServer(server, s)
}

// serve serves a member until the test ends, and returns its endpoint.
func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	register(server)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // if it was stopped before it began to serve
			t.Errorf("Serve() = %v, want no error", err)
		}
	})
	return "http://" + listener.Addr().String()
}

func TestAMemberThatNeverAnswersIsReplacedByAnother(t *testing.T) {
	for name, call := range map[string]func(context.Context, *etcd.Store) error{
		"Get()": func(ctx context.Context, s *etcd.Store) error {
			_, err := s.Get(ctx, objects.Key{Kind: objects.Node, Node: "n"})
			return err
		},
		"Put()": func(ctx context.Context, s *etcd.Store) error {
			_, err := s.Put(ctx, objects.Key{Kind: objects.Lease, Node: "n"}, objects.Put{Value: []byte("l"), TTL: time.Minute})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			members := []*stalled{{}, {}}
			store := open(t, func(o *etcd.Options) {
				o.Endpoints = []string{serve(t, members[0].register), serve(t, members[1].register)}
			})
			used := map[string]bool{}
			// As for repeated renewals: each call has its own deadline.
			for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
				used[store.Endpoint()] = true
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				if err := call(ctx, store); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, controlplane.ErrUnavailable) {
					t.Errorf("%s = %v, want no answer", name, err)
				}
				cancel()
				if members[0].asked.Load() > 0 && members[1].asked.Load() > 0 {
					break
				}
			}
			if a, b := members[0].asked.Load(), members[1].asked.Load(); a == 0 || b == 0 || len(used) != 2 {
				t.Errorf("calls that each member took = %d and %d, want both to be tried", a, b)
			}
		})
	}
}

// All three members are tried before the 8 s of a renewal have passed.
func TestWithFewMembersEachHasMoreTime(t *testing.T) {
	for members, want := range map[int]time.Duration{1: 7500 * time.Millisecond, 2: 3750 * time.Millisecond, 3: 2500 * time.Millisecond, 5: 2500 * time.Millisecond} {
		if got := (etcd.Options{Endpoints: make([]string, members)}).ReadyTimeout(); got != want {
			t.Errorf("ReadyTimeout() of %d endpoints = %v, want %v", members, got, want)
		}
	}
}

// forgetful is a member that ends only its first watch, with an answer.
type forgetful struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedWatchServer
	last    *etcdserverpb.WatchResponse
	reads   atomic.Int64
	watches atomic.Int32
}

func (f *forgetful) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	n := f.reads.Add(1)
	return &etcdserverpb.RangeResponse{
		Header: &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 10},
		Kvs:    []*mvccpb.KeyValue{{Key: r.Key, Value: fmt.Append(nil, n), CreateRevision: 1, ModRevision: n}},
	}, nil
}

func (f *forgetful) Watch(stream etcdserverpb.Watch_WatchServer) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 10}, Created: true}); err != nil {
		return err
	}
	if f.watches.Add(1) == 1 {
		if err := stream.Send(f.last); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

func (f *forgetful) register(server *grpc.Server) {
	etcdserverpb.RegisterKVServer(server, f)
	etcdserverpb.RegisterWatchServer(server, f)
}

func TestAWatchThatCannotContinueStartsAgain(t *testing.T) {
	for name, last := range map[string]*etcdserverpb.WatchResponse{
		"what was to follow is compacted": {Header: &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 20}, CompactRevision: 15, Canceled: true},
		"another cluster answers":         {Header: &etcdserverpb.ResponseHeader{ClusterId: 2, Revision: 20}},
		"revisions have gone back":        {Header: &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 5}},
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, func(o *etcd.Options) {
				o.Endpoints = []string{serve(t, (&forgetful{last: last}).register)}
			})
			ctx, cancel := context.WithCancel(t.Context())
			seen, ended := make(chan objects.Object), make(chan error, 1)
			go func() { ended <- store.Watch(ctx, objects.Key{Kind: objects.Node, Node: "n"}, seen) }()
			for read := ""; read != "2"; {
				select {
				case o := <-seen:
					read = string(o.Value)
				case err := <-ended:
					t.Fatalf("Watch() = %v, want it to read the object again", err)
				case <-time.After(5 * time.Minute):
					t.Fatalf("Watch() reported %q last, want the object from the new read", read)
				}
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Watch() = %v, want its context's end", err)
			}
		})
	}
}
