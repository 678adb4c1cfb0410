package restart

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"hostler.io/hostler/runtime"
)

// emptyHost returns a host with the folder /srv.
func emptyHost(t *testing.T) (h *host, root string) {
	t.Helper()
	proc := t.TempDir()
	root = filepath.Join(proc, "1/root")
	if err := os.MkdirAll(filepath.Join(root, "srv"), 0o755); err != nil {
		t.Fatal(err)
	}
	return newHost(proc), root
}

func named(id string) pending { return pending{key: key{"docker", id}} }

func withPaths(paths ...string) need { return need{StartNeeds: runtime.StartNeeds{Paths: paths}} }

// If a file server hangs, the host has not changed. Otherwise a container would lose an attempt.
func TestAnUnreadablePictureIsNoChange(t *testing.T) {
	h, root := emptyHost(t)
	web := named("web")
	needs := map[pending]need{web: withPaths("/srv")}
	before := h.pictures(t.Context(), needs)[web]
	if !h.begin(t.Context(), web) { // an earlier read has not returned
		t.Fatal("the files of web are being read")
	}
	if differs(before, h.pictures(t.Context(), needs)[web]) {
		t.Error("a read that hangs counts as a change")
	}
	h.end(web)
	if err := os.Remove(filepath.Join(root, "srv")); err != nil {
		t.Fatal(err)
	}
	if !differs(before, h.pictures(t.Context(), needs)[web]) {
		t.Error("a folder that has gone is no change")
	}
}

// A path on a mount that hangs must not end the wait of other containers for their mounts.
func TestAPathThatHangsHidesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, root := emptyHost(t)
		if err := os.Symlink("/mnt/nas", filepath.Join(root, "data")); err != nil {
			t.Fatal(err)
		}
		stuck, db := named("stuck"), named("db")
		needs := map[pending]need{stuck: withPaths("/hangs"), db: withPaths("/data")}
		back := make(chan struct{})
		read := readEach(t.Context(), h, needs, func(n need) bool {
			if n.Paths[0] == "/hangs" {
				<-back
			}
			return true
		})
		if !read[db] || read[stuck] {
			t.Errorf("read %v, want only the files of db", read)
		}
		for range 2 {
			got := h.resolve(t.Context(), needs)
			if want := []string{"/data", "/mnt/nas"}; len(got) != 1 || !slices.Equal(got[db], want) {
				t.Errorf("resolve() = %v, want %v for db alone", got, want)
			}
		}
		close(back)
		synctest.Wait()
		if got := h.resolve(t.Context(), needs); len(got) != 2 {
			t.Errorf("resolve() = %v after the read has returned, want both", got)
		}
	})
}
