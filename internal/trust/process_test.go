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
	for name, c := range map[string]struct {
		process   trusttest.Process
		service   string
		contained bool
		distrust  string
	}{
		"a service of root's":         {service: "web.service"},
		"a service of a user's":       {process: trusttest.Process{UID: 7}, service: "web.service", distrust: "runs as user 7, not as root"},
		"a process of a session":      {process: trusttest.Process{Cgroup: "/user.slice/user-0.slice/session-1.scope"}, distrust: "is in a user session"},
		"a container":                 {process: trusttest.Process{Namespace: "4711"}, service: "web.service", contained: true, distrust: "is not in the host's PID namespace"},
		"a program that is opened":    {process: trusttest.Process{Program: open}, service: "web.service", distrust: "can change"},
		"a program that is not shown": {process: trusttest.Process{Program: open + "-none"}, service: "web.service"},
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
		mode  uint32
		want  bool
	}{{0, 0o755, true}, {0, 0o757, false}, {0, 0o775, false}, {0, 0o4755, false}, {0, 0o2755, false}, {nobody, 0o755, false}} {
		if got := onlyRoots(unix.Stat_t{Uid: test.owner, Mode: test.mode}); got != test.want {
			t.Errorf("a program of user %d and mode %o is root's alone: %t, want %t", test.owner, test.mode, got, test.want)
		}
	}
}

func TestRunsAsRoot(t *testing.T) {
	proc := trusttest.Proc(t, trusttest.Process{PID: 9, Name: "web"}, trusttest.Process{PID: 10, Name: "web", UID: 1000})
	for pid, want := range map[int]bool{9: true, 10: false, 11: false} {
		if got := RunsAsRoot(proc, pid); got != want {
			t.Errorf("RunsAsRoot() of process %d = %t, want %t", pid, got, want)
		}
	}
}
