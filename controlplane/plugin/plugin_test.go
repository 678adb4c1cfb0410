package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/controlplane/plugin/plugintest"
	v1 "hostler.io/hostler/controlplane/plugin/v1"
	"hostler.io/hostler/internal/logtest"
)

var (
	node  = objects.Key{Kind: objects.Node, Node: "n"}
	lease = objects.Key{Kind: objects.Lease, Node: "n"}
)

// socket returns a path that is short enough for a socket.
func socket(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "plugin-")
	check(t, err)
	t.Cleanup(func() { check(t, os.RemoveAll(folder)) })
	return filepath.Join(folder, "plugin.sock")
}

// open returns a store of a plugin that may not run. It polls at short intervals.
func open(t testing.TB, path string) *plugin.Store {
	t.Helper()
	return openWithin(t, path, 0)
}

// openWithin is open with a deadline of each call.
func openWithin(t testing.TB, path string, timeout time.Duration) *plugin.Store {
	t.Helper()
	store, err := plugin.New(plugin.Options{Socket: path, Version: "1.2.3", Timeout: timeout, Poll: time.Millisecond, Log: (&logtest.Book{}).Logger()})
	check(t, err)
	t.Cleanup(func() { _ = store.Close() }) // the test may have closed it
	return store
}

// serve makes a plugin listen until stop is called or the test ends.
func serve(t testing.TB, path string, server *plugintest.Server) (stop func()) {
	t.Helper()
	stop, err := server.Listen(path)
	check(t, err)
	t.Cleanup(stop)
	return stop
}

// with returns a store of a running plugin.
func with(t testing.TB, server *plugintest.Server) *plugin.Store {
	t.Helper()
	path := socket(t)
	serve(t, path, server)
	return open(t, path)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// put stores a value. An error ends the test.
func put(t testing.TB, s *plugin.Store, key objects.Key, value string, instead objects.Version) objects.Version {
	t.Helper()
	version, err := s.Put(t.Context(), key, objects.Put{Value: []byte(value), Instead: instead})
	if err != nil || version == objects.None || version == instead {
		t.Fatalf("Put(%s) = version %q, %v, want another than %q", key, version, err, instead)
	}
	return version
}

// refused checks that a write was refused with that stored value.
func refused(t testing.TB, what string, err error, key objects.Key, value string, version objects.Version) {
	t.Helper()
	conflict, ok := errors.AsType[*objects.ConflictError](err)
	if !ok || !errors.Is(err, controlplane.ErrConflict) || conflict.Stored.Key != key || string(conflict.Stored.Value) != value || conflict.Stored.Version != version {
		t.Errorf("%s = %+v, want a conflict with %q of version %q", what, err, value, version)
	}
}

// failing returns a plugin whose method returns an error.
func failing(method string, err error) *plugintest.Server {
	return &plugintest.Server{Fault: func(_ context.Context, called string) error {
		if called == method {
			return err
		}
		return nil
	}}
}

func TestWhatAPluginRefusesIsReportedByItsClass(t *testing.T) {
	for code, want := range map[codes.Code]error{
		codes.NotFound:           controlplane.ErrNotFound,
		codes.PermissionDenied:   controlplane.ErrForbidden,
		codes.InvalidArgument:    controlplane.ErrInvalid,
		codes.Unauthenticated:    controlplane.ErrUnauthorized,
		codes.Unavailable:        controlplane.ErrUnavailable,
		codes.Internal:           controlplane.ErrUnavailable,
		codes.Unknown:            controlplane.ErrUnavailable,
		codes.DeadlineExceeded:   controlplane.ErrUnavailable,
		codes.Unimplemented:      controlplane.ErrUnavailable,
		codes.ResourceExhausted:  controlplane.ErrUnavailable,
		codes.Aborted:            controlplane.ErrUnavailable, // for a call that changes nothing
		codes.FailedPrecondition: controlplane.ErrUnavailable,
	} {
		s := with(t, failing("Get", status.Error(code, "no way")))
		_, err := s.Get(t.Context(), node)
		if !errors.Is(err, want) || errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), `get nodes/n: plugin "memory" at `) || !strings.Contains(err.Error(), "no way") {
			t.Errorf("Get() of a plugin that says %v = %v, want %v, and what it said", code, err, want)
		}
	}
}

