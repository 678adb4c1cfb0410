package etcd_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
)

// classes are the error classes that callers branch on.
var classes = []error{
	controlplane.ErrNotFound, controlplane.ErrConflict, controlplane.ErrForbidden, controlplane.ErrInvalid,
	controlplane.ErrUnavailable, controlplane.ErrUnauthorized, controlplane.ErrUntrusted,
}

func TestEachAnswerIsAClassWithItsFix(t *testing.T) {
	asUser := func(o *etcd.Options) { o.Username, o.PasswordFile = "n", "/nowhere" }
	for name, c := range map[string]struct {
		change  func(*etcd.Options)
		err     error
		redial  bool
		is      []error
		message string
	}{
		"a right that is missing": {
			asUser, rpctypes.ErrPermissionDenied, false,
			[]error{controlplane.ErrForbidden},
			`as etcd root, for user "n" (ignore "already exists"): ` + "etcdctl role add hostler-n; etcdctl role grant-permission hostler-n readwrite /hostler/nodes/n; " +
				"etcdctl role grant-permission hostler-n readwrite /hostler/leases/n; etcdctl role grant-permission hostler-n --prefix readwrite /hostler/events/n/; " +
				"etcdctl role grant-permission hostler-n read /hostler/settings/lease-duration; etcdctl user grant-role n hostler-n",
		},
		"a token that has ended": {asUser, rpctypes.ErrInvalidAuthToken, true, []error{controlplane.ErrUnavailable, controlplane.ErrUnauthorized}, `user "n"`},
		"auth that was turned on": {
			nil, rpctypes.ErrUserEmpty, true,
			[]error{controlplane.ErrUnavailable, controlplane.ErrUnauthorized},
			"set controlPlane.etcd.username and passwordFile",
		},
		"a database that is full":      {nil, rpctypes.ErrNoSpace, false, []error{controlplane.ErrUnavailable}, ": etcdctl compact REVISION; etcdctl defrag; etcdctl alarm disarm"},
		"what is too large":            {nil, rpctypes.ErrRequestTooLarge, false, []error{controlplane.ErrInvalid}, "--max-request-bytes"},
		"what is too large to be sent": {nil, status.Error(codes.ResourceExhausted, "trying to send message larger than max"), false, []error{controlplane.ErrInvalid}, "larger than max"},
		"a transaction too large":      {nil, rpctypes.ErrTooManyOps, false, []error{controlplane.ErrInvalid}, "--max-txn-ops=128"},
		"no leader":                    {nil, rpctypes.ErrNoLeader, true, []error{controlplane.ErrUnavailable}, "check that a majority"},
		"a server that is slow":        {nil, rpctypes.ErrTimeout, true, []error{controlplane.ErrUnavailable}, "request timed out"},
		"a connection that is lost":    {nil, status.Error(codes.Unavailable, "error reading from server: EOF"), true, []error{controlplane.ErrUnavailable}, "http://127.0.0.1:1"},
		"an object that is not there":  {nil, controlplane.ErrNotFound, false, []error{controlplane.ErrNotFound}, "put nodes/n"},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(*etcd.Options)
			if c.change != nil {
				changes = append(changes, c.change)
			}
			err := open(t, changes...).Fault(c.err)
			for _, class := range classes {
				if got, want := errors.Is(err, class), slices.Contains(c.is, class); got != want {
					t.Errorf("Put() = %v: is %q: %t, want %t", err, class, got, want)
				}
			}
			if !strings.HasPrefix(err.Error(), "put nodes/n: ") || !strings.Contains(err.Error(), c.message) {
				t.Errorf("Put() = %v, want it to say %q", err, c.message)
			}
			if got := etcd.MustRedial(c.err); got != c.redial {
				t.Errorf("the connection is replaced after %v: %t, want %t", c.err, got, c.redial)
			}
		})
	}
}

