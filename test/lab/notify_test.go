package lab_test

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/test/lab"
)

func startNotify(t *testing.T, maxFiles int) *lab.Notify {
	t.Helper()
	n, err := lab.StartNotify(maxFiles)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestNotifyRecordsMessagesInOrder(t *testing.T) {
	n := startNotify(t, 0)
	t.Setenv("NOTIFY_SOCKET", n.Socket)
	for _, state := range []string{daemon.SdNotifyReady + "\nSTATUS=all is well", daemon.SdNotifyStopping} {
		if sent, err := daemon.SdNotify(false, state); err != nil || !sent {
			t.Fatalf("SdNotify(%q) = %v, %v, want true", state, sent, err)
		}
	}
	if _, err := n.Await(t.Context(), "STOPPING", "1", time.Time{}); err != nil {
		t.Fatal(err)
	}
	seen := n.Notifications()
	if len(seen) != 2 || seen[0].Fields["READY"] != "1" || seen[0].Fields["STATUS"] != "all is well" {
		t.Errorf("Notifications() = %+v, want READY with its STATUS, then STOPPING", seen)
	}
}

// store sends descriptors with a message, as sd_pid_notify_with_fds does.
func store(t *testing.T, n *lab.Notify, message string, files ...*os.File) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	before := len(n.Notifications())
	if err := unix.Sendmsg(fd, []byte(message), unix.UnixRights(fds...), &unix.SockaddrUnix{Name: n.Socket}, 0); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Minute); len(n.Notifications()) == before; {
		if time.Now().After(deadline) {
			t.Fatalf("message %q did not arrive within 30s", message)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestNotifyKeepsDescriptorsAndHandsThemOn(t *testing.T) {
	n := startNotify(t, 2)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	store(t, n, "FDSTORE=1\nFDNAME=lock\nFDPOLL=0", w)
	store(t, n, "FDSTORE=1\nFDNAME=lock\nFDPOLL=0", w)
	if got := n.Stored(); !slices.Equal(got, []string{"lock"}) {
		t.Fatalf("Stored() = %q after the same descriptor twice, want one lock", got)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command("/bin/sh", "-c", `test "$LISTEN_PID" = $$ && echo "$LISTEN_FDS $LISTEN_FDNAMES" >&3`)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("the restarted process: %v: %s", err, out.String())
	}
	got := make([]byte, 64)
	size, err := r.Read(got)
	if err != nil || strings.TrimSpace(string(got[:size])) != "1 lock" {
		t.Errorf("through the stored descriptor came %q, %v, want 1 lock", got[:size], err)
	}

	store(t, n, "FDSTOREREMOVE=1\nFDNAME=lock")
	if got := n.Stored(); len(got) != 0 {
		t.Errorf("Stored() = %q after FDSTOREREMOVE, want none", got)
	}
	var rest bytes.Buffer
	if _, err := rest.ReadFrom(r); err != nil || rest.Len() != 0 {
		t.Errorf("read %q, %v after the last descriptor was closed, want the end", rest.String(), err)
	}
}

func TestNotifyStoresNoMoreThanItsLimit(t *testing.T) {
	n := startNotify(t, 1)
	for _, name := range []string{"a", "b"} {
		f, err := os.CreateTemp(t.TempDir(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		store(t, n, "FDSTORE=1\nFDNAME="+name, f)
	}
	if got := n.Stored(); !slices.Equal(got, []string{"a"}) {
		t.Errorf("Stored() = %q, want only the first, a", got)
	}
}

func TestNotifyDropsWhatHungUpUnlessConfiguredNotTo(t *testing.T) {
	n := startNotify(t, 4)
	for _, message := range []string{"FDSTORE=1\nFDNAME=polled", "FDSTORE=1\nFDNAME=kept\nFDPOLL=0"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		store(t, n, message, w)
		for _, f := range []*os.File{r, w} {
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := n.Stored(); !slices.Equal(got, []string{"kept"}) {
		t.Errorf("Stored() = %q after the readers closed, want only the one with FDPOLL=0", got)
	}
}