func TestAConflictReportsTheStoredObjectEvenIfThePluginDoesNot(t *testing.T) {
	for _, code := range []codes.Code{codes.Aborted, codes.FailedPrecondition, codes.AlreadyExists, codes.NotFound} {
		var failing atomic.Bool
		s := with(t, &plugintest.Server{Fault: func(_ context.Context, method string) error {
			if failing.Load() && (method == "Put" || method == "Delete") {
				return status.Error(code, "lost")
			}
			return nil
		}})
		version := put(t, s, node, "a", objects.None)
		failing.Store(true)
		_, err := s.Put(t.Context(), node, objects.Put{Value: []byte("b"), Instead: "older"})
		refused(t, "Put()", err, node, "a", version)
		refused(t, "Delete()", s.Delete(t.Context(), node, "older"), node, "a", version)
		_, err = s.Put(t.Context(), lease, objects.Put{Value: []byte("b"), Instead: "older"})
		refused(t, "Put() of what is gone", err, lease, "", objects.None)
	}
}

func TestAPluginThatRequestsALaterRetryIsLeftAlone(t *testing.T) {
	busy, err := status.New(codes.ResourceExhausted, "too many hosts").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)})
	check(t, err)
	s := with(t, failing("Get", busy.Err()))
	_, err = s.Get(t.Context(), node)
	later, ok := errors.AsType[*controlplane.BusyError](err)
	if !ok || later.After != 7*time.Second || !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("Get() = %v, want a retry after 7s", err)
	}
}

func TestAPluginWithWrongAnswersIsNotBelieved(t *testing.T) {
	asked, other := &v1.Key{Kind: "nodes", Node: "n"}, &v1.Key{Kind: "nodes", Node: "other"}
	stored := func(key *v1.Key, version string) func(any) {
		return func(a any) { a.(*v1.GetResponse).Object = &v1.Object{Key: key, Version: version} }
	}
	putting := func(o *v1.PutResponse) func(any) { return func(a any) { a.(*v1.PutResponse).Outcome = o.Outcome } }
	conflict := func(key *v1.Key, version string) *v1.PutResponse {
		return &v1.PutResponse{Outcome: &v1.PutResponse_Conflict{Conflict: &v1.Object{Key: key, Version: version}}}
	}
	listing := func(list ...*v1.Object) func(any) { return func(a any) { a.(*v1.ListResponse).Objects = list } }
	for name, c := range map[string]struct {
		method string
		tamper func(answer any)
		want   string
	}{
		"another key":                        {"Get", stored(other, "1"), `another key: kind "nodes", node "other"`},
		"no object":                          {"Get", func(a any) { a.(*v1.GetResponse).Object = nil }, "no object"},
		"no version":                         {"Get", stored(asked, ""), "no version"},
		"stored without a version":           {"Put", putting(&v1.PutResponse{Outcome: &v1.PutResponse_Version{}}), "no version"},
		"neither stored nor refused":         {"Put", putting(&v1.PutResponse{}), "no version"},
		"refused for another key":            {"Put", putting(conflict(other, "1")), "another key"},
		"refused though what it wants is so": {"Put", putting(conflict(asked, "7")), `refuses version "7", which it reports as the current one`},
		"a deletion of anything refused":     {"Delete", func(a any) { a.(*v1.DeleteResponse).Conflict = &v1.Object{Key: asked, Version: "7"} }, "unconditional"},
		"a list of another kind":             {"List", listing(&v1.Object{Key: &v1.Key{Kind: "leases", Node: "n"}, Version: "1"}), "not requested"},
		"a list out of order":                {"List", listing(&v1.Object{Key: other, Version: "1"}, &v1.Object{Key: asked, Version: "1"}), "not in order"},
		"a list without versions":            {"List", listing(&v1.Object{Key: other}), "without a version"},
		"a page that follows itself":         {"List", func(a any) { a.(*v1.ListResponse).Next = "page" }, "as its own next page"},
		"a watch of something else":          {"Watch", func(a any) { a.(*v1.WatchResponse).Object = &v1.Object{Key: other, Version: "1"} }, "another key"},
	} {
		t.Run(name, func(t *testing.T) {
			s := with(t, &plugintest.Server{Answer: func(method string, answer any) error {
				if method == c.method {
					c.tamper(answer)
				}
				return nil
			}})
			var err error
			switch c.method {
			case "Get":
				put(t, s, node, "x", objects.None)
				err = get(t.Context(), s)
			case "Put":
				_, err = s.Put(t.Context(), node, objects.Put{Instead: "7"})
			case "Delete":
				err = s.Delete(t.Context(), node, objects.None)
			case "List":
				_, _, err = s.List(t.Context(), objects.Node, "", "page")
			case "Watch":
				err = s.Watch(t.Context(), node, make(chan objects.Object, 1))
			}
			if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `plugin "memory"`) {
				t.Errorf("%s() of a plugin that lies = %v, want an error that names it and says %q", c.method, err, c.want)
			}
		})
	}
}

