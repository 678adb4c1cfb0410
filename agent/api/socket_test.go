package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/internal/listen"
)

func TestListenOpensTheSocketToTheGroupOnly(t *testing.T) {
	socket := filepath.Join(folder(t), "run", "s") // the folder does not exist yet
	l, err := listen.Socket(socket)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	want := os.FileMode(0o600)
	if _, err := user.LookupGroup(listen.Group); err == nil && os.Geteuid() == 0 {
		want = 0o660
	}
	if got := info.Mode().Perm(); got != want {
		t.Errorf("mode of the socket = %o, want %o", got, want)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there after Close(): %v", err)
	}
}

func TestModeFollowsTheGroup(t *testing.T) {
	for name, c := range map[string]struct {
		gid   int
		found bool
		want  os.FileMode
	}{
		"the group exists, and we are in it": {os.Getegid(), true, 0o660},
		"there is no such group":             {0, false, 0o600},
	} {
		t.Run(name, func(t *testing.T) {
			socket := filepath.Join(folder(t), "s")
			l, err := api.ListenFor(socket, c.gid, c.found)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			info, err := os.Stat(socket)
			if err != nil || info.Mode().Perm() != c.want {
				t.Errorf("the socket = %v, %v, want mode %o", info.Mode(), err, c.want)
			}
		})
	}
}

func TestListenReplacesASocketThatNobodyServes(t *testing.T) {
	socket := filepath.Join(folder(t), "s")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false) // as if the process had been killed
	dead.Close()
	l, err := listen.Socket(socket)
	if err != nil {
		t.Fatalf("Listen() = %v, want the stale socket replaced", err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatalf("the new socket = %v, want it served", err)
	}
	conn.Close()
}

func TestListenLeavesALiveAgentAlone(t *testing.T) {
	socket, _ := serve(t, routes(&backend{}))
	l, err := listen.Socket(socket)
	if err == nil {
		l.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "another process serves "+socket) {
		t.Errorf("Listen() beside an agent = %v, want it refused", err)
	}
	if s, err := api.NewClient(socket).Status(context.Background()); err != nil || s.Version != "1.2.3" {
		t.Errorf("the agent that was first answers %q, %v, want as before", s.Version, err)
	}
}

func TestListenRemovesNothingThatIsNoSocket(t *testing.T) {
	dir := folder(t)
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "l")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, link, dir} {
		if _, err := listen.Socket(path); err == nil || !strings.Contains(err.Error(), "is in the way and is no socket; move it, or set api.socket") {
			t.Errorf("Listen(%s) = %v, want it refused with a hint", path, err)
		}
	}
	if content, err := os.ReadFile(link); err != nil || string(content) != "dear" {
		t.Errorf("the file = %q, %v, want it untouched", content, err)
	}
}

// A program that leaves connections open does not affect others; see internal/listen for other
// users.
func TestOneUsersConnectionsAreBounded(t *testing.T) {
	socket, _ := serve(t, routes(&backend{}))
	var held []net.Conn
	for range 32 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		held = append(held, c)
	}
	full, err := net.Dial("unix", socket) // it is last in the accept queue
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := full.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(full), nil)
	if err != nil {
		t.Fatalf("one connection more than may be open: %v, want it answered", err)
	}
	defer resp.Body.Close()
	var e api.Error
	if err := json.NewDecoder(resp.Body).Decode(&e); resp.StatusCode != http.StatusServiceUnavailable || err != nil || !strings.Contains(e.Message, "too many connections") || e.Hint == "" {
		t.Errorf("one connection more than may be open = %s %+v, %v, want 503 and why", resp.Status, e, err)
	}
	held[0].Close()
	for end := time.Now().Add(5 * time.Minute); ; { // until the server has noticed
		if _, err := api.NewClient(socket).Status(t.Context()); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatalf("Status() = %v although one has left", err)
		}
	}
}

func TestListenWithoutPermissionHasAHint(t *testing.T) {
	file := filepath.Join(folder(t), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file + "/run/s", filepath.Join(folder(t), strings.Repeat("x", 200))} {
		if _, err := listen.Socket(path); err == nil || !strings.HasSuffix(err.Error(), "; run it as root, or set api.socket") {
			t.Errorf("Listen(%s) = %v, want it refused with a hint", path, err)
		}
	}
}
