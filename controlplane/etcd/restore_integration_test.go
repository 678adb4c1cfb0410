//go:build integration

package etcd_test

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/controlplane/store"
	bed "hostler.io/hostler/test/etcd"
)

// TestARestoredBackupIsReportedOnce restores a backup of a real etcd. The next Ping that is answered says so, and those
// after it do not.
func TestARestoredBackupIsReportedOnce(t *testing.T) {
	for name, flags := range map[string][]string{
		"its revision goes back": nil,
		"its revision is raised": {"--bump-revision=1000000000", "--mark-compacted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			restores(t, flags)
		})
	}
}

// restores restores a backup with flags, and checks what Ping reports.
func restores(t *testing.T, flags []string) {
	c := bed.For(t, bed.Options{})
	f := fleetAt(t, c, "/restored")
	ctx := t.Context()
	put := func() {
		if err := c.Put(ctx, "/other/key", time.Now().String()); err != nil {
			t.Fatal(err)
		}
	}
	ping := func(when string) {
		t.Helper()
		if err := served(ctx, func() error { return f.Ping(ctx) }); err != nil {
			t.Errorf("Ping() %s = %v, want no error", when, err)
		}
	}
	put()
	ping("before the backup")
	backup := filepath.Join(t.TempDir(), "backup")
	if err := c.Backup(ctx, backup); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		put()
	}
	ping("after changes")
	if err := c.Restore(ctx, backup, flags...); err != nil {
		t.Fatal(err)
	}
	err := served(ctx, func() error { return f.Ping(ctx) }) // at first, the client still connects
	if !errors.Is(err, store.ErrRestored) {
		t.Errorf("Ping() after the restore = %v, want %v", err, store.ErrRestored)
	}
	ping("after that")
	put()
	ping("after a change of the restored store")
}