func get(ctx context.Context, s *plugin.Store) error {
	_, err := s.Get(ctx, node)
	return err
}

func list(ctx context.Context, s *plugin.Store) error {
	_, _, err := s.List(ctx, objects.Node, "", "")
	return err
}

func TestAValueThatIsTooLargeIsNotSent(t *testing.T) {
	s := with(t, &plugintest.Server{})
	put(t, s, node, strings.Repeat("x", plugin.MaxValueBytes), objects.None)
	_, err := s.Put(t.Context(), lease, objects.Put{Value: make([]byte, plugin.MaxValueBytes+1)})
	if !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("Put() of one byte too many = %v, want %v", err, controlplane.ErrInvalid)
	}
}

func TestAPluginOfAnotherProtocolIsNamed(t *testing.T) {
	s := with(t, &plugintest.Server{About: func(r *v1.InfoResponse) { r.Protocols = []uint32{2, 3} }})
	err := get(t.Context(), s)
	if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "supports protocol [2 3], hostler 1.2.3 supports 1") {
		t.Errorf("Get() = %v, want both protocols", err)
	}
}

func TestACallWaitsForAPluginThatComesBack(t *testing.T) {
	path := socket(t)
	var asked atomic.Int32
	server := &plugintest.Server{About: func(*v1.InfoResponse) { asked.Add(1) }}
	s := open(t, path)
	answered := make(chan error, 1)
	go func() { answered <- get(t.Context(), s) }()
	stop := serve(t, path, server)
	if err := <-answered; !errors.Is(err, controlplane.ErrNotFound) {
		t.Fatalf("Get() from before the plugin was there = %v, want an answer", err)
	}
	version := put(t, s, node, "a", objects.None)
	stop()
	go func() { answered <- get(t.Context(), s) }()
	serve(t, path, server)
	if err := <-answered; err != nil && !errors.Is(err, controlplane.ErrUnavailable) { // of the connection on which the call started
		t.Fatalf("Get() over a restart = %v, want an answer, or that it was lost", err)
	}
	if o, err := s.Get(t.Context(), node); err != nil || o.Version != version {
		t.Errorf("Get() after a restart = %+v, %v, want version %q", o, err, version)
	}
	// A restart may take several connections, and answers over the first of them may be lost.
	const calls = 20
	for range calls {
		_, err := s.Get(t.Context(), node)
		check(t, err)
	}
	if n := asked.Load(); n > 5 {
		t.Errorf("the plugin was asked %d times who it is, in more than %d calls, want once a connection", n, calls)
	}
}

