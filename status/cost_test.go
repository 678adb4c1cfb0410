package status_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// checker makes status checks like the status loop: it reads the host, builds the Node, and
// compares it. The kernel is this host's; runtimes and network are those of a server with 20 pods,
// 500 images and all contention conditions.
type checker struct {
	reader *probe.Reader
	facts  status.Facts
	o      status.Options
	node   *corev1.Node
	memory status.Memory
	now    time.Time
}

func newChecker(t testing.TB) *checker {
	t.Helper()
	reader, err := probe.New("/")
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{reader: reader, now: noon}
	c.facts, c.o = host(t, "psi-server")
	for i := range 500 {
		c.facts.Images = append(c.facts.Images, runtime.Image{
			ID: fmt.Sprintf("sha256:%d", i), SizeBytes: uint64(i * 7919 % 1000), Tags: []string{fmt.Sprintf("docker.io/library/app:%d", i)},
		})
	}
	if n := len(c.o.Pressure.PSI); n != 3 {
		t.Fatalf("psi-server has %d limits of stalls, want those of CPU, memory and I/O", n)
	}
	c.node, c.memory = status.Node(c.facts, c.o, c.memory, c.now)
	return c
}

func (c *checker) check(t testing.TB) {
	usage := c.reader.Usage(t.Context(), "/", "/tmp")
	c.facts.Memory, c.facts.PIDs = usage.Memory, usage.PIDs
	c.facts.Stalls = c.reader.Stalls(c.o.Pressure.Stalls())
	c.now = c.now.Add(10 * time.Second)
	next, memory := status.Node(c.facts, c.o, c.memory, c.now)
	status.Changed(&c.node.Status, &next.Status)
	c.node, c.memory = next, memory
}

func BenchmarkCheck(b *testing.B) {
	c := newChecker(b)
	b.ReportAllocs()
	for b.Loop() {
		c.check(b)
	}
}

func TestCheckIsCheap(t *testing.T) {
	result := testing.Benchmark(BenchmarkCheck)
	if result.N == 0 {
		t.Fatal("BenchmarkCheck failed")
	}
	if got := result.AllocedBytesPerOp(); got > 100_000 {
		t.Errorf("a status check allocates %d bytes, want at most 100,000", got)
	}
}

// A variable in the environment of the traced process, and files that it tries to open before and
// after the check that is counted.
const traced, begin, end = "TRACED_CHECK", "/a check begins", "/a check ends"

// The test counts the files that a check opens: it runs itself again and traces every thread, like
// strace(1).
func TestACheckOpensAHandfulOfFiles(t *testing.T) {
	if os.Getenv(traced) != "" {
		c := newChecker(t)
		c.check(t) // the first check finds the mounts, which later ones need not do
		_, _ = os.Open(begin)
		c.check(t)
		_, _ = os.Open(end)
		return
	}
	opened := opensOf(t, "-test.run=^"+t.Name()+"$", "-test.count=1")
	from, to := slices.Index(opened, begin), slices.Index(opened, end)
	if from < 0 || to < from {
		t.Fatalf("the trace has no check in it: %q", opened)
	}
	opened = opened[from+1 : to]
	t.Logf("a check opens %q", opened)
	want := []string{
		"/proc/loadavg", "/proc/meminfo", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory",
		"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/sys/devices/system/cpu/online",
	}
	rest := slices.DeleteFunc(slices.Clone(opened), func(file string) bool { return slices.Contains(want, file) })
	for _, file := range rest { // limits of the root cgroup, if any, and usage
		if file != "/proc/spl/kstat/zfs/arcstats" && !strings.HasPrefix(file, "/sys/fs/cgroup/") || len(rest) > 8 {
			t.Errorf("a check opens %q, want %q, at most seven of the root cgroup, and what ZFS counts", opened, want)
		}
	}
	if got := slices.Sorted(slices.Values(slices.DeleteFunc(opened, func(file string) bool { return slices.Contains(rest, file) }))); !slices.Equal(got, want) {
		t.Errorf("a check opens %q, want each of %q once", got, want)
	}
}

// opensOf runs this test's program with those arguments, traced, and returns the files that its
// threads opened, or tried to, in that order. See ptrace(2).
func opensOf(t *testing.T, args ...string) []string {
	t.Helper()
	goruntime.LockOSThread() // the program is a child of this thread
	defer goruntime.UnlockOSThread()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), traced+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a program that is traced: %v", err)
	}
	write.Close()
	pid := cmd.Process.Pid
	defer func() { _ = cmd.Process.Release() }() // the loop below waits for it
	must := func(what string, err error) {
		if err != nil {
			_ = cmd.Process.Kill()
			t.Fatalf("%s: %v", what, err)
		}
	}
	var state unix.WaitStatus
	_, err = unix.Wait4(pid, &state, unix.WALL, nil)
	must("wait for the program to be executed", err)
	must("trace system calls", unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL))
	must("let the program run", unix.PtraceSyscall(pid, 0))

	var opened []string
	seen := map[int]bool{pid: true}
	for {
		thread, err := unix.Wait4(-1, &state, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		must("wait for the program", err)
		if !state.Stopped() {
			if thread != pid {
				continue
			}
			if state.ExitStatus() != 0 {
				t.Fatalf("the program that is traced ended with %d: %s", state.ExitStatus(), readAll(read))
			}
			return opened
		}
		deliver := 0
		switch signal := state.StopSignal(); {
		case signal == unix.SIGTRAP|0x80:
			if file, opens := openedBy(thread); opens {
				opened = append(opened, file)
			}
		case signal == unix.SIGTRAP: // a thread was created
		case signal == unix.SIGSTOP && !seen[thread]: // a new thread starts
		default:
			deliver = int(signal)
		}
		seen[thread] = true
		if err := unix.PtraceSyscall(thread, deliver); err != nil && !errors.Is(err, unix.ESRCH) {
			must("continue a thread", err)
		}
	}
}

func readAll(f *os.File) string {
	text := make([]byte, 1<<14)
	n, _ := f.Read(text) // more than enough
	return string(text[:n])
}

// openedBy returns the file that a thread is about to open, if its system call opens a file.
func openedBy(thread int) (file string, opens bool) {
	var info [96]byte // struct ptrace_syscall_info
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_GET_SYSCALL_INFO, uintptr(thread), uintptr(len(info)), uintptr(unsafe.Pointer(&info)), 0, 0)
	if errno != 0 || info[0] != unix.PTRACE_SYSCALL_INFO_ENTRY {
		return "", false
	}
	call := binary.NativeEndian.Uint64(info[24:])
	if call != unix.SYS_OPENAT && call != unix.SYS_OPENAT2 { // Go uses no other call
		return "", false
	}
	address := uintptr(binary.NativeEndian.Uint64(info[40:])) // the second argument
	text := make([]byte, 256)
	n, _ := unix.PtracePeekData(thread, address, text) // fewer bytes at the end of a page
	name, _, _ := strings.Cut(string(text[:n]), "\x00")
	return name, true
}
