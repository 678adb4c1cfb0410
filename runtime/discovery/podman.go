package discovery

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hostler.io/hostler/internal/tree"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/podman"
)

// Podmans is what is known of a host's Podmans without asking any.
type Podmans struct {
	// Unreachable is the socket at which the host's would be asked, where there are
	// containers of it and nobody listens there; empty elsewhere.
	Unreachable string
	// Users are the IDs of those who have containers of their own.
	Users []string
}

// FindPodmans searches for what Podmans have written below root, which is "/" but in
// tests.
func FindPodmans(root string) (p Podmans) {
	for _, c := range podman.DefaultCandidates() {
		socket := local.Activation{ProcRoot: filepath.Join(root, "proc"), Path: c.Path}
		if exists(filepath.Join(root, podman.Exits)) && holdsContainers(tree.Open(filepath.Join(root, "run/containers/storage"))) && socket.Listener() == "" {
			p.Unreachable = c.Path
		}
	}
	users, err := tree.Open(filepath.Join(root, "run/user"))
	if err != nil {
		return p // nobody is logged in
	}
	defer users.Close()
	for name := range users.Names() {
		user, err := users.Open(name)
		if err != nil {
			continue // has logged out
		}
		if holdsContainers(user.Open("containers")) {
			p.Users = append(p.Users, name)
		}
		user.Close()
	}
	slices.Sort(p.Users)
	return p
}

const (
	// mostEntries and mostBytes bound what is read of a run root, which may be a user's.
	mostEntries = 10_000
	mostBytes   = 1 << 20
)

// holdsContainers reports whether there is a container of Podman's below a run root that was opened, if
// it was. It closes the run root. One that holds too much to read has some.
func holdsContainers(runRoot *tree.Dir, err error) (holds bool) {
	if err != nil {
		return false
	}
	defer runRoot.Close()
	steps, entries := strings.Split(podman.Started(""), "/"), 0
	tree.Walk(runRoot, mostBytes, func(e tree.Entry) (enter, goOn bool) {
		if e.In == nil {
			return true, true
		}
		entries++
		fits, _ := filepath.Match(steps[e.In.Depth], e.Name) // the pattern is valid
		holds = fits && e.In.Depth == len(steps)-1 || entries > mostEntries
		return fits, !holds
	})
	return holds
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
