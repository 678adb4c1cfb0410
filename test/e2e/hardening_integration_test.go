//go:build integration

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/test/lab/unit"
	"hostler.io/hostler/test/lab/unit/attempt"
)

const unitFile = "../../packaging/hostler.service"

// directives returns the directives of hostler.service.
func directives(t testing.TB) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(unitFile)
	check(t, err)
	return unit.Directives(string(text))
}

// capabilities returns the capabilities that hostler.service leaves.
func capabilities(t testing.TB) (set uint64) {
	t.Helper()
	numbers := map[string]int{
		"CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH, "CAP_FOWNER": unix.CAP_FOWNER,
		"CAP_KILL": unix.CAP_KILL, "CAP_SETGID": unix.CAP_SETGID, "CAP_SETUID": unix.CAP_SETUID, "CAP_SYS_PTRACE": unix.CAP_SYS_PTRACE,
	}
	for name := range strings.FieldsSeq(strings.Join(directives(t)["CapabilityBoundingSet"], " ")) {
		number, known := numbers[name]
		if !known {
			t.Fatalf("the number of %s is not known here", name)
		}
		set |= 1 << number
	}
	return set
}

// statusOf returns the kernel's status of a process.
func statusOf(t testing.TB, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	check(t, err)
	values := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		values[name] = strings.TrimSpace(value)
	}
	return values
}

// The agents of all these tests run as in the unit. Each directive is checked in a running agent,
// or by an attempt that fails inside the unit and succeeds outside.
func TestTheAgentRunsAsItsUnitSays(t *testing.T) {
	check(t, os.MkdirAll("/run/user", 0o755)) // as on a host with a logged-in user
	a := startAgent(t, quick)
	shown := map[string]bool{}
	shows := func(directive string) { shown[directive] = true }

	kernel := statusOf(t, a.process.PID)
	for field, want := range map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapBnd": fmt.Sprintf("%016x", capabilities(t)), "CapEff": fmt.Sprintf("%016x", capabilities(t)), "CapAmb": fmt.Sprintf("%016x", 0)} {
		if kernel[field] != want {
			t.Errorf("%s of the agent = %s, want %s", field, kernel[field], want)
		}
	}
	// One for each of several directives; other processes here have fewer.
	if n, err := strconv.Atoi(kernel["Seccomp_filters"]); err != nil || n < 10 {
		t.Errorf("Seccomp_filters of the agent = %q, want at least 10", kernel["Seccomp_filters"])
	}
	shows("NoNewPrivileges")
	shows("CapabilityBoundingSet")

	outside, inside := attempts(t)
	for _, c := range []struct{ directive, what, want string }{
		{"ProtectSystem", "write to /usr", "EROFS"},
		{"ProtectSystem", "write to /etc", "EROFS"},
		{"ProtectSystem", "write to /var/lib", "EROFS"},
		{"ProtectHome", "write to a user's /run", "EROFS"},
		{"ReadOnlyPaths", "write to systemd's /run", "EROFS"},
		{"PrivateTmp", "see the lab's /tmp", "ENOENT"},
		{"ProtectKernelTunables", "set a kernel's tunable", "EROFS"},
		{"ProtectKernelModules", "unload a kernel module", "EPERM"},
		{"ProtectKernelLogs", "read the kernel's log", "EPERM"},
		{"ProtectClock", "set a clock", "EPERM"},
		{"LockPersonality", "become of another personality", "EPERM"},
		{"RestrictRealtime", "be scheduled in real time", "EPERM"},
		{"RestrictSUIDSGID", "set a file's setuid bit", "EPERM"},
		{"RestrictNamespaces", "make a namespace", "EPERM"},
		{"RestrictAddressFamilies", "open a packet socket", "EAFNOSUPPORT"},
		{"SystemCallFilter", "mount", "EPERM"},
		{"SystemCallFilter", "change its priority", "EPERM"},
		{"SystemCallErrorNumber", "change its priority", "EPERM"},
	} {
		if inside[c.what] != c.want || outside[c.what] == c.want {
			t.Errorf("%s=: to %s says %q, and %q outside the unit, want %q, and something else outside", c.directive, c.what, inside[c.what], outside[c.what], c.want)
		}
		shows(c.directive)
	}
	for _, what := range []string{"write to /var/log", "write to its state", "write to /run", "write to logind's /run", "write to cgroups"} {
		if inside[what] != "" {
			t.Errorf("ReadWritePaths=, StateDirectory=: to %s says %q, want it done", what, inside[what])
		}
	}
	shows("ReadWritePaths")
	shows("StateDirectory")
	state, err := os.Stat("/var/lib/hostler")
	check(t, err)
	if mode := state.Mode().Perm(); mode != 0o700 {
		t.Errorf("mode of /var/lib/hostler = %o, want 700", mode)
	}
	shows("StateDirectoryMode")

	a.lives(shows)
	a.limited(shows)
	// Go makes no system calls of another architecture, so this relies on systemd.
	architectures, err := units.Property(a.process, "SystemCallArchitectures")
	check(t, err)
	if want := directives(t)["SystemCallArchitectures"]; !reflect.DeepEqual(architectures, want) {
		t.Errorf("systemd has SystemCallArchitectures=%v, want %v", architectures, want)
	}
	shows("SystemCallArchitectures")
	for name := range directives(t) {
		_, left := unit.Exceptions()[name]
		if left == shown[name] {
			t.Errorf("%s= of hostler.service: left out in the lab: %t, shown to be carried out here: %t, want the one or the other", name, left, shown[name])
		}
	}
	a.stop()
}

