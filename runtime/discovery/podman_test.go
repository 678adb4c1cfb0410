package discovery

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPodmansAreFoundByTheirFiles(t *testing.T) {
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
	expect := func(when, unanswered string, users ...string) {
		t.Helper()
		if p := FindPodmans(root); p.Unreachable != unanswered || !slices.Equal(p.Users, users) {
			t.Errorf("FindPodmans() of a host %s = %+v, want %q, %v", when, p, unanswered, users)
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

// A user owns the run root of their Podman, and may put anything there.
func TestLinksOfUsersAreNotFollowedToFindPodman(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(os.MkdirAll(filepath.Join(elsewhere, "overlay-containers/c/userdata"), 0o755))
	check(os.WriteFile(filepath.Join(elsewhere, "overlay-containers/c/userdata/conmon.pid"), nil, 0o644))
	check(os.MkdirAll(filepath.Join(root, "run/user/1000"), 0o755))
	check(os.Symlink(elsewhere, filepath.Join(root, "run/user/1000/containers")))
	check(os.MkdirAll(filepath.Join(root, "run/user/1001/containers"), 0o755))
	check(os.Symlink(filepath.Join(elsewhere, "overlay-containers"), filepath.Join(root, "run/user/1001/containers/overlay-containers")))
	if p := FindPodmans(root); len(p.Users) > 0 {
		t.Errorf("FindPodmans() = %+v, want no user whose container is elsewhere", p)
	}
}
