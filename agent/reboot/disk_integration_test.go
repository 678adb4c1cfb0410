//go:build integration

package reboot_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/shutdown/journal"
)

// calm is a host without a Node, whose drain ends when the test says so.
type calm struct {
	drains   chan struct{} // receives a value when the drain has begun
	ends     chan struct{} // closed: the drain ends
	commands chan struct{} // receives a value when the command runs
}

func (calm) Wanted() (wanted, undecided []reboot.Finding)                         { return nil, nil }
func (calm) Held() []reboot.Finding                                               { return nil }
func (calm) Undo(context.Context, time.Time) error                                { return nil }
func (calm) Cordon(context.Context) error                                         { return nil }
func (calm) Uncordon(context.Context) error                                       { return nil }
func (calm) EmptiedByServer() bool                                                { return false }
func (calm) NodeBlocked() string                                                  { return "" }
func (calm) HasNode() bool                                                        { return false }
func (calm) Left() bool                                                           { return false }
func (calm) NotStarted() []string                                                 { return nil }
func (calm) Unknown() string                                                      { return "" }
func (calm) GoingDown() bool                                                      { return false }
func (calm) ShutdownPending(context.Context, time.Time) (pending string, _ error) { return "", nil }

func (c calm) Drain(ctx context.Context, _ string, _ time.Time, _ bool, note func(time.Time) error) (journal.Record, error) {
	if err := note(time.Now()); err != nil {
		return journal.Record{}, err
	}
	c.drains <- struct{}{}
	select {
	case <-c.ends:
		return journal.Record{Graceful: true}, nil
	case <-ctx.Done():
		return journal.Record{}, ctx.Err()
	}
}

func (c calm) Reboot(context.Context) error {
	c.commands <- struct{}{}
	return nil
}

// TestAHostWhoseDiskFailsDoesNotReboot has a real filesystem that is full when a reboot is requested, and another one
// that becomes read-only, or full, while the pods are being stopped.
func TestAHostWhoseDiskFailsDoesNotReboot(t *testing.T) {
	const child = "HOSTLER_TEST_DISK"
	if os.Getenv(child) == "" { // the filesystems are mounted in a mount namespace of their own
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), child+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("in a process of its own: %v\n%s", err, out)
		}
		return
	}
	fills := func(path string) error {
		filler, err := os.Create(filepath.Join(path, "filler"))
		for err == nil {
			_, err = filler.Write(make([]byte, 4096))
		}
		if errors.Is(err, unix.ENOSPC) {
			err = nil
		}
		return errors.Join(err, filler.Close())
	}
	for name, c := range map[string]struct {
		breaks  func(path string) error
		repairs func(path string) error
		message string
	}{
		"full": {fills, func(path string) error { return os.Remove(filepath.Join(path, "filler")) }, "no space left on device"},
		"read-only": {
			func(path string) error { return unix.Mount("", path, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=256k") },
			func(path string) error { return unix.Mount("", path, "", unix.MS_REMOUNT, "size=256k") },
			"read-only file system",
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(unix.Mount("tmpfs", path, "tmpfs", 0, "size=256k"))
			defer func() { must(unix.Unmount(path, unix.MNT_DETACH)) }()
			folder, err := statefile.Open(path, slog.New(slog.DiscardHandler))
			must(err)
			defer func() { _ = folder.Close() }()
			h := calm{make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)}
			events := make(chan string, 100)
			controller := func() *reboot.Controller {
				return reboot.New(reboot.Options{
					Node: "n", Boot: "one", Policy: func() reboot.Policy { return reboot.Policy{} }, Host: h, Lock: reboot.Alone{},
					Client: controlplanetest.NewFake(nil), Store: folder.File("reboot"), Flush: folder.Flush, Now: time.Now,
					Announce: func(_, reason, message string) { events <- reason + " " + message }, Log: slog.New(slog.DiscardHandler),
				})
			}
			r := controller()
			ctx, cancel := context.WithCancel(t.Context())
			over := make(chan error)
			go func() { over <- r.Run(ctx) }()
			defer func() { cancel(); <-over }()

			must(c.breaks(path))
			if _, err := r.Request("anna", reboot.Ask{Reason: "kernel", Now: true}); err == nil || !strings.Contains(err.Error(), c.message) {
				t.Errorf("Request() = %v, want %s", err, c.message)
			}
			must(c.repairs(path))
			if _, err := r.Request("anna", reboot.Ask{Reason: "kernel", Now: true}); err != nil {
				t.Fatalf("Request() = %v after the disk was repaired", err)
			}
			<-h.drains
			if stored := controller().Report(); stored.Request == nil || stored.Step != controlplane.RebootDraining || stored.Attempt.Drain.IsZero() {
				t.Errorf("on the disk: %+v, want the drain that has begun", stored.Request)
			}
			must(c.breaks(path))
			close(h.ends)
			for event := ""; !strings.HasPrefix(event, "RebootFailed "); {
				event = <-events
				if strings.HasPrefix(event, "RebootFailed ") && (!strings.Contains(event, "cannot store step Rebooting") || !strings.Contains(event, c.message)) {
					t.Errorf("event = %q, want that the step cannot be stored: %s", event, c.message)
				}
			}
			if len(h.commands) > 0 {
				t.Error("the command has run, want that it has not")
			}
			must(c.repairs(path))
		})
	}
}