func TestAPluginThatDiesInMidCallIsUnavailable(t *testing.T) {
	path := socket(t)
	called := make(chan struct{})
	stop := serve(t, path, &plugintest.Server{Fault: func(ctx context.Context, method string) error {
		if method == "Put" {
			close(called)
			<-ctx.Done()
		}
		return ctx.Err()
	}})
	s := open(t, path)
	go func() {
		<-called
		stop()
	}()
	if _, err := s.Put(t.Context(), node, objects.Put{Value: []byte("a")}); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("Put() of a plugin that dies = %v, want %v", err, controlplane.ErrUnavailable)
	}
}

func TestACallsDeadlineEndsItWhateverThePluginDoes(t *testing.T) {
	for name, c := range map[string]struct {
		server *plugintest.Server
		want   string
	}{
		"none is there": {nil, "socket does not exist"},
		"it hangs": {&plugintest.Server{Fault: func(ctx context.Context, method string) error {
			if method == "Get" {
				<-ctx.Done()
			}
			return ctx.Err() // it may end here before it ends at the caller
		}}, "it may hang: see its log"},
		"it hangs at first": {&plugintest.Server{Fault: func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}}, "it may hang: see its log"},
	} {
		t.Run(name, func(t *testing.T) {
			path := socket(t)
			s := open(t, path)
			if c.server != nil {
				serve(t, path, c.server)
			}
			for reported := false; !reported; { // a slow machine may not even have tried to connect by then
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				err := get(ctx, s)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("Get() = %v, want %v and %q", err, context.DeadlineExceeded, c.want)
				}
				reported = strings.Contains(err.Error(), c.want)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := get(ctx, s); !errors.Is(err, context.Canceled) {
				t.Errorf("Get() = %v, want %v", err, context.Canceled)
			}
		})
	}
}

func TestASocketThatOthersMayWriteIsNotAsked(t *testing.T) {
	path := socket(t)
	serve(t, path, &plugintest.Server{})
	s := open(t, path)
	check(t, os.Chmod(path, 0o775))
	err := get(t.Context(), s)
	if !errors.Is(err, controlplane.ErrUntrusted) || !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "chmod go-w "+path) {
		t.Errorf("Get() over a socket that a group may write = %v, want %v and what fixes it", err, controlplane.ErrUntrusted)
	}
	check(t, os.Chmod(path, 0o700))
	if err := get(t.Context(), s); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("Get() once that is fixed = %v, want an answer", err)
	}
}

func TestAFileThatIsNotASocketGetsNoRequest(t *testing.T) {
	path := socket(t)
	check(t, os.WriteFile(path, nil, 0o600))
	if err := get(t.Context(), open(t, path)); !errors.Is(err, controlplane.ErrUntrusted) || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("Get() = %v, want that it is no socket", err)
	}
}

func TestAPathThatCannotBeASocketIsRefused(t *testing.T) {
	for _, path := range []string{"", "plugin.sock", "/" + strings.Repeat("p", 107)} {
		if _, err := plugin.New(plugin.Options{Socket: path, Log: (&logtest.Book{}).Logger()}); err == nil {
			t.Errorf("New(%q) = nil, want an error", path)
		}
	}
}

// A few hundred calls at once, while connections are lost and made again.
func TestManyCallsAtOnceOverARestart(t *testing.T) {
	path := socket(t)
	server := &plugintest.Server{}
	stop := serve(t, path, server)
	s := open(t, path)
	done := make(chan error)
	const callers = 200
	for i := range callers {
		go func() {
			key := objects.Key{Kind: objects.Node, Node: fmt.Sprint("n", i)}
			for {
				_, err := s.Put(t.Context(), key, objects.Put{Value: []byte("x")})
				if err == nil || errors.Is(err, controlplane.ErrConflict) || !errors.Is(err, controlplane.ErrUnavailable) {
					done <- err
					return
				}
			}
		}()
	}
	stop()
	serve(t, path, server)
	for range callers {
		if err := <-done; err != nil && !errors.Is(err, controlplane.ErrConflict) { // with its own write, whose answer was lost
			t.Errorf("Put() = %v, want it stored", err)
		}
	}
}
