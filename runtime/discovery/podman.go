package discovery

import (
	"os"
	"path/filepath"
	"slices"

	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/podman"
)

// Podmans is what is known of a host's Podmans without asking any.
type Podmans struct {
	// Unheard is the socket at which the host's would be asked, where there are
	// containers of it and nobody listens there; empty elsewhere.
	Unheard string
	// Users are the IDs of those who have containers of their own.
	Users []string
}

// LookForPodmans looks for what Podmans have written below root, which is "/" but in
// tests.
func LookForPodmans(root string) (p Podmans) {
	for _, c := range podman.DefaultCandidates() {
		socket := local.Activation{ProcRoot: filepath.Join(root, "proc"), Path: c.Path}
		if exists(filepath.Join(root, podman.Exits)) && holdsContainers(filepath.Join(root, "run/containers/storage")) && socket.Listener() == "" {
			p.Unheard = c.Path
		}
	}
	folders, _ := filepath.Glob(filepath.Join(root, "run/user/*/containers"))
	for _, folder := range folders {
		if holdsContainers(folder) {
			p.Users = append(p.Users, filepath.Base(filepath.Dir(folder)))
		}
	}
	slices.Sort(p.Users)
	return p
}

// holdsContainers reports whether there is a container of Podman's below a run root.
func holdsContainers(runRoot string) bool {
	found, _ := filepath.Glob(podman.Started(runRoot))
	return len(found) > 0
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
