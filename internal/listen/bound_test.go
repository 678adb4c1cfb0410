package listen_test

import (
	"bufio"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/logtest"
)

// bound is the timeout for events that normally take milliseconds.
const bound = 5 * time.Minute

// door is a bounded listener. A caller sends its name in a line before its connection is counted.
// The door answers the connections that it accepts, and keeps them open until the caller closes
// them.
type door struct {
	t    *testing.T
	path string
	log  logtest.Book
}

func open(t *testing.T, each, all int, calm time.Duration) *door {
	t.Helper()
	d := &door{t: t, path: filepath.Join(t.TempDir(), "s")}
	l, err := net.Listen("unix", d.path)
	if err != nil {
		t.Fatal(err)
	}
	l = listen.Bound(l, listen.Bounds{
		Each: each, All: all, Log: d.log.Logger(),
		Who: func(c net.Conn) (any, bool) {
			name, _ := bufio.NewReader(c).ReadString('\n')
			return strings.TrimSpace(name), name == "root\n"
		},
		Refuse: func(c net.Conn) { _, _ = io.WriteString(c, "full\n") },
	})
	listen.SetCalm(l, calm)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.WriteString(c, "come in\n")
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
				_ = c.Close() // as servers do
			}()
		}
	}()
	return d
}

// calls dials with that name, and returns the connection and the answer.
func (d *door) calls(who string) (net.Conn, string) {
	d.t.Helper()
	c, err := net.Dial("unix", d.path)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(bound)); err != nil {
		d.t.Fatal(err)
	}
	if _, err := io.WriteString(c, who+"\n"); err != nil {
		d.t.Fatal(err)
	}
	received, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		d.t.Fatal(err)
	}
	return c, strings.TrimSpace(received)
}

// expects calls with that name, and checks the answer.
func (d *door) expects(who, want string) net.Conn {
	d.t.Helper()
	c, received := d.calls(who)
	if received != want {
		d.t.Errorf("%s received %q, want %q", who, received, want)
	}
	return c
}

func TestACallerThatHangsDoesNotBlockOthers(t *testing.T) {
	d := open(t, 2, 5, time.Hour)
	first := d.expects("prometheus", "come in")
	d.expects("prometheus", "come in")
	d.expects("prometheus", "full")
	d.expects("prometheus", "full")
	d.expects("bob", "come in")
	if got := d.log.Count("refusing connections"); got != 1 {
		t.Errorf("the log says %d times that connections are refused, want once:\n%s", got, d.log.String())
	}
	first.Close()
	for end := time.Now().Add(bound); ; { // until the server sees the close
		if _, received := d.calls("prometheus"); received == "come in" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("prometheus is not let in again")
		}
	}
	d.expects("prometheus", "full") // one connection was closed, though twice
	// A caller that connects repeatedly must not fill the log.
	if refused, over := d.log.Count("refusing connections"), d.log.Count("accepting connections again"); refused != 1 || over != 0 {
		t.Errorf("the log says %d times that connections are refused, and %d times that it is over, want once and never:\n%s", refused, over, d.log.String())
	}
}

func TestTheLogReportsThatConnectionsAreAcceptedAgain(t *testing.T) {
	d := open(t, 1, 5, 0)
	first := d.expects("prometheus", "come in")
	d.expects("prometheus", "full")
	first.Close()
	d.expects("bob", "come in")
	if got := d.log.Count("accepting connections again"); got != 1 {
		t.Errorf("the log says %d times that it is over, want once:\n%s", got, d.log.String())
	}
}

func TestManyWhoHangDoNotKeepRootOut(t *testing.T) {
	d := open(t, 2, 3, time.Hour)
	for _, who := range []string{"a", "b", "c"} {
		d.expects(who, "come in")
	}
	d.expects("d", "full")
	d.expects("root", "come in")
	d.expects("root", "come in")
	d.expects("root", "full")
	d.expects("d", "full") // root's connections do not make room either
}
