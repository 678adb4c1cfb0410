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

// Bed is what a machine runs on.
type Bed string

// The beds.
const (
	VM        Bed = "vm"
	Container Bed = "container"
)

// Release is a Debian release.
type Release = debian.Release

// The releases, by what their users call them.
const (
	Debian12 = debian.Bookworm
	Debian13 = debian.Trixie
)

// Releases are all of them.
func Releases() []Release { return debian.Releases() }

// Options say which machine to boot.
type Options struct {
	Release Release // required
	Bed     Bed     // required

	Config        string            // hostler.yaml; none if empty
	SystemdCgroup bool              // containers' cgroups are made by systemd, as scopes
	CgroupParent  string            // of pods; "/kubepods", or "kubepods.slice" with SystemdCgroup, if empty
	Containerd    string            // lines for the top of containerd's configuration
	Files         map[string]string // further files, by path below /, such as "etc/systemd/logind.conf.d/zzz.conf"
	Unguarded     bool              // do not wait until hostler is Armed
	Tolerant      bool              // boots in which units fail are no failure of the test
	Bare          bool              // hostler is not installed: its package lies in Package
	Uplink        bool              // a VM's way to addresses 198.18.0.0/16 of the lab, where control planes are that stand apart
	MemoryMiB     int               // of a VM; 1024 if zero
}

// Patience bounds each wait for a machine: far longer than anything takes, in a
// VM, on a loaded host.
const Patience = 10 * time.Minute

// pause is the time between two queries for an awaited state: as long as the last query took,
// because queries slow the machine down.
func (m *Machine) pause(took time.Duration) time.Duration {
	least := 300 * time.Millisecond
	if m.Options.Bed == VM {
		least = time.Second
	}
	return max(least, 2*took)
}

// Machine is a Debian that runs, or that is off. Run, Try and what is made from
// them are safe for concurrent use; what boots it or takes it down is not.
type Machine struct {
	Options Options

	t    test
	dir  string
	bed  bed
	link *wire.Link
	boot wire.Hello // the one that was last seen to be up
}

// Boot boots a machine and returns when all its units are up and hostler is
// Armed. It is gone with the test; if that fails, the machine's journal and
// console are left in dist/machine.
func Boot(t testing.TB, o Options) *Machine {
	t.Helper()
	m, err := newMachine(t, o)
	if err != nil {
		t.Fatalf("boot: %v", err)
	}
	m.Start()
	return m
}

// test is what a machine wants of the test that it is for.
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

// number tells machines of one lab apart; a file is made by one only.
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
	// Memory is for what runs: a machine's disk is on the host's, without a name.
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
		// The folder stays, empty: its name is taken.
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

// Result is how a command ended.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Try runs a shell command in the machine, as root. The error says that it could
// not be run to its end: that ctx ended, or that the machine went down.
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

// Run runs a shell command in the machine, as root, and returns what it prints
// to standard output. Any failure ends the test.
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

// bounded bounds a wait. It does not end with the test's context, which is over
// when cleanups run.
func (m *Machine) bounded(what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), Patience, fmt.Errorf("waited %v for %s", Patience, what))
}

// String names the machine as failures do.
func (m *Machine) String() string {
	return fmt.Sprintf("debian%s-%s", m.Options.Release, m.Options.Bed)
}

// Hostler runs a hostler command and returns what it prints.
func (m *Machine) Hostler(args ...string) string {
	m.t.Helper()
	return m.Run("hostler " + strings.Join(args, " "))
}

// Answer runs a hostler command with -o json, and decodes what it prints.
func Answer[T any](m *Machine, args ...string) T {
	m.t.Helper()
	var answer T
	out := m.Hostler(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		m.t.Fatalf("hostler %s = %v:\n%s", strings.Join(args, " "), err, out)
	}
	return answer
}

// Ask is what the agent's API has at a path. It costs the machine less than a command.
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

// statusPath is what `hostler status` asks for.
const statusPath = "/v1/status"

// Status is what the agent answers to `hostler status`.
func (m *Machine) Status() api.Status {
	m.t.Helper()
	return Ask[api.Status](m, statusPath)
}

// TryStatus is Status; the error says why there is none just now.
func (m *Machine) TryStatus() (api.Status, error) { return ask[api.Status](m, statusPath) }

// LastShutdown is how hostler says the last shutdown went; nil if none is on record.
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

// Copy copies a file of the host's into the machine, with its mode.
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
	// In place of a program that runs, not into it.
	m.feed(fmt.Sprintf("mkdir -p %[2]s && cat >%[1]s.new && chmod %[3]o %[1]s.new && mv %[1]s.new %[1]s && sync %[1]s",
		quote(path), quote(filepath.Dir(path)), info.Mode().Perm()), file)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Journal returns journalctl's output of a boot: 0 is this one, -1 the one before.
func (m *Machine) Journal(boot int, args ...string) string {
	m.t.Helper()
	return m.Run(fmt.Sprintf("journalctl --no-pager -b %d %s", boot, strings.Join(args, " ")))
}

// BootID is the kernel's ID of the boot that was last seen to be up. A
// soft-reboot keeps it.
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
