package machine

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/debian"
	"hostler.io/hostler/test/machine/wire"
)

// Bed is the kind of a machine.
type Bed string

// The beds.
const (
	VM        Bed = "vm"
	Container Bed = "container"
)

// Release is a Debian release.
type Release = debian.Release

// The releases, by their numbers.
const (
	Debian12 = debian.Bookworm
	Debian13 = debian.Trixie
)

// Releases returns all releases.
func Releases() []Release { return debian.Releases() }

// Options describe the machine to boot.
type Options struct {
	Release Release // required
	Bed     Bed     // required

	Config        string            // hostler.yaml; none if empty
	SystemdCgroup bool              // systemd creates containers' cgroups, as scopes
	CgroupParent  string            // of pods; if empty, "/kubepods", or "kubepods.slice" with SystemdCgroup
	Containerd    string            // lines at the top of containerd's configuration
	Files         map[string]string // additional files, by path below /, such as "etc/systemd/logind.conf.d/zzz.conf"
	Unguarded     bool              // does not wait until hostler is Armed
	Tolerant      bool              // failed units do not fail the test
	Bare          bool              // hostler is not installed; its package is in Package
	Uplink        bool              // connects a VM to addresses 198.18.0.0/16 of the lab, for control planes with Apart
	MemoryMiB     int               // of a VM; 1024 if zero
}

// Patience limits each wait for a machine. It is far longer than anything takes, even in a VM on a
// busy host.
const Patience = 10 * time.Minute

// pause returns the time between two reads of an awaited state: as long as the last read took,
// because reads slow the machine down.
func (m *Machine) pause(took time.Duration) time.Duration {
	least := 300 * time.Millisecond
	if m.Options.Bed == VM {
		least = time.Second
	}
	return max(least, 2*took)
}

// Machine is a Debian that runs or is off. Run, Try and the methods that use them are safe for
// concurrent use. Methods that boot it or shut it down are not.
type Machine struct {
	Options Options

	t    test
	dir  string
	bed  bed
	link *wire.Link
	boot wire.Hello // the boot that last answered
}

// Boot boots a machine and returns when all its units are up and hostler is Armed. The machine is
// removed with the test. If the test fails, the machine's journal and console are stored in
// dist/machine.
func Boot(t testing.TB, o Options) *Machine {
	t.Helper()
	m, err := newMachine(t, o)
	if err != nil {
		t.Fatalf("boot: %v", err)
	}
	m.Start()
	return m
}

// test is the part of testing.TB that a machine needs.
type test interface {
	Helper()
	Name() string
	Context() context.Context
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// number reserves a number in the lab: only one caller can create its file.
func number() (name, dir string, err error) {
	for n := 1; ; n++ {
		name := fmt.Sprintf("m%d", n)
		dir := filepath.Join(lab.Dir, name)
		err := os.Mkdir(dir, 0o755)
		if err == nil {
			return name, dir, nil
		}
		if !errors.Is(err, os.ErrExist) {
			return "", "", err
		}
	}
}

func newMachine(t test, o Options) (*Machine, error) {
	if o.CgroupParent == "" {
		o.CgroupParent = "/kubepods"
		if o.SystemdCgroup {
			o.CgroupParent = "kubepods.slice"
		}
	}
	if o.MemoryMiB == 0 {
		o.MemoryMiB = 1024
	}
	o.Unguarded = o.Unguarded || o.Bare
	p, err := current()
	if err != nil {
		return nil, err
	}
	if _, ok := p.Roots[o.Release]; !ok {
		return nil, fmt.Errorf("release %q is not prepared here", o.Release)
	}
	l, err := lab.Current()
	if err != nil {
		return nil, err
	}
	files, err := ownFiles(o, p.Installed)
	if err != nil {
		return nil, err
	}
	name, dir, err := number()
	if err != nil {
		return nil, err
	}
	m := &Machine{Options: o, t: t, dir: dir}
	// Memory is for running programs: a machine's disk is an unnamed file of the host.
	if err := l.MountExt4(t.Context(), dir, 2*debian.DiskBytes); err != nil {
		return nil, err
	}
	switch o.Bed {
	case VM:
		m.bed, err = newVM(t.Context(), p, o, dir, files)
	case Container:
		if o.Uplink {
			return nil, errors.New("a container has no uplink")
		}
		m.bed, err = newContainer(p, l, o, name, dir, files)
	default:
		err = fmt.Errorf("unknown bed %q: it is %s or %s", o.Bed, VM, Container)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		if t.Failed() && m.link != nil {
			m.leave(p.Dist)
		}
		cancel()
		if m.bed != nil {
			err = errors.Join(err, m.bed.close())
		}
		// The empty folder stays, because it reserves the number.
		if err := errors.Join(err, lab.Unmount(dir)); err != nil {
			t.Errorf("take the machine down: %v", err)
		}
	})
	if err != nil {
		return nil, err
	}
	m.link = wire.NewLink(m.bed.dial)
	go m.link.Run(ctx)
	return m, nil
}

// Result is the result of a command.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Try runs a shell command in the machine, as root. It returns an error if the command could not
// finish, because ctx ended or the machine went down.
func (m *Machine) Try(ctx context.Context, command string) (Result, error) {
	return m.try(ctx, command, nil)
}

func (m *Machine) try(ctx context.Context, command string, stdin io.Reader) (Result, error) {
	return m.exec(ctx, wire.Run{Command: []string{"sh", "-c", command}}, stdin)
}

