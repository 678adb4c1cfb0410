//go:build integration

package e2e_test

import (
	native "encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/kube"
)

// executable writes a script with that mode, independent of the umask.
func executable(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	check(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o600))
	check(t, os.Chmod(path, mode))
}

// withConditions prepares an agent with its own folder of checks.
func withConditions(t testing.TB) (a *agent, folder string) {
	t.Helper()
	a = newAgent(t, "")
	folder = filepath.Join(a.folder, "conditions.d")
	check(t, os.Mkdir(folder, 0o755))
	a.configure("conditions: {directory: " + folder + ", interval: 1s, timeout: 5m}\n" + quick)
	return a, folder
}

// says reports whether the Node has that condition, with status, reason and a part of the message.
func says(s api.Status, name, status, reason, part string) bool {
	c := condition(s, corev1.NodeConditionType("hostler.io/"+name))
	return string(c.Status) == status && c.Reason == reason && strings.Contains(c.Message, part)
}

func TestChecksOfOnesOwnAreConditions(t *testing.T) {
	t.Parallel()
	a, folder := withConditions(t)
	in := func(name string) string { return filepath.Join(folder, name) }
	child := filepath.Join(a.folder, "child")
	check(t, os.WriteFile(child, nil, 0o666))
	check(t, os.Chmod(child, 0o666))
	executable(t, in("fine"), "echo all well\n", 0o755)
	executable(t, in("problem"), "# hostler:\n#   reason: TooBad\necho it is broken\nexit 1\n", 0o755)
	executable(t, in("unknown"), "echo no idea >&2\nexit 3\n", 0o755)
	executable(t, in("hangs"), "# hostler:\n#   timeout: 2s\ntrap '' TERM\nsleep 1000 & echo $! >"+child+"\nwait\n", 0o755)
	executable(t, in("forks"), "setsid sleep 5 &\necho done\nexit 1\n", 0o755)
	executable(t, in("megabyte"), "echo first; head -c 1000000 /dev/zero | tr '\\0' x; exit 1\n", 0o755)
	executable(t, in("off"), "exit 1\n", 0o644)
	executable(t, in("open"), "exit 1\n", 0o777)
	executable(t, in("slip"), "# hostler:\n#   intervall: 5s\nexit 1\n", 0o755)
	executable(t, in("hiccup"), "# hostler:\n#   temporary: true\n#   reason: Hiccup\necho just now\nexit 1\n", 0o755)
	executable(t, in("foreign"), "exit 1\n", 0o755)
	check(t, os.Chown(in("foreign"), 65534, 65534))
	executable(t, filepath.Join(a.folder, "shell"), "exit 1\n", 0o777)
	check(t, os.WriteFile(in("interpreted"), []byte("#!"+a.folder+"/shell\n"), 0o755))
	executable(t, in("vanishes"), "echo here\nexit 1\n", 0o755)
	a.start()

	for _, want := range [][4]string{
		{"Fine", "False", "CheckPassed", "all well"},
		{"Problem", "True", "TooBad", "it is broken"},
		{"Unknown", "Unknown", "CheckUnknown", "no idea"},
		{"Hangs", "Unknown", "CheckTimedOut", "the check did not end within 2s"},
		{"Forks", "True", "Forks", "done"},
		{"Megabyte", "True", "Megabyte", "first"},
		{"Vanishes", "True", "Vanishes", "here"},
	} {
		a.await(want[0]+" is "+want[1], func(s api.Status) bool { return says(s, want[0], want[1], want[2], want[3]) })
	}
	s := a.status()
	if len(nodeOf(s).Status.Conditions) != 6+7 {
		t.Errorf("the Node has conditions %v, want hostler's six and seven of one's own", nodeOf(s).Status.Conditions)
	}
	var pid int
	eventually(t, "the number of a child is written", func() bool {
		text, err := os.ReadFile(child)
		check(t, err)
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	eventually(t, "it is killed with what hangs", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
	eventually(t, "a temporary problem is an Event", func() bool {
		log := a.logLines("temporary problem", "Hiccup", "just now")
		return len(log) == 1 // and not one for each run
	})

	for _, part := range []string{in("off") + ": is not run because it is not executable", in("open") + ": is not run because", in("slip") + ":3: intervall: unknown key", in("foreign") + " belongs to user 65534", in("interpreted") + ": is not run because"} {
		mentions(t, "hostler status", onOneLine(strings.ReplaceAll(a.prints("status", "-o", "wide"), "\n", " ")), part)
	}
	report := a.diagnose()
	found(t, report, "conditions", doctor.Warn, "off", "chmod 755 "+in("off"), "open", "chown root "+in("open")+" && chmod go-w", "slip:3", "foreign", "chown root "+a.folder+"/shell && chmod go-w", "hangs", "setpriv --reset-env --reuid=hostler-exec")
	names := metricNames(t, a.onSocket(), "http://hostler/metrics")
	for _, label := range []string{`Fine",result="passed"`, `Problem",result="problem"`, `Unknown",result="unknown"`, `Hangs",result="timeout"`} {
		if names[`hostler_condition_checks_total{condition="hostler.io/`+label+`}`] == "" {
			t.Errorf("there is no metric of runs with %s", label)
		}
	}

	// The condition of a removed check is removed from the Node. A check that is no longer trusted is
	// reported.
	check(t, os.Remove(in("vanishes")))
	check(t, os.Chmod(in("problem"), 0o777))
	gone := func(s api.Status) bool {
		return condition(s, "hostler.io/Vanishes").Type == "" && says(s, "Problem", "Unknown", "CheckNotRun", "is writable by users other than root")
	}
	a.await("one is gone and one is not trusted", gone)
	since := condition(a.status(), "hostler.io/Forks").LastTransitionTime
	a.stop()
	check(t, os.Remove(in("fine")))
	a.start()
	a.await("another one went while the agent was down", func(s api.Status) bool {
		return condition(s, "hostler.io/Fine").Type == "" && says(s, "Forks", "True", "Forks", "done")
	})
	if now := condition(a.status(), "hostler.io/Forks").LastTransitionTime; !now.Equal(&since) {
		t.Errorf("the problem starts at %v after a restart, want since %v", now, since)
	}
	a.stop()
}

// The rights of a check are in its file.
func TestAChecksPrivileges(t *testing.T) {
	t.Parallel()
	a, folder := withConditions(t)
	// A shell opens its script as descriptor 10 or 255.
	const report = `echo "$(id -u) $(id -g) [$(id -G)] $(sed -n 's/^\(CapPrm\|CapEff\|CapAmb\|NoNewPrivs\):\t//p' /proc/self/status | tr '\n' ' ')$(ls /proc/self/fd | grep -vx '10\|255' | tr '\n' ' ')"` + "\n"
	executable(t, filepath.Join(folder, "unprivileged"), report, 0o755)
	executable(t, filepath.Join(folder, "root"), "# hostler:\n#   user: root\n"+report, 0o755)
	executable(t, filepath.Join(folder, "closed"), report, 0o700)
	a.start()
	// ls opens its folder in addition to the three standard descriptors.
	const none, fds = "0000000000000000", "0 1 2 3"
	s := a.await("both have said who they are", func(s api.Status) bool {
		return says(s, "Unprivileged", "False", "CheckPassed", "") && says(s, "Root", "False", "CheckPassed", "")
	})
	own, err := user.Lookup("hostler-exec")
	check(t, err)
	want := own.Uid + " " + own.Gid + " [" + own.Gid + "] " + none + " " + none + " " + none + " 1 " + fds
	if m := condition(s, "hostler.io/Unprivileged").Message; m != want {
		t.Errorf("as hostler-exec: %s, want %s", m, want)
	}
	all := fmt.Sprintf("%016x", capabilities(t))
	want = "0 0 [0] " + all + " " + all + " " + none + " 1 " + fds
	if m := condition(s, "hostler.io/Root").Message; m != want {
		t.Errorf("as root: %s, want %s, the capabilities that hostler.service leaves", m, want)
	}
	a.await("a file without read permission is reported", func(s api.Status) bool {
		return says(s, "Closed", "Unknown", "CheckNotRun", "permission denied; let user hostler-exec read and execute it")
	})
	a.stop()
}

func TestAReloadMovesTheFolderOfConditions(t *testing.T) {
	t.Parallel()
	a, folder := withConditions(t)
	executable(t, filepath.Join(folder, "here"), "exit 1\n", 0o755)
	a.start()
	a.await("the check has run", func(s api.Status) bool { return says(s, "Here", "True", "Here", "") })
	other := filepath.Join(a.folder, "other.d")
	check(t, os.Mkdir(other, 0o755))
	executable(t, filepath.Join(other, "there"), "exit 0\n", 0o755)
	a.configure("conditions: {directory: " + other + "}\n" + quick)
	if got := a.hostler("reload"); got.code != 0 || !strings.Contains(got.out, "conditions.directory") {
		t.Errorf("hostler reload = %+v, want the folder taken up", got)
	}
	a.await("the other folder counts", func(s api.Status) bool {
		return says(s, "There", "False", "CheckPassed", "") && condition(s, "hostler.io/Here").Type == ""
	})
	if c := answers[api.Status](a, "status").CustomConditions; c.Directory != other || len(c.Checks) != 1 || c.Checks[0].LastRun == nil {
		t.Errorf("customConditions = %+v, want the one check in %s", c, other)
	}
	a.stop()
}

// userspace mounts a filesystem that the returned file has to serve. unmount ends all processes
// that wait for an answer.
func userspace(t testing.TB, mountpoint string) (server *os.File, unmount func()) {
	t.Helper()
	check(t, os.Mkdir(mountpoint, 0o755))
	// os.OpenFile would use a poller: until the first request arrives, a read of this file, which
	// cannot be polled, fails.
	fd, err := syscall.Open("/dev/fuse", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	check(t, err)
	server = os.NewFile(uintptr(fd), "/dev/fuse")
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	check(t, syscall.Mount("test", mountpoint, "fuse", 0, options))
	unmount = sync.OnceFunc(func() {
		_ = syscall.Unmount(mountpoint, syscall.MNT_FORCE) // it may be busy
		if err := syscall.Unmount(mountpoint, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("unmount %s: %v", mountpoint, err)
		}
		_ = server.Close() // it may be closed already
	})
	t.Cleanup(unmount)
	return server, unmount
}

// swallow answers the first request, which opens the session, and then reads all others without an
// answer. Processes that wait for them cannot be killed (fs/fuse/dev.c).
func swallow(server *os.File) {
	buffer := make([]byte, 1<<20)
	if n, err := server.Read(buffer); err != nil || n < 40 {
		return
	}
	answer := native.NativeEndian.AppendUint32(nil, 16+64)
	answer = native.NativeEndian.AppendUint32(answer, 0)
	answer = append(answer, buffer[8:16]...) // ID of the request
	answer = native.NativeEndian.AppendUint32(answer, 7)
	answer = native.NativeEndian.AppendUint32(answer, 31)
	if _, err := server.Write(append(answer, make([]byte, 56)...)); err != nil {
		return
	}
	for {
		if _, err := server.Read(buffer); err != nil {
			return
		}
	}
}

// The agent gives up a check that is blocked in the kernel. It neither starts it again nor waits
// for it.
func TestACheckThatCannotBeKilled(t *testing.T) {
	t.Parallel()
	a, folder := withConditions(t)
	mountpoint := filepath.Join(a.folder, "mount")
	server, unmount := userspace(t, mountpoint)
	go swallow(server)
	executable(t, filepath.Join(folder, "stuck"), "# hostler:\n#   user: root\n#   timeout: 2s\nexec stat --file-system "+mountpoint+"\n", 0o755)
	executable(t, filepath.Join(folder, "well"), "exit 0\n", 0o755)
	a.start()
	s := a.await("it is given up, and another one has run", func(s api.Status) bool {
		return says(s, "Stuck", "Unknown", "CheckTimedOut", "the check did not end within 2s, and cannot be killed: it is blocked in the kernel") && s.CustomConditions.Checks[1].LastRun != nil
	})
	stuck, well := *s.CustomConditions.Checks[0].LastRun, *s.CustomConditions.Checks[1].LastRun
	s = a.await("another one has run three times meanwhile", func(s api.Status) bool {
		return s.CustomConditions.Checks[1].LastRun.Sub(well) > 3*time.Second
	})
	if now := *s.CustomConditions.Checks[0].LastRun; !now.Equal(stuck) {
		t.Errorf("it was started at %v, and again at %v, want it not to be as long as it is there", stuck, now)
	}
	a.stop() // without waiting for the check
	a.start()
	a.await("it is given up again", func(s api.Status) bool { return says(s, "Stuck", "Unknown", "CheckTimedOut", "cannot be killed") })
	unmount()
	a.await("it is run again once it is gone", func(s api.Status) bool { return says(s, "Stuck", "False", "CheckPassed", "File:") })
	a.stop()
}

// A Node has conditions of other domains and of other clients. The server merges them by type.
func TestConditionsOfOnesOwnInACluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	const name = "rack1-checked"
	a := newAgent(t, "")
	folder := filepath.Join(a.folder, "conditions.d")
	check(t, os.Mkdir(folder, 0o755))
	a.configure(c.asNode(name, "") + "conditions: {directory: " + folder + ", interval: 1s, timeout: 5m}\n" + quick)
	put := func(file, kind string, code int) {
		t.Helper()
		executable(t, filepath.Join(folder, file), fmt.Sprintf("# hostler:\n#   type: %s\n#   reason: Bad\necho so it is\nexit %d\n", kind, code), 0o755)
	}
	put("own", "hostler.io/Own", 1)
	put("other", "example.com/Other", 1)
	put("going", "example.com/Going", 1)
	executable(t, filepath.Join(folder, "hiccup"), "# hostler:\n#   temporary: true\n#   reason: Hiccup\necho just now\nexit 1\n", 0o755)
	a.start()
	customs := func() (types []string) {
		if node := c.node(name); node != nil {
			for _, c := range node.Status.Conditions {
				if status.IsCustom(c.Type) {
					types = append(types, fmt.Sprintf("%s=%s", c.Type, c.Status))
				}
			}
		}
		slices.Sort(types)
		return types
	}
	await := func(what string, want ...string) {
		t.Helper()
		eventually(t, what, func() bool { return slices.Equal(customs(), want) })
	}
	await("the cluster has them", "example.com/Going=True", "example.com/Other=True", "hostler.io/Own=True")
	eventuallyMentions(t, "kubectl describe node", func() string { return c.kubectl("describe", "node", name) }, "Bad", "so it is", "example.com/Other is True (was new): Bad: so it is")
	eventually(t, "a temporary problem is an Event", func() bool {
		return c.kubectl("get", "events", "--field-selector", "reason=Hiccup", "-o", "jsonpath={.items[*].involvedObject.name} {.items[*].type} {.items[*].message}") == name+" Warning hostler.io/Hiccup: just now"
	})
	c.kubectl("patch", "node", name, "--subresource=status", "-p", `{"status":{"conditions":[{"type":"KernelDeadlock","status":"False","reason":"KernelHasNoDeadlock","message":"of another program"}]}}`)
	check(t, os.Remove(filepath.Join(folder, "own")))
	put("other", "example.com/Other", 0)
	await("one is gone, one is over, and another program's stays", "KernelDeadlock=False", "example.com/Going=True", "example.com/Other=False")
	a.stop()
	check(t, os.Remove(filepath.Join(folder, "going")))
	a.start()
	await("one went while the agent was down", "KernelDeadlock=False", "example.com/Other=False")
	a.stop()
}
