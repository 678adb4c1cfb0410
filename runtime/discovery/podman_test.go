package discovery

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPodmansAreFoundByWhatTheyWrite(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when, unheard string, users ...string) {
		t.Helper()
		if p := LookForPodmans(root); p.Unheard != unheard || !slices.Equal(p.Users, users) {
			t.Errorf("LookForPodmans() of a host %s = %+v, want %q, %v", when, p, unheard, users)
		}
	}
	const head = "Num       RefCount Protocol Flags    Type St Inode Path\n"
	write("proc/net/unix", head)
	expect("without Podman", "")
	write("run/containers/storage/overlay-containers/containers.lock", "")
	write("run/user/1000/containers/overlay-containers/containers.lock", "")
	write("run/user/1000/libpod/tmp/alive", "")
	write("run/libpod/exits/a", "0")
	expect("without containers", "")
	write("run/containers/storage/overlay-containers/d/userdata/pidfile", "7")
	write("run/containers/storage/overlay-containers/d/userdata/conmon-pidfile", "8")
	expect("with a container of CRI-O's", "")
	write("run/user/1001/containers/overlay-containers/c/userdata/conmon.pid", "7")
	expect("with a user's container", "", "1001")
	write("run/containers/storage/overlay-containers/c/userdata/conmon.pid", "7")
	expect("whose Podman nobody can ask", "/run/podman/podman.sock", "1001")
	write("proc/net/unix", head+"0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/podman/podman.sock\n")
	expect("whose Podman can be asked", "", "1001")
}