func TestUnreachableMembersAreEachReportedWithTheirError(t *testing.T) {
	store := open(t, func(o *etcd.Options) { o.Endpoints = []string{"http://127.0.0.1:1", "http://127.0.0.1:2"} })
	_, err := store.Get(t.Context(), objects.Key{Kind: objects.Node, Node: "n"})
	if !errors.Is(err, controlplane.ErrUnavailable) || strings.Contains(err.Error(), "\n") {
		t.Fatalf("Get() = %v, want one line, and that nobody is there", err)
	}
	for _, part := range []string{"get nodes/n: ", "http://127.0.0.1:1", "http://127.0.0.1:2", "connection refused"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("Get() = %v, want it to say %q", err, part)
		}
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	store := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := store.Get(ctx, objects.Key{Kind: objects.Node, Node: "n"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Get() = %v, want the context's end", err)
	}
}

func TestFilesThatAreMissingAreNamed(t *testing.T) {
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty")
	if err := os.WriteFile(empty, []byte("\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	openFile := filepath.Join(folder, "open")
	if err := errors.Join(os.WriteFile(openFile, []byte("x"), 0o600), os.Chmod(openFile, 0o666)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change  func(*etcd.Options)
		message string
	}{
		"no authority":                         {func(o *etcd.Options) { o.CA = folder + "/ca.crt" }, "controlPlane.etcd.tls.ca: open " + folder + "/ca.crt"},
		"an authority of nothing":              {func(o *etcd.Options) { o.CA = empty }, empty + " contains no certificate"},
		"no certificate":                       {func(o *etcd.Options) { o.Certificate, o.Key = folder+"/c.crt", folder+"/c.key" }, folder + "/c.crt"},
		"no password":                          {func(o *etcd.Options) { o.Username, o.PasswordFile = "n", folder+"/password" }, "passwordFile: open " + folder + "/password"},
		"an authority that others can change":  {func(o *etcd.Options) { o.CA = openFile }, openFile + " is writable by users other than root"},
		"a certificate that others can change": {func(o *etcd.Options) { o.Certificate, o.Key = openFile, empty }, openFile + " is writable by users other than root"},
		"a key that others can change":         {func(o *etcd.Options) { o.Certificate, o.Key = empty, openFile }, openFile + " is writable by users other than root"},
		"a password that others can change":    {func(o *etcd.Options) { o.Username, o.PasswordFile = "n", openFile }, openFile + " is writable by users other than root"},
		"an empty password":                    {func(o *etcd.Options) { o.Username, o.PasswordFile = "n", empty }, empty + " is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			store := open(t, func(o *etcd.Options) { o.Endpoints = []string{"https://127.0.0.1:1"} }, c.change)
			_, err := store.Get(t.Context(), objects.Key{Kind: objects.Node, Node: "n"})
			if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), c.message) {
				t.Errorf("Get() = %v, want it to say %q", err, c.message)
			}
		})
	}
}

func TestWhatCouldNeverBeUsedIsRefused(t *testing.T) {
	for name, o := range map[string]etcd.Options{
		"no endpoint":                 {Prefix: "/h"},
		"plain http to another host":  {Prefix: "/h", Endpoints: []string{"http://192.0.2.1:2379"}},
		"no prefix":                   {Endpoints: []string{"https://e"}},
		"a certificate without a key": {Prefix: "/h", Endpoints: []string{"https://e"}, Certificate: "/c"},
		"a user without a password":   {Prefix: "/h", Endpoints: []string{"https://e"}, Username: "n"},
	} {
		if _, err := etcd.New(o); err == nil || !strings.Contains(err.Error(), "controlPlane.etcd") {
			t.Errorf("New() of %s = %v, want it refused by the name of the key", name, err)
		}
	}
}

func TestTheSchemeHttpsIgnoresCase(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	first := make(chan byte, 1)
	go func() {
		defer close(first)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		var b [1]byte
		if _, err := conn.Read(b[:]); err == nil {
			first <- b[0]
		}
	}()
	store := open(t, func(o *etcd.Options) { o.Endpoints = []string{"HTTPS://" + listener.Addr().String()} })
	if _, err := store.Get(t.Context(), objects.Key{Kind: objects.Node, Node: "n"}); !errors.Is(err, controlplane.ErrUnavailable) {
		t.Errorf("Get() from a server that hangs up = %v, want it unavailable", err)
	}
	const handshake = 22 // a record of TLS
	if got := <-first; got != handshake {
		t.Errorf("the first byte that is sent = %d, want %d: a handshake", got, handshake)
	}
}

func TestInAnOutageCallsWaitForOneConnection(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var accepted atomic.Int32
	var held sync.WaitGroup
	held.Go(func() {
		for {
			conn, err := listener.Accept() // it never answers
			if err != nil {
				return
			}
			accepted.Add(1)
			defer conn.Close()
		}
	})
	defer held.Wait()
	defer listener.Close()
	store := open(t, func(o *etcd.Options) { o.Endpoints = []string{"http://" + listener.Addr().String()} })
	var calls sync.WaitGroup
	for range 100 {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := store.Get(ctx, objects.Key{Kind: objects.Node, Node: "n"}); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, controlplane.ErrUnavailable) {
				t.Errorf("Get() = %v, want no answer in time", err)
			}
		})
	}
	calls.Wait()
	if n := accepted.Load(); n > 10 {
		t.Errorf("connections of 100 calls to a server that does not answer = %d, want them to share", n)
	}
}
