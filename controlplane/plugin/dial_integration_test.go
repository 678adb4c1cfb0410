//go:build integration

package plugin_test

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/controlplane"
)

// nobody is a user other than root and hostler's own. These tests run as root.
const nobody = 65534

// listenVariable makes the test binary listen on a socket at that path, without answering.
const listenVariable = "HOSTLER_TEST_LISTEN"

func TestMain(m *testing.M) {
	if path := os.Getenv(listenVariable); path != "" {
		if _, err := net.Listen("unix", path); err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.WriteString("listening\n")
		select {} // until it is killed
	}
	os.Exit(m.Run())
}

// foreign starts another user's process that listens on a socket.
func foreign(t *testing.T) (path string) {
	t.Helper()
	path = socket(t)
	folder := filepath.Dir(path)
	check(t, os.Chmod(folder, 0o755))
	program := filepath.Join(folder, "listener")
	self, err := os.ReadFile("/proc/self/exe") // other users may not enter its folder
	check(t, err)
	check(t, os.WriteFile(program, self, 0o755))
	open := filepath.Join(folder, "open")
	check(t, os.Mkdir(open, 0o755))
	check(t, os.Chown(open, nobody, nobody))
	path = filepath.Join(open, "plugin.sock")
	cmd := exec.Command(program)
	cmd.Env = []string{listenVariable + "=" + path}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = out.Read(make([]byte, 1))
	check(t, err)
	return path
}

func TestASocketOfAnotherUserIsNotAsked(t *testing.T) {
	err := get(t.Context(), open(t, foreign(t)))
	if !errors.Is(err, controlplane.ErrUntrusted) || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Errorf("Get() over another user's socket = %v, want %v", err, controlplane.ErrUntrusted)
	}
}

// Even if the file is root's, another user's process may serve it.
func TestASocketThatAnotherUserServesIsNotAsked(t *testing.T) {
	path := foreign(t)
	check(t, errors.Join(os.Chown(path, 0, 0), os.Chown(filepath.Dir(path), 0, 0)))
	s := open(t, path)
	for reported := false; !reported; { // a slow machine may not even have tried to connect by then
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		err := get(ctx, s)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Get() of a plugin that another user runs = %v, want no connection to it", err)
		}
		reported = strings.Contains(err.Error(), "is served by user 65534")
	}
}
