package runc

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/opencontainers/cgroups"
	cgroupfs "github.com/opencontainers/cgroups/fs"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/tree"
)

// cgroup contains all processes of a container, and no process known to be foreign. Its folder
// stays open, so that a later folder of the same name is not mistaken for it.
type cgroup struct {
	folder  *tree.Dir
	freezer string // folder of the version 1 freezer; empty if there is none
}

// errShared: a cgroup contains processes of others.
var errShared = errors.New("its cgroup is shared with other processes")

// enclosing opens the cgroup that contains a container's first process, or returns nil. It returns
// nil if the container's files name none, or if it contains foreign processes, as for a container
// that was created without a cgroup.
func enclosing(s state, foreign map[int]bool) *cgroup {
	for _, candidate := range s.cgroups {
		folder, err := openCgroup(candidate)
		if err != nil {
			continue
		}
		if !holdsOnly(folder, s.pid, foreign) {
			folder.Close()
			continue
		}
		g := &cgroup{folder: folder}
		if freezer, err := openCgroup(s.freezer); err == nil {
			if holdsOnly(freezer, s.pid, foreign) {
				g.freezer = s.freezer
			}
			freezer.Close()
		}
		return g
	}
	return nil
}

// openCgroup opens a folder, and refuses it if it is not in a cgroup file system.
func openCgroup(folder string) (*tree.Dir, error) {
	if !filepath.IsAbs(folder) {
		return nil, fs.ErrInvalid
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(folder, &stat); err != nil {
		return nil, err
	}
	if stat.Type != unix.CGROUP_SUPER_MAGIC && stat.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, fs.ErrInvalid
	}
	return tree.Open(folder)
}

// holdsOnly reports whether a process is in a cgroup that contains no foreign process.
func holdsOnly(folder *tree.Dir, pid int, foreign map[int]bool) bool {
	pids, whole := processes(folder)
	return whole && slices.Contains(pids, pid) && !anyOf(foreign, pids)
}

func anyOf(foreign map[int]bool, pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool { return foreign[pid] })
}

// mostCgroups bounds the memory for cgroups below a container's, about 80,000 of them: the
// container may create them.
const mostCgroups = 8 << 20

// processes lists the processes in a cgroup and below, and reports whether the list is complete. It
// omits processes of other PID namespaces, which are listed as 0.
func processes(folder *tree.Dir) (pids []int, whole bool) {
	whole = tree.Walk(folder, mostCgroups, func(e tree.Entry) (enter, goOn bool) {
		if e.Folder != nil || e.Name != "cgroup.procs" {
			return true, true
		}
		f, err := e.Dir.OpenFile(e.Name, os.O_RDONLY)
		if err != nil {
			return false, tree.Gone(err) || errors.Is(err, unix.ENODEV) // ENODEV: the cgroup is being removed
		}
		defer f.Close()
		// A cgroup that cannot be read was removed, or contains threads of processes that are
		// listed in its parent.
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
		return false, true
	})
	return pids, whole
}

func (g *cgroup) close() { g.folder.Close() }

// write writes to a file of the cgroup, and ignores that the cgroup was removed.
func (g *cgroup) write(file, text string) error {
	f, err := g.folder.OpenFile(file, os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// kill kills all processes in the cgroup, until none is left or ctx ends. Before each kill it
// checks for foreign processes, and returns errShared if there is one. Version 2 kills in one step
// (cgroup.kill, Linux 5.14). Otherwise all processes are frozen first, so that none forks and no
// PID is reused.
func (g *cgroup) kill(ctx context.Context, foreign func() (map[int]bool, error)) error {
	for {
		others, err := foreign()
		if err != nil {
			return err
		}
		pids, whole := processes(g.folder)
		switch {
		case len(pids) == 0 && whole:
			return nil
		case anyOf(others, pids):
			return errShared
		}
		if err := g.killAll(others); err != nil {
			return err
		}
		select {
		case <-time.After(killAgainAfter):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// killAll sends SIGKILL to all processes that are in the cgroup now.
func (g *cgroup) killAll(foreign map[int]bool) error {
	if err := g.write("cgroup.kill", "1"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	g.freeze()
	defer g.thaw()
	pids, _ := processes(g.folder) // the next round kills the others
	if anyOf(foreign, pids) {
		return errShared
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
	return nil
}

// killAgainAfter is the pause between rounds of kill.
const killAgainAfter = 10 * time.Millisecond

// freeze freezes the cgroup before a kill. Without a freezer, kill repeats until nothing is left.
func (g *cgroup) freeze() {
	if g.freezer != "" {
		_ = (&cgroupfs.FreezerGroup{}).Set(g.freezer, &cgroups.Resources{Freezer: cgroups.Frozen})
	}
}

// thaw resumes a paused container, for example so that it handles a signal. If it is not paused, it
// does nothing.
func (g *cgroup) thaw() {
	_ = g.write("cgroup.freeze", "0")
	if g.freezer != "" {
		_ = (&cgroupfs.FreezerGroup{}).Set(g.freezer, &cgroups.Resources{Freezer: cgroups.Thawed})
	}
}
