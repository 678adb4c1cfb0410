package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/test/flood"
)

// mostTaken is how much of an answer that is too large a client may read: what HTTP/2 has in
// flight, and a limit of 4 MiB.
const mostTaken = 16 << 20

// fleet is a member with that many Nodes of that size.
type fleet struct {
	etcdserverpb.UnimplementedKVServer
	nodes, size int
	asked       atomic.Int32
}

func (f *fleet) Range(_ context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	f.asked.Add(1)
	answer := &etcdserverpb.RangeResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 1}}
	if len(r.RangeEnd) == 0 {
		return answer, nil
	}
	value := []byte(strings.Repeat("x", f.size))
	for i := range f.nodes {
		key := []byte(fmt.Sprintf("/hostler/nodes/n%05d", i))
		if string(key) < string(r.Key) {
			continue
		}
		if int64(len(answer.Kvs)) == r.Limit {
			answer.More = true
			break
		}
		answer.Kvs = append(answer.Kvs, &mvccpb.KeyValue{Key: key, Value: value, CreateRevision: 1, ModRevision: 1, Version: 1})
	}
	return answer, nil
}

// flooding returns the endpoint of a member that answers a method with a message that claims to
// have that many bytes. taken receives how many bytes a client has read.
func flooding(t *testing.T, method string, claimed int) (endpoint string, taken chan int) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	member := grpc.NewServer()
	etcdserverpb.RegisterKVServer(member, &fleet{})
	taken = make(chan int, 100)
	flood.Serve(t, listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, method) {
			member.ServeHTTP(w, r)
			return
		}
		taken <- flood.Message(w, claimed)
	}))
	return "http://" + listener.Addr().String(), taken
}

// patient returns a context with a deadline, instead of the deadline of a call without one: 100 MiB
// take long on a busy machine.
func patient(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestAnswersThatAreTooLargeAreNotTaken(t *testing.T) {
	key := objects.Key{Kind: objects.Node, Node: "n"}
	for name, tt := range map[string]struct {
		method string
		want   error
		call   func(context.Context, *etcd.Store) error
	}{
		"Get()": {"/Range", controlplane.ErrUnavailable, func(ctx context.Context, s *etcd.Store) error {
			_, err := s.Get(ctx, key)
			return err
		}},
		"List()": {"/Range", controlplane.ErrUnavailable, func(ctx context.Context, s *etcd.Store) error {
			_, _, err := s.List(ctx, objects.Node, "", "")
			return err
		}},
		"Put()": {"/Txn", controlplane.ErrInvalid, func(ctx context.Context, s *etcd.Store) error {
			_, err := s.Put(ctx, key, objects.Put{Value: []byte("n")})
			return err
		}},
		"Watch()": {"/Watch", controlplane.ErrUnavailable, func(ctx context.Context, s *etcd.Store) error {
			return s.Watch(ctx, key, make(chan objects.Object, 1))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			endpoint, taken := flooding(t, tt.method, 300<<20)
			store := open(t, func(o *etcd.Options) { o.Endpoints = []string{endpoint} })
			err := tt.call(patient(t), store)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), "larger than max") {
				t.Errorf("%s = %v, want %v, since the answer is too large", name, err, tt.want)
			}
			if n := <-taken; n > mostTaken {
				t.Errorf("%s took %d MiB, want at most %d", name, n>>20, mostTaken>>20)
			} else {
				t.Logf("%s took %d KiB: %v", name, n>>10, err)
			}
		})
	}
}

// Nodes that are too large for pages of 200 are read in smaller pages.
func TestAListOfLargeObjectsIsRead(t *testing.T) {
	for _, member := range []*fleet{{nodes: 5000, size: 10_000}, {nodes: 30, size: 1_400_000}, {nodes: 300, size: 100_000}} {
		t.Run(fmt.Sprintf("%d of %d bytes", member.nodes, member.size), func(t *testing.T) {
			endpoint := serve(t, func(s *grpc.Server) { etcdserverpb.RegisterKVServer(s, member) })
			store := open(t, func(o *etcd.Options) { o.Endpoints = []string{endpoint} })
			found := 0
			for page := ""; ; {
				list, next, err := store.List(patient(t), objects.Node, "", page)
				if err != nil {
					t.Fatalf("List() = %v after %d", err, found)
				}
				found += len(list)
				if page = next; page == "" {
					break
				}
			}
			if found != member.nodes {
				t.Errorf("List() gave %d Nodes, want %d", found, member.nodes)
			}
			t.Logf("%d requests for %d Nodes", member.asked.Load(), found)
		})
	}
}

// A member's message is shown in a log, on a terminal and in Events.
func TestWhatAMemberSaysIsCutAndHarmless(t *testing.T) {
	long := "\x1b[2J" + strings.Repeat("very long ", 100_000)
	for _, code := range []codes.Code{codes.Unavailable, codes.Internal, codes.ResourceExhausted, codes.Unknown} {
		err := open(t).Fault(status.Error(code, long))
		if !strings.Contains(err.Error(), "very long") || len(err.Error()) > 2<<10 || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("a call refused with %v = %.100q of %d bytes, want what was said, cut and without an escape sequence", code, err, len(err.Error()))
		}
	}
}
