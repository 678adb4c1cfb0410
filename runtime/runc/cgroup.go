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

// cgroup has all processes of a container, and no known foreign process. Its folder is held open,
// so that a later one of the same name is not confused with it.
type cgroup struct {
	folder  *tree.Dir
	freezer string // folder of version 1's freezer; empty without one
}

// errShared: a cgroup holds others than its container.
var errShared = errors.New("its cgroup is shared with other processes")

// enclosing opens the cgroup whose process pid is a container's first, or returns nil
// where there is none: where the files name none, or one that is shared with strangers,
// as of a container that was made without one.
func enclosing(s state, strangers map[int]bool) *cgroup {
	for _, candidate := range s.cgroups {
		folder, err := openCgroup(candidate)
		if err != nil {
			continue
		}
		if !holdsOnly(folder, s.pid, strangers) {
			folder.Close()
			continue
		}
		g := &cgroup{folder: folder}
		if freezer, err := openCgroup(s.freezer); err == nil {
			if holdsOnly(freezer, s.pid, strangers) {
				g.freezer = s.freezer
			}
			freezer.Close()
		}
		return g
	}
	return nil
}

// openCgroup opens a folder, and refuses what is none of a cgroup file system.
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

// holdsOnly reports whether a process is in a cgroup, and no stranger is.
func holdsOnly(folder *tree.Dir, pid int, strangers map[int]bool) bool {
	pids, whole := processes(folder)
	return whole && slices.Contains(pids, pid) && !anyOf(strangers, pids)
}

func anyOf(strangers map[int]bool, pids []int) bool {
	return slices.ContainsFunc(pids, func(pid int) bool { return strangers[pid] })
}

// mostCgroups bounds what is held of cgroups below a container's, which it may make itself: some
// 80,000 of them.
const mostCgroups = 8 << 20

// processes lists those in a cgroup and below, and reports whether these are all. Those of other PID
// namespaces, which are listed as 0, are left out.
func processes(folder *tree.Dir) (pids []int, whole bool) {
	whole = tree.Walk(folder, mostCgroups, func(e tree.Entry) (enter, goOn bool) {
		if e.Folder != nil || e.Name != "cgroup.procs" {
			return true, true
		}
		f, err := e.Dir.OpenFile(e.Name, os.O_RDONLY)
		if err != nil {
			return false, tree.Gone(err) || errors.Is(err, unix.ENODEV) // which a cgroup says that is being removed
		}
		defer f.Close()
		// What cannot be read has gone meanwhile, or holds threads of processes that are
		// listed above it.
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

// write writes into a file of the cgroup. One that is gone needs nothing any more.
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

// kill kills all processes in the cgroup, until none is left or ctx ends. It returns errShared if a
// foreign process is in it, which is checked right before each kill. Version 2 kills in one step
// (cgroup.kill, Linux 5.14). Otherwise all processes are frozen, so that none forks and no PID is
// reused meanwhile.
func (g *cgroup) kill(ctx context.Context, strangers func() (map[int]bool, error)) error {
	for {
		others, err := strangers()
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

// killAll sends SIGKILL to all that is in the cgroup now.
func (g *cgroup) killAll(strangers map[int]bool) error {
	if err := g.write("cgroup.kill", "1"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	g.freeze()
	defer g.thaw()
	pids, _ := processes(g.folder) // of others on the next turn
	if anyOf(strangers, pids) {
		return errShared
	}
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL) // it may be gone
	}
	return nil
}

// killAgainAfter is the pause between two reads what a kill has left.
const killAgainAfter = 10 * time.Millisecond

// freeze makes a kill sure. Without a freezer it is repeated until nothing is left.
func (g *cgroup) freeze() {
	if g.freezer != "" {
		_ = (&cgroupfs.FreezerGroup{}).Set(g.freezer, &cgroups.Resources{Freezer: cgroups.Frozen})
	}
}

// thaw resumes a container that was paused, as to have it take in a signal. Where there is
// nothing to thaw it does nothing.
func (g *cgroup) thaw() {
	_ = g.write("cgroup.freeze", "0")
	if g.freezer != "" {
		_ = (&cgroupfs.FreezerGroup{}).Set(g.freezer, &cgroups.Resources{Freezer: cgroups.Thawed})
	}
}
