package listen_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	goruntime "runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/logtest"
)

// from is a connection from an address.
type from struct {
	net.Conn
	ip string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 4711} }
func (f from) LocalAddr() net.Addr  { return &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 9754} }

func TestAHostIsOneCallerWhateverItsAddressIs(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.7", "192.0.2.7", true},
		{"192.0.2.7", "::ffff:192.0.2.7", true},
		{"192.0.2.7", "192.0.2.8", false},
		{"2001:db8:1:2::7", "2001:db8:1:2:3:4:5:6", true},
		{"2001:db8:1:2::7", "2001:db8:1:3::7", false},
	} {
		a, _ := listen.Caller(from{ip: c.a})
		b, own := listen.Caller(from{ip: c.b})
		if (a == b) != c.same || own {
			t.Errorf("%s and %s are %v and %v, own %t, want them the same: %t, and not own", c.a, c.b, a, b, own, c.same)
		}
	}
}

// dialAs connects as another user, on a thread that ends afterwards.
func dialAs(t *testing.T, uid int, network, address string) net.Conn {
	t.Helper()
	type result struct {
		conn net.Conn
		err  error
	}
	dialled := make(chan result)
	go func() {
		goruntime.LockOSThread() // never unlocked, so that the thread ends
		var r result
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			r.err = errno
		} else {
			r.conn, r.err = net.Dial(network, address)
		}
		dialled <- r
	}()
	r := <-dialled
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.conn.Close() })
	return r.conn
}

func TestUsersOfTheHostAreDistinguished(t *testing.T) {
	users := []int{os.Geteuid()}
	if os.Geteuid() == 0 {
		users = append(users, 65534)
	}
	for _, listens := range []struct{ network, at, dials string }{
		{"tcp4", "127.0.0.1:0", "127.0.0.1"},
		{"tcp6", "[::1]:0", "::1"},
		{"tcp", "[::]:0", "127.0.0.1"},
		{"tcp", "[::]:0", "::1"},
	} {
		l, err := net.Listen(listens.network, listens.at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		for _, uid := range users {
			caller := dialAs(t, uid, "tcp", net.JoinHostPort(listens.dials, port))
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if who, own := listen.Caller(c); who != fmt.Sprintf("uid %d", uid) || own != (uid == 0) {
				t.Errorf("user %d, who connects to %s at %s, is %v, own %t", uid, listens.dials, listens.at, who, own)
			}
			// For a socket without a process, the kernel reports root.
			if err := caller.Close(); err != nil {
				t.Fatal(err)
			}
			if who, own := listen.Caller(c); who != "unknown user" || own {
				t.Errorf("user %d, who has closed, is %v, own %t, want nobody known", uid, who, own)
			}
		}
	}
}

func TestConnectionsOfAUserAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log logtest.Book
	l = listen.PlainTCP(l, log.Logger())
	defer l.Close()
	go func() {
		for {
			if _, err := l.Accept(); err != nil { // kept open
				return
			}
		}
	}()
	var last net.Conn
	for range 9 {
		if last, err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer last.Close()
	}
	if err := last.SetReadDeadline(time.Now().Add(bound)); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("one connection more than 8 is held")
	}
	if log.Count("refusing connections") != 1 {
		t.Errorf("the log does not say that connections are refused:\n%s", log.String())
	}
}

func TestAListenerTakesASmallPartOfFewDescriptors(t *testing.T) {
	for _, c := range []struct {
		descriptors uint64
		each, all   int
	}{
		{1 << 20, 32, 128},
		{2048, 32, 128},
		{1024, 16, 64},
		{256, 4, 16},
		{10, 1, 1},
	} {
		got := listen.Bounds{Each: 32, All: 128}.Within(c.descriptors)
		if got.Each != c.each || got.All != c.all {
			t.Errorf("of %d descriptors callers may have %d each, and %d in all, want %d and %d", c.descriptors, got.Each, got.All, c.each, c.all)
		}
	}
}

// queue opens a bounded listener on which callers wait, accepts the first of them, and then uses up
// all descriptors of the process. free closes one of these.
func queue(t *testing.T, first bool, log *logtest.Book) (l net.Listener, free func()) {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l = listen.Bound(inner, listen.Bounds{Each: 10, All: 10, First: first, Log: log.Logger(), Who: func(net.Conn) (any, bool) { return "somebody", false }})
	t.Cleanup(func() { l.Close() })
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })

	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 128, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	var taken []int
	free = func() {
		if err := unix.Close(taken[0]); err != nil {
			t.Fatal(err)
		}
		taken = taken[1:]
	}
	t.Cleanup(func() {
		for len(taken) > 0 {
			free()
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Fatal(err)
		}
	})
	for {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if errors.Is(err, unix.EMFILE) {
			return l, free
		}
		if err != nil {
			t.Fatal(err)
		}
		taken = append(taken, fd)
	}
}

func TestTheFirstListenerAcceptsWithoutADescriptorLeft(t *testing.T) {
	var log logtest.Book
	l, _ := queue(t, true, &log)
	for range 2 {
		c, err := l.Accept()
		if err != nil {
			t.Fatalf("Accept() = %v, want the connection", err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAListenerWaitsForADescriptor(t *testing.T) {
	var log logtest.Book
	l, free := queue(t, false, &log)
	accepted := make(chan error)
	accept := func() {
		c, err := l.Accept()
		if err == nil {
			err = c.Close()
		}
		accepted <- err
	}
	received := func(what string) error {
		t.Helper()
		select {
		case err := <-accepted:
			return err
		case <-time.After(bound):
			t.Fatalf("Accept() waits although %s", what)
			return nil
		}
	}
	go accept()
	for end := time.Now().Add(bound); log.Count("cannot accept connections") == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log does not say that none can be accepted:\n%s", log.String())
		}
	}
	free()
	if err := received("a descriptor is free"); err != nil {
		t.Errorf("Accept() = %v, want the connection", err)
	}
	if got := log.Count("accepting connections again"); got != 1 {
		t.Errorf("the log says %d times that it is over, want once:\n%s", got, log.String())
	}
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	go accept()
	for end := time.Now().Add(bound); log.Count("cannot accept connections") == 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the log does not repeat it after the end:\n%s", log.String())
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := received("the listener is closed"); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept() of a closed listener = %v, want %v", err, net.ErrClosed)
	}
}