// limited checks the limits of the agent.
func (a *agent) limited(shows func(directive string)) {
	a.t.Helper()
	of := func(file string) string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", a.process.PID, file))
		check(a.t, err)
		return strings.TrimSpace(string(text))
	}
	value := func(directive string) string { return strings.Join(directives(a.t)[directive], " ") }
	limits := onOneLine(of("limits"))
	_, files, _ := strings.Cut(value("LimitNOFILE"), ":")
	processes := strings.Replace(value("LimitNPROC"), "infinity", "unlimited", 1)
	score := value("OOMScoreAdjust")
	if !mayExceed(a.t) { // systemd then does what it may
		for resource, limit := range map[int]*string{unix.RLIMIT_NOFILE: &files, unix.RLIMIT_NPROC: &processes} {
			var own unix.Rlimit
			check(a.t, unix.Getrlimit(resource, &own))
			if n, err := strconv.ParseUint(*limit, 10, 64); own.Max != unix.RLIM_INFINITY && (err != nil || n > own.Max) {
				*limit = strconv.FormatUint(own.Max, 10)
			}
		}
		score = "0"
	}
	mentions(a.t, "limits of the agent", limits, " "+files+" files", "Max processes "+processes+" "+processes+" processes", "Max core file size 0 0 bytes")
	shows("LimitNOFILE")
	shows("LimitNPROC")
	shows("LimitCORE")
	if got := of("oom_score_adj"); got != score {
		a.t.Errorf("oom_score_adj of the agent = %s, want %s", got, score)
	}
	if got, err := units.Property(a.process, "OOMScoreAdjust"); err != nil || fmt.Sprint(got) != value("OOMScoreAdjust") {
		a.t.Errorf("systemd has OOMScoreAdjust=%v, %v, want %s", got, err, value("OOMScoreAdjust"))
	}
	shows("OOMScoreAdjust")
	gigabytes, err := strconv.ParseUint(strings.TrimSuffix(value("MemoryMax"), "G"), 10, 64)
	check(a.t, err)
	tasks, err := strconv.ParseUint(value("TasksMax"), 10, 64)
	check(a.t, err)
	for directive, want := range map[string]uint64{"MemoryMax": gigabytes << 30, "TasksMax": tasks} {
		got, err := units.Property(a.process, directive)
		check(a.t, err)
		if got != want {
			a.t.Errorf("systemd has %s=%v, want %v", directive, got, want)
		}
		shows(directive)
	}
}

