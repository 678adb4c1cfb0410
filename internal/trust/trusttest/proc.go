// Package trusttest creates proc file systems for tests of which processes are trusted.
package trusttest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Process is a process in such a file system. Empty fields default to those of root's service on
// the host.
type Process struct {
	PID       int
	Name      string
	UID       int
	Cgroup    string // such as "/system.slice/kubelet.service"
	Namespace string // its PID namespace; "host" is the namespace of PID 1
	Mounts    string // its mount namespace; "host" is the namespace of PID 1
	Root      string // its root directory; "/" is that of PID 1
	Confined  bool   // without CAP_SYS_ADMIN, like a container that is not privileged
	Program   string // a file
	State     string // "S", or "Z" for a zombie
}

// Proc creates a file system with PID 1 and these processes, and returns its path.
func Proc(t testing.TB, processes ...Process) string {
	t.Helper()
	root := t.TempDir()
	Add(t, root, append([]Process{{PID: 1, Name: "systemd", Cgroup: "/init.scope"}}, processes...)...)
	return root
}

// Add adds processes to a file system.
func Add(t testing.TB, root string, processes ...Process) {
	t.Helper()
	for _, p := range processes {
		capabilities := uint64(1)<<41 - 1
		if p.Confined {
			capabilities &^= 1 << unix.CAP_SYS_ADMIN
		}
		folder := filepath.Join(root, strconv.Itoa(p.PID))
		if err := os.MkdirAll(filepath.Join(folder, "ns"), 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"comm":    p.Name + "\n",
			"cmdline": p.Name + "\x00",
			"stat":    fmt.Sprintf("%d (%s) %s 1 1\n", p.PID, p.Name, cmp.Or(p.State, "S")),
			"status":  fmt.Sprintf("Name:\t%s\nUid:\t%[2]d\t%[2]d\t%[2]d\t%[2]d\nCapEff:\t%016[3]x\n", p.Name, p.UID, capabilities),
			"cgroup":  "0::" + cmp.Or(p.Cgroup, "/system.slice/"+p.Name+".service") + "\n",
		} {
			if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for link, target := range map[string]string{
			"ns/pid":  "pid:[" + cmp.Or(p.Namespace, "host") + "]",
			"ns/mnt":  "mnt:[" + cmp.Or(p.Mounts, "host") + "]",
			"ns/user": "user:[host]",
			"root":    cmp.Or(p.Root, "/"),
			"exe":     cmp.Or(p.Program, "/bin/sh"), // owned by root
		} {
			if err := os.Symlink(target, filepath.Join(folder, link)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
