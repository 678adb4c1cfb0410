package trust

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/internal/trust/trusttest"
)

const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func TestServiceIn(t *testing.T) {
	for text, want := range map[string]string{
		"0::/system.slice/shop.service\n":                                                       "shop.service",
		"0::/system.slice/system-shop.slice/shop@1.service/payload\n":                           "shop@1.service",
		"12:pids:/system.slice/shop.service\n1:name=systemd:/system.slice/shop.service\n0::/\n": "shop.service",
		"0::/user.slice/user-1000.slice/user@1000.service/app.slice/shop.service\n":             "",
		"0::/system.slice/docker-" + id + ".scope/system.slice/shop.service\n":                  "",
		"0::/docker/" + id + "/system.slice/shop.service\n":                                     "",
		"0::/machine.slice/libpod-" + id + ".scope/container\n":                                 "",
		"1:name=systemd:/\n0::/system.slice/shop.service\n":                                     "shop.service",
		"0::/init.scope\n": "",
		"":                 "",
	} {
		if got, _ := serviceIn(text); got != want {
			t.Errorf("serviceIn(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestWhichProcessesAreTrusted(t *testing.T) {
	open := filepath.Join(t.TempDir(), "program")
	if err := errors.Join(os.WriteFile(open, nil, 0o755), os.Chmod(open, 0o775)); err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	for name, c := range map[string]struct {
		process   trusttest.Process
		service   string
		contained bool
		distrust  string
	}{
		"a service of root's":      {service: "web.service"},
		"a service of a user's":    {process: trusttest.Process{UID: 7}, service: "web.service", distrust: "runs as user 7, not as root"},
		"a process of a session":   {process: trusttest.Process{Cgroup: "/user.slice/user-0.slice/session-1.scope"}, distrust: "is in a user session"},
		"a container":              {process: trusttest.Process{Namespace: "4711"}, service: "web.service", contained: true, distrust: "is not in the host's PID namespace"},
		"a program that is opened": {process: trusttest.Process{Program: open}, service: "web.service", distrust: "can change"},

		"a service that has mounts of its own":          {process: trusttest.Process{Mounts: "own", Confined: true}, service: "web.service"},
		"a snap":                                        {process: trusttest.Process{Mounts: "own", Root: other}, service: "web.service"},
		"a container in the service's own cgroup":       {process: trusttest.Process{Mounts: "own", Root: other, Confined: true}, service: "web.service", distrust: "has another root directory than the host"},
		"a container that has all but its files shared": {process: trusttest.Process{Root: other, Confined: true}, service: "web.service", distrust: "has another root directory than the host"},
	} {
		t.Run(name, func(t *testing.T) {
			c.process.PID, c.process.Name = 9, "web"
			p, err := Inspect(trusttest.Proc(t, c.process), 9)
			if err != nil || p.Name != "web" || p.Service != c.service || p.Contained != c.contained || (p.Untrusted == "") != (c.distrust == "") || !strings.Contains(p.Untrusted, c.distrust) {
				t.Errorf("Inspect() = %+v, %v, want one of %q, in a container: %t, distrusted as %q", p, err, c.service, c.contained, c.distrust)
			}
		})
	}
	if p, err := Inspect(trusttest.Proc(t), 9); err == nil {
		t.Errorf("Inspect() of no process = %+v, want an error", p)
	}
}

// The host's own /proc must be readable like those of other tests.
func TestThisProcessIsInspected(t *testing.T) {
	p, err := Inspect("/proc", os.Getpid())
	if err != nil || p.PID != os.Getpid() || p.Name == "" {
		t.Errorf("Inspect() = %+v, %v, want this process", p, err)
	}
}

func TestProgramsThatOnlyRootControls(t *testing.T) {
	const nobody = 65534
	for _, test := range []struct {
		owner uint32
		mode  uint16
		want  bool
	}{{0, 0o755, true}, {0, 0o757, false}, {0, 0o775, false}, {0, 0o4755, false}, {0, 0o2755, false}, {nobody, 0o755, false}} {
		if got := onlyRoots(unix.Statx_t{Uid: test.owner, Mode: test.mode}); got != test.want {
			t.Errorf("a program of user %d and mode %o is root's alone: %t, want %t", test.owner, test.mode, got, test.want)
		}
	}
}

// A thread that goes on after the first one has ended hides its namespaces, its root and its program.
func TestAProcessThatHasEndedIsNotInspected(t *testing.T) {
	for _, fact := range []string{"ns/mnt", "ns/user", "root", "exe"} {
		proc := trusttest.Proc(t, trusttest.Process{PID: 9, Name: "web"})
		if err := os.Remove(filepath.Join(proc, "9", fact)); err != nil {
			t.Fatal(err)
		}
		if p, err := Inspect(proc, 9); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Inspect() of a process without %s = %+v, %v, want an error", fact, p, err)
		}
	}
}

func TestIsOnHost(t *testing.T) {
	type process = trusttest.Process
	other := t.TempDir()
	setuid := filepath.Join(other, "sudo")
	check(t, os.WriteFile(setuid, nil, 0o755), os.Chmod(setuid, 0o755|os.ModeSetuid))
	proc := trusttest.Proc(t, process{PID: 16, Name: "sudo", Cgroup: "/user.slice/user-1000.slice/session-1.scope", Program: setuid}, process{PID: 9, Name: "web"}, process{PID: 10, Name: "web", UID: 1000},
		process{PID: 12, Name: "monitor", Cgroup: "/machine.slice/libpod-conmon-0.scope"}, process{PID: 13, Name: "snap", Mounts: "own", Root: other},
		process{PID: 14, Name: "container", Mounts: "own", Root: other, Confined: true}, process{PID: 15, Name: "container", Namespace: "own"})
	for pid, want := range map[int]bool{9: true, 10: false, 11: false, 12: true, 13: true, 14: false, 15: false, 16: false} {
		if got := IsOnHost(proc, pid); got != want {
			t.Errorf("IsOnHost() of process %d = %t, want %t", pid, got, want)
		}
	}
}

// The status of a process in a container can take the kernel milliseconds.
func TestTheStatusOfAProcessInAContainerIsNotRead(t *testing.T) {
	proc := trusttest.Proc(t, trusttest.Process{PID: 9, Name: "kubelet", Namespace: "4711"})
	if err := os.Remove(filepath.Join(proc, "9", "status")); err != nil {
		t.Fatal(err)
	}
	if p, err := Inspect(proc, 9); err != nil || !p.Contained || p.User != "" {
		t.Errorf("Inspect() = %+v, %v, want a process in a container, of no known user", p, err)
	}
	if IsOnHost(proc, 9) {
		t.Error("IsOnHost() = true, want false")
	}
}