// mayExceed reports whether root of this machine may raise limits, and protect processes from the
// OOM killer. In a container it often may not.
func mayExceed(t testing.TB) bool {
	t.Helper()
	set, err := strconv.ParseUint(statusOf(t, os.Getpid())["CapEff"], 16, 64)
	check(t, err)
	return set&(1<<unix.CAP_SYS_RESOURCE) != 0
}

// attempts returns the results of attempts that units forbid, outside the unit and inside.
func attempts(t testing.TB) (outside, inside attempt.Results) {
	t.Helper()
	seen, err := os.CreateTemp("/tmp", "hostler-e2e-") // not in the folder that is visible in the unit
	check(t, err)
	t.Cleanup(func() { check(t, os.Remove(seen.Name())) })
	check(t, seen.Close())
	changed := filepath.Join(t.TempDir(), "changed")
	check(t, os.WriteFile(changed, nil, 0o600))
	check(t, os.MkdirAll("/var/lib/hostler", 0o700))

	text, err := exec.Command(spawner, "try", seen.Name(), changed).Output()
	check(t, err)
	check(t, json.Unmarshal(text, &outside))

	out, err := os.Create(filepath.Join(t.TempDir(), "said"))
	check(t, err)
	defer out.Close()
	cmd := exec.Command(spawner, "try", seen.Name(), changed)
	cmd.Stdout, cmd.Stderr = out, out
	p, err := units.Start(cmd)
	check(t, err)
	<-p.Done
	text, err = os.ReadFile(out.Name())
	check(t, err)
	if err := json.Unmarshal(text, &inside); err != nil || p.ExitCode() != 0 {
		t.Fatalf("%v, and it said %s: %v", p, text, err)
	}
	return outside, inside
}

// lives checks the mounts of the agent.
func (a *agent) lives(shows func(directive string)) {
	a.t.Helper()
	namespaces := func(of, kind string) string {
		link, err := os.Readlink("/proc/" + of + "/ns/" + kind)
		check(a.t, err)
		return link
	}
	for kind, own := range map[string]bool{"mnt": true, "user": false, "net": false, "pid": false, "uts": false} {
		if is := namespaces(strconv.Itoa(a.process.PID), kind); (is != namespaces("thread-self", kind)) != own {
			a.t.Errorf("the agent is in %s, want one of its own: %t", is, own)
		}
	}
	// Mounts that are made outside while the agent runs appear for it, too.
	folder := filepath.Join(a.folder, "mount")
	check(a.t, os.Mkdir(folder, 0o755))
	check(a.t, syscall.Mount("later", folder, "tmpfs", 0, ""))
	mounts := func() string {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", a.process.PID))
		check(a.t, err)
		return string(text)
	}
	if !strings.Contains(mounts(), folder+" ") {
		a.t.Errorf("mounts of the agent lack %s, which was mounted meanwhile", folder)
	}
	check(a.t, syscall.Unmount(folder, 0))
	if strings.Contains(mounts(), folder+" ") {
		a.t.Errorf("mounts of the agent have %s, which was unmounted", folder)
	}
	shows("PrivateMounts")

	// It has only devices without hardware.
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/dev", a.process.PID))
	check(a.t, err)
	for _, e := range entries {
		if e.Type()&(os.ModeDevice|os.ModeCharDevice) != 0 && !slices.Contains([]string{"null", "zero", "full", "random", "urandom", "tty", "ptmx"}, e.Name()) {
			a.t.Errorf("the agent has /dev/%s", e.Name())
		}
	}
	if len(entries) == 0 {
		a.t.Error("the agent has no /dev at all")
	}
	shows("PrivateDevices")
}