func (m *Machine) exec(ctx context.Context, run wire.Run, stdin io.Reader) (Result, error) {
	var stdout, stderr bytes.Buffer
	code, err := m.link.Exec(ctx, run, wire.Streams{Stdin: stdin, Stdout: &stdout, Stderr: &stderr})
	return Result{stdout.String(), stderr.String(), code}, err
}

// Run runs a shell command in the machine, as root, and returns its standard output. Any failure
// ends the test.
func (m *Machine) Run(command string) string {
	m.t.Helper()
	return m.feed(command, nil)
}

func (m *Machine) feed(command string, stdin io.Reader) string {
	m.t.Helper()
	ctx, cancel := m.bounded("`" + command + "` to end")
	defer cancel()
	r, err := m.try(ctx, command, stdin)
	if err != nil || r.Code != 0 {
		m.t.Fatalf("`%s` in %s = code %d, %v\n%s%s", command, m, r.Code, err, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// bounded limits a wait. It does not use the test's context, which has ended when cleanups run.
func (m *Machine) bounded(what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), Patience, fmt.Errorf("waited %v for %s", Patience, what))
}

// String names the machine in failures.
func (m *Machine) String() string {
	return fmt.Sprintf("debian%s-%s", m.Options.Release, m.Options.Bed)
}

// Hostler runs a hostler command and returns its output.
func (m *Machine) Hostler(args ...string) string {
	m.t.Helper()
	return m.Run("hostler " + strings.Join(args, " "))
}

// Answer runs a hostler command with -o json, and decodes its output.
func Answer[T any](m *Machine, args ...string) T {
	m.t.Helper()
	var answer T
	out := m.Hostler(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		m.t.Fatalf("hostler %s = %v:\n%s", strings.Join(args, " "), err, out)
	}
	return answer
}

// Ask reads a path of the agent's API. That is cheaper for the machine than a command.
func Ask[T any](m *Machine, path string) T {
	m.t.Helper()
	answer, err := ask[T](m, path)
	if err != nil {
		m.t.Fatalf("ask hostler in %s for %s: %v", m, path, err)
	}
	return answer
}

func ask[T any](m *Machine, path string) (answer T, err error) {
	ctx, cancel := m.bounded("the agent to answer " + path)
	defer cancel()
	r, err := m.exec(ctx, wire.Run{Ask: path}, nil)
	if err == nil && r.Code != 0 {
		err = errors.New(strings.TrimSpace(r.Stderr))
	}
	if err == nil {
		err = json.Unmarshal([]byte(r.Stdout), &answer)
	}
	return answer, err
}

// statusPath is the API path of `hostler status`.
const statusPath = "/v1/status"

// Status returns the status that `hostler status` prints.
func (m *Machine) Status() api.Status {
	m.t.Helper()
	return Ask[api.Status](m, statusPath)
}

// TryStatus is Status with an error instead of a failure.
func (m *Machine) TryStatus() (api.Status, error) { return ask[api.Status](m, statusPath) }

// LastShutdown returns hostler's record of the last shutdown; nil if there is none.
func (m *Machine) LastShutdown() *journal.Record {
	m.t.Helper()
	return m.Status().Shutdown.Last
}

// Write writes a file in the machine, and the folders above it.
func (m *Machine) Write(path, text string) {
	m.t.Helper()
	m.feed(fmt.Sprintf("mkdir -p %[2]s && cat >%[1]s && sync %[1]s", quote(path), quote(filepath.Dir(path))), strings.NewReader(text))
}

// Read reads a file in the machine.
func (m *Machine) Read(path string) string {
	m.t.Helper()
	text, err := base64.StdEncoding.DecodeString(m.Run("base64 -w0 " + quote(path)))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text)
}

// Copy copies a file of the host into the machine, with its mode.
func (m *Machine) Copy(hostPath, path string) {
	m.t.Helper()
	file, err := os.Open(hostPath)
	if err != nil {
		m.t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		m.t.Fatal(err)
	}
	// Replace the file, because the old program may be running.
	m.feed(fmt.Sprintf("mkdir -p %[2]s && cat >%[1]s.new && chmod %[3]o %[1]s.new && mv %[1]s.new %[1]s && sync %[1]s",
		quote(path), quote(filepath.Dir(path)), info.Mode().Perm()), file)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Journal returns journalctl's output of a boot: 0 is the present one, -1 the previous one.
func (m *Machine) Journal(boot int, args ...string) string {
	m.t.Helper()
	return m.Run(fmt.Sprintf("journalctl --no-pager -b %d %s", boot, strings.Join(args, " ")))
}

// BootID returns the kernel's ID of the boot that last answered. A soft-reboot keeps it.
func (m *Machine) BootID() string { return m.boot.BootID }

// Eventually waits until a condition holds.
func (m *Machine) Eventually(what string, condition func() bool) {
	m.t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		asked := time.Now()
		if condition() {
			return
		}
		if time.Now().After(deadline) {
			m.t.Fatalf("waited %v until %s", Patience, what)
		}
		time.Sleep(m.pause(time.Since(asked)))
	}
}

// AwaitArmed waits until hostler guards the shutdown.
func (m *Machine) AwaitArmed() {
	m.t.Helper()
	ctx, cancel := m.bounded("hostler to be Armed")
	defer cancel()
	for {
		asked := time.Now()
		s, err := m.TryStatus()
		if err == nil && s.Shutdown.State == shutdown.Armed {
			return
		}
		select {
		case <-ctx.Done():
			m.t.Fatalf("%v; last seen: %v %s %s", context.Cause(ctx), err, s.Shutdown.State, s.Shutdown.Reason)
		case <-time.After(m.pause(time.Since(asked))):
		}
	}
}
