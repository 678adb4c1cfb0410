package discovery

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/internal/trust/trusttest"
)

// Files of ended containers stay, also if their shim was killed with them. Process IDs are used again.
func TestAContainerRunsWhileItsProcessDoes(t *testing.T) {
	id, other := strings.Repeat("c0ffee01", 8), strings.Repeat("0ddba11f", 8)
	for file, processes := range map[string]map[string]trusttest.Process{
		"userdata/conmon.pid": {"its conmon": {Cgroup: "/machine.slice/libpod-conmon-" + id + ".scope"}},
		"init.pid":            {"its process": {UID: 1000, Cgroup: "/system.slice/docker-" + id + ".scope", Mounts: "own", Root: "/tmp"}},
		"shim.pid":            {"its shim, by its command line": {Name: "containerd-shim-kata-v2\x00-id\x00" + id}},
	} {
		processes["another container's"] = trusttest.Process{Cgroup: "/system.slice/docker-" + other + ".scope"}
		processes["a user's"] = trusttest.Process{UID: 1000, Name: "sleep\x00" + id, Cgroup: "/user.slice/" + id}
		for what, process := range processes {
			folder := t.TempDir()
			path := filepath.Join(folder, id, file)
			r := &Runtimes{proc: trusttest.Proc(t)}
			expect := func(when string, want bool) {
				t.Helper()
				pattern := filepath.Join(folder, "*", "userdata", "conmon.pid")
				if file != "userdata/conmon.pid" {
					pattern = filepath.Join(folder, "*")
				}
				if got := r.hasContainers(pattern); got != want {
					t.Errorf("hasContainers() with %s of %s, %s = %v, want %v", file, what, when, got, want)
				}
			}
			for _, text := range []string{"", "none", "0", "71"} {
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				expect("which has ended: "+text, false)
			}
			process.PID = 71
			trusttest.Add(t, r.proc, process)
			expect("which runs", strings.HasPrefix(what, "its "))
		}
	}
}
