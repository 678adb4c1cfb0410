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

// Podmans describes a host's Podmans without calling them.
type Podmans struct {
	// Unreachable is the socket of the host's Podman, if it has containers but nobody listens
	// there; else "".
	Unreachable string
	// Users are the IDs of users who have their own containers.
	Users []string
}

// FindPodmans searches for files of Podmans below root, which is "/" except in tests.
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
			continue // the user has logged out
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
	// mostEntries and mostBytes limit how much of a run root is read, because a user may control
	// it.
	mostEntries = 10_000
	mostBytes   = 1 << 20
)

// holdsContainers reports whether a run root of Podman has a container, and closes it. It returns
// true if the run root is too large to read, and false if it could not be opened (err).
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
