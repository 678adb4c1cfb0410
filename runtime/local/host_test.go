package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/runtime/local"
)

// ProtectHome= and similar settings create mounts that only the agent sees.
func TestFilesystemsAreNamedAsTheHostMountsThem(t *testing.T) {
	folder, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const root = "1 0 8:1 / / rw - ext4 /dev/a rw\n"
	own := root + fmt.Sprintf("2 1 8:1 %[1]s %[1]s ro - ext4 /dev/a rw\n", folder)
	for name, c := range map[string]struct{ host, want string }{
		"a folder of its root":                   {root, "/ /dev/a 8:1"},
		"another filesystem":                     {"1 0 8:7 / / rw - ext4 /dev/other rw\n", folder + " /dev/a 8:1"},
		"a host that is hidden":                  {"", folder + " /dev/a 8:1"},
		"a mount of the host's":                  {own, folder + " /dev/a 8:1"},
		"a mount of a user that has a long path": {"9 1 0:9 / /home/" + strings.Repeat("\\012", 1<<16) + " rw - fuse x rw\n" + own, folder + " /dev/a 8:1"},
	} {
		proc := t.TempDir()
		for pid, text := range map[string]string{"self": own, "1": c.host} {
			if text == "" {
				continue
			}
			if err := os.MkdirAll(filepath.Join(proc, pid), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(proc, pid, "mountinfo"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		list, err := local.Filesystems(proc, "docker", []string{folder})
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: Filesystems() = %v, %v, want one", name, list, err)
		}
		if got := list[0].Mountpoint + " " + list[0].Device + " " + list[0].ID; got != c.want {
			t.Errorf("%s: Filesystems() = %s, want %s", name, got, c.want)
		}
	}
}
