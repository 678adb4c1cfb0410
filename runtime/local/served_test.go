package local_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// proc creates a proc filesystem in which processes hold the listening socket at path. Process 8,
// in another mount namespace, listens at a path of the same name.
func proc(t *testing.T, path string, pids ...int) string {
	t.Helper()
	root := t.TempDir()
	table := "Num       RefCount Protocol Flags    Type St Inode Path\n" +
		"0000000000000000: 00000003 00000000 00000000 0001 03 4710 " + path + "\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 4709 " + path + "\n" +
		"0000000000000000: 00000002 00000000 00010000 0001 01 4711 " + path + "\n"
	if err := errors.Join(os.Mkdir(filepath.Join(root, "net"), 0o755), os.WriteFile(filepath.Join(root, "net", "unix"), []byte(table), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, pid := range append(pids, 7, 8) {
		dir := filepath.Join(root, fmt.Sprint(pid), "fd")
		inode := 4711
		switch pid {
		case 7: // a client
			inode = 4710
		case 8:
			inode = 4709
		}
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, "3")),
			os.WriteFile(filepath.Join(root, fmt.Sprint(pid), "cgroup"), []byte("0::/system.slice/docker.service\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestDetectStartsNoService(t *testing.T) {
	const path = "/run/docker.sock"
	for name, c := range map[string]struct {
		holders []int
		other   string // requested path, if it differs
		starts  bool
	}{
		"a daemon that made its socket itself": {holders: []int{12}},
		"systemd alone":                        {holders: []int{1}, starts: true},
		"systemd, and the daemon it started":   {holders: []int{1, 12}},
		"nobody that can be seen":              {},
		"another socket":                       {holders: []int{1}, other: "/run/other.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			a := local.Activation{ProcRoot: proc(t, path, c.holders...), Path: path}
			if c.other != "" {
				a.Path = c.other
			}
			for range 2 {
				if err := a.Check(); (err != nil) != c.starts || c.starts && !errors.Is(err, runtime.ErrUnavailable) {
					t.Errorf("Check() = %v, want %v: %t", err, runtime.ErrUnavailable, c.starts)
				}
			}
		})
	}
	// The end of the service is noticed, too.
	root := proc(t, path, 1, 12)
	a := local.Activation{ProcRoot: root, Path: path}
	if err := a.Check(); err != nil {
		t.Errorf("Check() = %v, want none while the service runs", err)
	}
	if err := os.RemoveAll(filepath.Join(root, "12")); err != nil {
		t.Fatal(err)
	}
	if err := a.Check(); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Check() = %v after the service has stopped, want %v", err, runtime.ErrUnavailable)
	}
}

// Other processes than those of system services can have a huge number of descriptors.
func TestOnlyProcessesOfServicesAreRead(t *testing.T) {
	const path = "/run/docker.sock"
	for name, c := range map[string]struct {
		cgroup, namespace string
		read              bool
	}{
		"a service":                        {"/system.slice/docker.service", "host", true},
		"a service in a cgroup of its own": {"/system.slice/podman.service/init", "host", true},
		"a user":                           {"/user.slice/user-1000.slice/session-1.scope", "host", false},
		"a service of a user":              {"/user.slice/user-1000.slice/user@1000.service/app.slice/x.service", "host", false},
		"a container of a service":         {"/system.slice/shop.service/libpod-payload-1", "other", false},
	} {
		t.Run(name, func(t *testing.T) {
			root := proc(t, path, 1, 12)
			folder := filepath.Join(root, "12")
			err := errors.Join(os.WriteFile(filepath.Join(folder, "cgroup"), []byte("0::"+c.cgroup+"\n"), 0o644),
				os.Mkdir(filepath.Join(root, "1", "ns"), 0o755), os.Symlink("pid:[host]", filepath.Join(root, "1", "ns", "pid")),
				os.Mkdir(filepath.Join(folder, "ns"), 0o755), os.Symlink("pid:["+c.namespace+"]", filepath.Join(folder, "ns", "pid")))
			if err != nil {
				t.Fatal(err)
			}
			if err := (&local.Activation{ProcRoot: root, Path: path}).Check(); (err == nil) != c.read {
				t.Errorf("Check() = %v, want that the descriptors are read: %t", err, c.read)
			}
		})
	}
}

// A process can have a huge number of descriptors.
func TestFewDescriptorsOfAProcessAreRead(t *testing.T) {
	for range 1100 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
	}
	path := listened(t)
	if got := local.Listeners("/proc", path); len(got) != 1 || local.Holds("/proc", int64(os.Getpid()), got[0]) {
		t.Errorf("the listeners at %s have inodes %q, want one, at a descriptor that is not read", path, got)
	}
}

// This checks the format of the kernel's tables.
func TestARealListenerIsFound(t *testing.T) {
	path := listened(t)
	if got := local.Listeners("/proc", path); len(got) != 1 || !local.Holds("/proc", int64(os.Getpid()), got[0]) {
		t.Errorf("the listeners at %s have inodes %q, want one that this process has open", path, got)
	}
}

// Other users can bind a socket to a path of any name, in a mount namespace of their own or after the
// removal of the file, and choose paths that hang. So only the file counts.
func TestAListenerIsFoundByItsFile(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "run", "a.sock"), filepath.Join(dir, "var")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o755), os.Symlink("run", link)); err != nil {
		t.Fatal(err)
	}
	var inodes []string
	for i := range 2 {
		l, err := net.Listen("unix", filepath.Join(link, "a.sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		got := local.Listeners("/proc", path)
		if len(got) != 1 || slices.Contains(inodes, got[0]) {
			t.Errorf("Listeners() = %q with socket %d, want one other than %q", got, i, inodes)
		}
		inodes = append(inodes, got...)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if got := local.Listeners("/proc", path); len(got) != 0 {
			t.Errorf("Listeners() = %q after the file was removed, want none", got)
		}
	}
}

// A name with a line break looks like another line in proc_pid_net(5), and any user can create one.
func TestNobodyForgesAListener(t *testing.T) {
	if _, err := local.AskListening(); err != nil {
		t.Skipf("this kernel does not list unix sockets (CONFIG_UNIX_DIAG): %v", err)
	}
	const path = "/run/forged.sock"
	l, err := net.Listen("unix", "@x\n0000000000000000: 00000002 00000000 00010000 0001 01 4711 "+path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := (&local.Activation{Path: path}).Listener(); got != "" {
		t.Errorf("Listener() of a socket that nobody has = %q, want none", got)
	}
}
