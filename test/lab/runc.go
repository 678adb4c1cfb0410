package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Runc is a state root with containers that runc or crun runs, without another runtime.
type Runc struct {
	Root string // state root; the first container creates it
	// Path is the folder with the program and the files that it needs here.
	Path string

	lab    *Lab
	tool   Tool
	dir    string
	cgroup string
}

// RuncContainer describes a container.
type RuncContainer struct {
	ID          string
	Command     []string
	Annotations map[string]string
	Bundle      string // folder of the bundle, relative; if empty, the ID

	HostPIDs  bool   // without its own PID namespace
	Cgroup    string // containers with the same value share a cgroup; if empty, the container has its own
	Ready     string // text that it prints when it is ready; Run waits for it
	Unstarted bool   // only created, not started
}

// NewRunc prepares a state root for containers of runc. If root is empty, it is a new folder.
func (l *Lab) NewRunc(root string) (*Runc, error) {
	return l.newRunc(l.Tools.Runc, KitContainers, root)
}

// NewCrun is NewRunc for crun.
func (l *Lab) NewCrun(root string) (*Runc, error) {
	r, err := l.newRunc(l.Tools.Crun, KitCrun, root)
	if err != nil {
		return nil, err
	}
	r.Path = filepath.Join(r.dir, "bin")
	if err := errors.Join(os.Mkdir(r.Path, 0o755), l.writeCrun(filepath.Join(r.Path, "crun"))); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// withoutHybrid hides the second of two cgroup hierarchies from crun, which does not support hosts
// with controllers in both.
const withoutHybrid = `#!/bin/sh
exec unshare --mount sh -c 'umount /sys/fs/cgroup/unified %[1]s/sys/fs/cgroup/unified 2>/dev/null; exec "$0" "$@"' %[2]s "$@"
`

// writeCrun writes a script that runs crun here, and also in the root of the runtimes.
func (l *Lab) writeCrun(path string) error {
	return os.WriteFile(path, fmt.Appendf(nil, withoutHybrid, l.root, l.Tools.Crun.Path), 0o755)
}

func (l *Lab) newRunc(tool Tool, kit Kit, root string) (*Runc, error) {
	if tool.Path == "" {
		return nil, fmt.Errorf("make state root: no program: fetch the kit %q", kit)
	}
	dir, err := os.MkdirTemp(Dir, filepath.Base(tool.Path)+"-")
	if err != nil {
		return nil, err
	}
	if root == "" {
		root = filepath.Join(dir, filepath.Base(tool.Path))
	}
	r := &Runc{Root: root, Path: filepath.Dir(tool.Path), lab: l, tool: tool, dir: dir, cgroup: filepath.Join(l.Cgroup, filepath.Base(dir))}
	if err := l.makeRootfs(filepath.Join(dir, "rootfs")); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// makeRootfs fills a folder with the files of every image.
func (l *Lab) makeRootfs(dir string) error {
	for _, folder := range []string{"bin", "data", "dev", "etc", "proc", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(l.Tools.Busybox.Path)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "bin/busybox"), program, 0o755); err != nil {
		return err
	}
	for _, applet := range applets {
		if err := os.Symlink("busybox", filepath.Join(dir, "bin", applet)); err != nil {
			return err
		}
	}
	return nil
}

// Run creates a container, starts it, and returns when it is ready.
func (r *Runc) Run(ctx context.Context, c RuncContainer) error {
	if err := r.run(ctx, c); err != nil {
		return fmt.Errorf("run container %s: %w", c.ID, err)
	}
	return nil
}

func (r *Runc) run(ctx context.Context, c RuncContainer) error {
	bundle := filepath.Join(r.dir, "bundles", cmp.Or(c.Bundle, c.ID))
	if err := os.MkdirAll(bundle, 0o755); err != nil {
		return err
	}
	config, err := json.Marshal(r.spec(c))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o644); err != nil {
		return err
	}
	args := []string{"run", "--detach", "--bundle", bundle, c.ID}
	if c.Unstarted {
		args = []string{"create", "--bundle", bundle, c.ID}
	}
	if err := r.Do(ctx, args...); err != nil || c.Ready == "" {
		return err
	}
	return r.AwaitOutput(ctx, c.ID, c.Ready)
}

