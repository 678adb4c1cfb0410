//go:build integration

package lab_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/moby/sys/mountinfo"
)

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually waits until true returns true. Only an error makes it reach its limit.
func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !true(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited 30s in vain: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func writeLogindDropIn(t *testing.T, text string) {
	t.Helper()
	const dir = "/run/systemd/logind.conf.d"
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(dir+"/zz-test.conf", []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func asDBusError(err error, target *dbus.Error) bool { return errors.As(err, target) }

// deviceOf returns the source of the mount at a mount point.
func deviceOf(t *testing.T, mountpoint string) string {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(mountpoint))
	if err != nil || len(mounts) != 1 {
		t.Fatalf("GetMounts(%s) = %v, %v, want one", mountpoint, mounts, err)
	}
	return mounts[0].Source
}
