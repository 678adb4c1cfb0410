// Package plugintest is a plugin in memory that serves protocol 1, as in controlplane.proto, and
// can inject faults. It owns its objects, and stores them only as long as its process runs.
package plugintest

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	v1 "hostler.io/hostler/controlplane/plugin/v1"
)

// pageSize is the number of objects in a page. It is small, so that lists have several pages.
const pageSize = 3

// Server is the plugin. It is safe for concurrent use. Set its fields before it serves.
type Server struct {
	v1.UnimplementedControlPlaneServer

	// NoObject makes the plugin refuse with ABORTED instead of returning the stored object.
	NoObject bool
	// Lasting keeps objects after their TTL. About then has to remove ABILITY_TTL.
	Lasting bool
	// Fault is called before each call, with the name of its method. Its error is the answer. It may
	// be nil.
	Fault func(ctx context.Context, method string) error
	// About changes the answer to Info. It may be nil.
	About func(*v1.InfoResponse)
	// Answer is called after a call was executed, with the name of its method. It changes the answer,
	// or returns an error instead of it. It may be nil.
	Answer func(method string, answer any) error

	mu      sync.Mutex // guards the fields below
	objects map[string]entry
	last    int           // last version
	changed chan struct{} // closed at each change
}

// errNoObject is the answer to a conflict with NoObject.
var errNoObject = status.Error(codes.Aborted, "another is there")

// entry is an object and its expiry; zero means never.
type entry struct {
	object *v1.Object
	ends   time.Time
}

// Listen serves on a socket at that path until the listener is closed or stop is called.
func (s *Server) Listen(path string) (stop func(), err error) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
		if s.Fault != nil {
			if err := s.Fault(ctx, method); err != nil {
				return nil, err
			}
		}
		answer, err := handler(ctx, request)
		if err == nil && s.Answer != nil {
			err = s.Answer(method, answer)
		}
		return answer, err
	}))
	v1.RegisterControlPlaneServer(server, s)
	go func() { _ = server.Serve(listener) }() // returns when it is stopped
	return func() {
		server.Stop()
		_ = listener.Close() // if the server was stopped before it began to serve
	}, nil
}

// Info implements v1.ControlPlaneServer.
func (s *Server) Info(context.Context, *v1.InfoRequest) (*v1.InfoResponse, error) {
	answer := &v1.InfoResponse{
		Name: "memory", Version: "1.0.0", Endpoint: "memory://", Protocols: []uint32{1},
		Abilities: []v1.Ability{v1.Ability_ABILITY_LIST, v1.Ability_ABILITY_WATCH, v1.Ability_ABILITY_TTL},
	}
	if s.About != nil {
		s.About(answer)
	}
	return answer, nil
}

// path returns the key as a text that sorts in the order of keys.
func path(k *v1.Key) string {
	return strings.TrimSuffix(k.GetKind()+"/"+k.GetNode()+"/"+k.GetName(), "/")
}

// stored returns the stored object. The caller holds mu.
func (s *Server) stored(key *v1.Key) *v1.Object {
	e, found := s.objects[path(key)]
	if !found || !e.ends.IsZero() && !time.Now().Before(e.ends) {
		return &v1.Object{Key: key}
	}
	return e.object
}

// change records a change. The caller holds mu.
func (s *Server) change() {
	if s.changed != nil {
		close(s.changed)
	}
	s.changed = make(chan struct{})
}

// Get implements v1.ControlPlaneServer.
func (s *Server) Get(_ context.Context, r *v1.GetRequest) (*v1.GetResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.stored(r.GetKey())
	if o.GetVersion() == "" {
		return nil, status.Errorf(codes.NotFound, "no %s", path(r.GetKey()))
	}
	return &v1.GetResponse{Object: o}, nil
}

// Put implements v1.ControlPlaneServer.
func (s *Server) Put(_ context.Context, r *v1.PutRequest) (*v1.PutResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.stored(r.GetKey()); now.GetVersion() != r.GetInstead() {
		if s.NoObject {
			return nil, errNoObject
		}
		return &v1.PutResponse{Outcome: &v1.PutResponse_Conflict{Conflict: now}}, nil
	}
	s.last++
	e := entry{object: &v1.Object{Key: r.GetKey(), Value: r.GetValue(), Version: fmt.Sprint(s.last)}}
	if r.GetTtlSeconds() > 0 && !s.Lasting {
		ttl := time.Duration(r.GetTtlSeconds()) * time.Second
		e.ends = time.Now().Add(ttl)
		time.AfterFunc(ttl, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.change()
		})
	}
	if s.objects == nil {
		s.objects = map[string]entry{}
	}
	s.objects[path(r.GetKey())] = e
	s.change()
	return &v1.PutResponse{Outcome: &v1.PutResponse_Version{Version: e.object.Version}}, nil
}

// Delete implements v1.ControlPlaneServer.
func (s *Server) Delete(_ context.Context, r *v1.DeleteRequest) (*v1.DeleteResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.stored(r.GetKey()); r.GetVersion() != "" && now.GetVersion() != r.GetVersion() {
		if s.NoObject {
			return nil, errNoObject
		}
		return &v1.DeleteResponse{Conflict: now}, nil
	}
	delete(s.objects, path(r.GetKey()))
	if r.GetKey().GetKind() == "nodes" {
		delete(s.objects, path(&v1.Key{Kind: "leases", Node: r.GetKey().GetNode()}))
	}
	s.change()
	return &v1.DeleteResponse{}, nil
}

// List implements v1.ControlPlaneServer.
func (s *Server) List(_ context.Context, r *v1.ListRequest) (*v1.ListResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var paths []string
	for at, e := range s.objects {
		key := e.object.GetKey()
		if key.GetKind() == r.GetKind() && (r.GetNode() == "" || key.GetNode() == r.GetNode()) && at > r.GetPage() && s.stored(key).GetVersion() != "" {
			paths = append(paths, at)
		}
	}
	slices.Sort(paths)
	answer := &v1.ListResponse{}
	if len(paths) > pageSize {
		paths = paths[:pageSize]
		answer.Next = paths[pageSize-1]
	}
	for _, at := range paths {
		answer.Objects = append(answer.Objects, s.objects[at].object)
	}
	return answer, nil
}

// Watch implements v1.ControlPlaneServer.
func (s *Server) Watch(r *v1.WatchRequest, stream grpc.ServerStreamingServer[v1.WatchResponse]) error {
	if s.Fault != nil {
		if err := s.Fault(stream.Context(), "Watch"); err != nil {
			return err
		}
	}
	for last, first := "", true; ; first = false {
		s.mu.Lock()
		o := s.stored(r.GetKey())
		if s.changed == nil {
			s.changed = make(chan struct{})
		}
		changed := s.changed
		s.mu.Unlock()
		if first || o.GetVersion() != last {
			answer := &v1.WatchResponse{Object: o}
			if s.Answer != nil {
				if err := s.Answer("Watch", answer); err != nil {
					return err
				}
			}
			if err := stream.Send(answer); err != nil {
				return err
			}
			last = o.GetVersion()
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}