// spec returns the configuration of a bundle.
func (r *Runc) spec(c RuncContainer) specs.Spec {
	namespaces := []specs.LinuxNamespace{{Type: specs.MountNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}}
	if !c.HostPIDs {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: specs.PIDNamespace})
	}
	cgroup := c.Cgroup
	if cgroup == "" {
		cgroup = c.ID
	}
	return specs.Spec{
		Version:     "1.0.2",
		Process:     &specs.Process{Args: c.Command, Cwd: "/", Env: []string{"PATH=/bin"}},
		Root:        &specs.Root{Path: filepath.Join(r.dir, "rootfs")},
		Hostname:    c.ID,
		Annotations: c.Annotations,
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "mode=755", "size=64k"}},
		},
		Linux: &specs.Linux{CgroupsPath: filepath.Join(r.cgroup, cgroup), Namespaces: namespaces},
	}
}

// Do runs the program with a command in the state root, such as "pause", "web". The container's
// output goes to a file with the name of the last argument.
func (r *Runc) Do(ctx context.Context, args ...string) error {
	log, err := os.OpenFile(r.log(args[len(args)-1]), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(r.Path, filepath.Base(r.tool.Path)), append([]string{"--root", r.Root}, args...)...)
	cmd.Env = append(os.Environ(), r.tool.Environ()...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%s %s: %w: %s", filepath.Base(r.tool.Path), strings.Join(args, " "), err, LastLines(string(text), 5))
	}
	return nil
}

func (r *Runc) log(id string) string { return filepath.Join(r.dir, id+".log") }

// Environ returns the environment in which a program can run this runtime.
func (r *Runc) Environ() []string {
	return append(r.tool.Environ(), "PATH="+r.Path+":"+os.Getenv("PATH"))
}

// Output returns the output of a container so far.
func (r *Runc) Output(id string) (string, error) {
	text, err := os.ReadFile(r.log(id))
	return string(text), err
}

// AwaitOutput waits until a container has printed a text.
func (r *Runc) AwaitOutput(ctx context.Context, id, text string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		printed, err := r.Output(id)
		if err == nil && strings.Contains(printed, text) {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("container %s has not printed %q, but %q: %w", id, text, printed, ctx.Err())
		}
	}
}

// Processes lists the processes in the cgroup of a container.
func (r *Runc) Processes(id string) (pids []int, err error) {
	roots, err := cgroupRoots()
	for _, root := range roots {
		pids = append(pids, cgroupProcesses(filepath.Join(root, r.cgroup, id))...)
	}
	return pids, err
}

// Join moves a process into the cgroup of a container.
func (r *Runc) Join(id string, pid int) error {
	roots, err := cgroupRoots()
	for _, root := range roots {
		file := filepath.Join(root, r.cgroup, id, "cgroup.procs")
		if failed := os.WriteFile(file, []byte(strconv.Itoa(pid)), 0); !errors.Is(failed, os.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// thaw resumes paused containers: on cgroup v1, a frozen process cannot be killed.
func (r *Runc) thaw() {
	roots, _ := cgroupRoots() // killCgroup reports the error
	for _, root := range roots {
		files, _ := filepath.Glob(filepath.Join(root, r.cgroup, "*", "freezer.state"))
		for _, file := range files {
			_ = os.WriteFile(file, []byte("THAWED"), 0) // the file may not exist any more
		}
	}
}

// Close ends all containers, and removes their cgroups and files. It can be called again.
func (r *Runc) Close() error {
	r.thaw()
	killCgroup(r.cgroup)
	err := r.lab.unmountBelow(r.dir)
	return errors.Join(err, os.RemoveAll(r.Root), os.RemoveAll(r.dir), removeCgroup(r.cgroup, patience))
}
