//go:build integration

// Package outside_test checks from the host that labs leave nothing behind.
package outside_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/test/lab"
)

// programVariable makes this test binary the program that enters a lab. Its value says how the
// program ends.
const programVariable = "HOSTLER_LAB_PROGRAM"

func TestMain(m *testing.M) {
	how := os.Getenv(programVariable)
	if how == "" {
		os.Exit(m.Run())
	}
	var err error
	if how == "fetch" {
		err = fetch()
	} else {
		err = program(how)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(7)
}

// inside is what the program reports when everything runs.
type inside struct {
	Cgroup, PIDNamespace, MountNamespace, Backing, Logind string

	at time.Duration // uptime of the machine when the lab was complete
}

// program starts a complete lab, prints a line of JSON, and ends without cleaning up.
func program(how string) error {
	ctx := context.Background()
	l, err := lab.Enter(ctx, lab.Options{})
	if err != nil {
		return err
	}
	if err := reachesNothing(); err != nil {
		return err
	}
	login, err := l.StartLogin(ctx, lab.LoginOptions{})
	if err != nil {
		return err
	}
	if _, err := login.Inhibit(ctx, "program", "to leave it behind"); err != nil {
		return err
	}
	c, err := l.StartContainerd(ctx, lab.ContainerdOptions{ImageFSBytes: 128 << 20})
	if err != nil {
		return err
	}
	const image = "docker.io/library/web:1"
	if _, err := c.Pull(ctx, lab.ImageSpec{Names: []string{image}}); err != nil {
		return err
	}
	pod, err := c.RunPod(ctx, lab.PodSpec{Name: "web", Containers: []lab.ContainerSpec{{Name: "web", Image: image, Command: lab.IgnoreTerm(), Ready: "ready"}}})
	if err != nil {
		return err
	}
	if status, err := c.Container(ctx, pod.Containers["web"]); err != nil || status.State != cri.ContainerState_CONTAINER_RUNNING {
		return fmt.Errorf("container is %v, %v, want running", status, err)
	}
	reported := inside{Cgroup: l.Cgroup, Logind: l.Tools.Logind.Path}
	reported.PIDNamespace, _ = os.Readlink("/proc/self/ns/pid")
	reported.MountNamespace, _ = os.Readlink("/proc/self/ns/mnt")
	mounts, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(c.Root))
	if err != nil || len(mounts) != 1 {
		return fmt.Errorf("mounts at %s: %v, %v, want one", c.Root, mounts, err)
	}
	backing, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(mounts[0].Source), "loop/backing_file"))
	if err != nil {
		return err
	}
	reported.Backing = string(backing)
	line, err := json.Marshal(reported)
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	switch how {
	case "frozen":
		return stuck(c.Root)
	case "wait":
		select {}
	case "panic":
		panic("asked for")
	}
	return nil
}

// stuck freezes a filesystem, and returns when a process waits to write to it. Not even SIGKILL
// ends that process.
func stuck(mountpoint string) error {
	if err := lab.Freeze(mountpoint); err != nil {
		return err
	}
	writer := exec.Command("sh", "-c", "echo > "+filepath.Join(mountpoint, "written"))
	if err := writer.Start(); err != nil {
		return err
	}
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", writer.Process.Pid))
		if err != nil {
			return err
		}
		switch state := stat[bytes.LastIndexByte(stat, ')')+2]; state {
		case 'D':
			return nil
		case 'Z':
			return errors.New("a frozen filesystem was written to")
		}
		time.Sleep(time.Millisecond)
	}
}

// reachesNothing tries ways to reach the host's daemons.
func reachesNothing() error {
	for _, socket := range []string{
		"/run/dbus/system_bus_socket", "/run/systemd/private", "/run/systemd/notify", "/run/systemd/journal/socket",
		"/run/containerd/containerd.sock", "/run/docker.sock", "/var/run/docker.sock", "/run/crio/crio.sock", "/run/podman/podman.sock",
	} {
		if _, err := os.Lstat(socket); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s is there inside the lab: %v", socket, err)
		}
	}
	if conn, err := net.DialTimeout("unix", "@hostler-lab-test", time.Second); err == nil {
		_ = conn.Close()
		return errors.New("an abstract socket of the host can be reached inside the lab")
	}
	if _, err := net.InterfaceByName(lab.Interface); err != nil {
		return err
	}
	// Writes to /etc and /var/lib must not be visible outside.
	return errors.Join(os.WriteFile("/etc/hostler-lab-test", nil, 0o644), os.WriteFile("/var/lib/hostler-lab-test", nil, 0o644))
}

// run starts the program and returns when it has printed its report.
func run(t *testing.T, how string, env ...string) (*exec.Cmd, inside, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	temporary := t.TempDir()
	cmd.Env = append(append(os.Environ(), programVariable+"="+how, "TMPDIR="+temporary), env...)
	stderr := &bytes.Buffer{}
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		err = errors.Join(err, cmd.Wait())
		t.Fatalf("the program printed nothing: %v\n%s", err, stderr)
	}
	var reported inside
	if err := json.Unmarshal(line, &reported); err != nil {
		t.Fatalf("the program printed %q: %v", line, err)
	}
	reported.at = uptime(t)
	t.Cleanup(func() {
		if left, _ := os.ReadDir(temporary); len(left) > 0 {
			t.Errorf("left in the folder for temporary files: %v", left)
		}
	})
	return cmd, reported, stderr
}

// uptime returns the uptime of the machine.
func uptime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// bornBy reports whether a process began before that uptime, which counts in hundredths of a
// second, see proc_pid_stat(5).
func bornBy(folder string, by time.Duration) bool {
	text, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return false // it has ended
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	ticks, err := strconv.ParseInt(fields[19], 10, 64) // field 22
	return err != nil || time.Duration(ticks)*time.Second/100 <= by
}

// traces lists what exists of a lab, seen from the host. Processes that began after the lab was
// complete may belong to another lab: the kernel uses the numbers of namespaces again.
func traces(reported inside) (found []string) {
	roots, _ := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	for _, root := range roots {
		if dir := filepath.Join(root.Mountpoint, reported.Cgroup); exists(dir) {
			found = append(found, "cgroup "+dir)
		}
	}
	for kind, namespace := range map[string]string{"pid": reported.PIDNamespace, "mnt": reported.MountNamespace} {
		links, _ := filepath.Glob("/proc/[0-9]*/ns/" + kind)
		for _, link := range links {
			process := filepath.Dir(filepath.Dir(link))
			if target, err := os.Readlink(link); err == nil && target == namespace && bornBy(process, reported.at) {
				found = append(found, "process "+process)
			}
		}
	}
	loops, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	for _, loop := range loops {
		if backing, err := os.ReadFile(loop); err == nil && string(backing) == reported.Backing {
			found = append(found, "loop device "+loop)
		}
	}
	mounts, _ := mountinfo.GetMounts(mountinfo.PrefixFilter(lab.Dir))
	for _, m := range mounts {
		found = append(found, "mount "+m.Mountpoint)
	}
	for _, path := range []string{lab.Dir, "/etc/hostler-lab-test", "/var/lib/hostler-lab-test"} {
		if exists(path) {
			found = append(found, "file "+path)
		}
	}
	return found
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// gone waits until nothing of a lab is left: the kernel unmounts, and frees loop devices, a moment
// after the last process has ended.
func gone(t *testing.T, reported inside, but string) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left = slices.DeleteFunc(traces(reported), func(s string) bool { return but != "" && strings.HasPrefix(s, but) })
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left of the lab: %q", left)
		}
	}
}

func TestNothingIsLeftOfALab(t *testing.T) {
	// The program tries to reach this abstract socket of the host.
	listener, err := net.Listen("unix", "@hostler-lab-test")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, tt := range []struct {
		name   string
		how    string
		signal syscall.Signal
		code   int
		stderr string
	}{
		{name: "when the program ends, its exit code passed on", how: "end", code: 7},
		{name: "when the program ends while a process waits for a disk that is frozen", how: "frozen", code: 7},
		{name: "when the program panics", how: "panic", code: 2, stderr: "panic: asked for"},
		{name: "after SIGINT", how: "wait", signal: syscall.SIGINT, code: 128 + int(syscall.SIGINT)},
		{name: "after SIGTERM", how: "wait", signal: syscall.SIGTERM, code: 128 + int(syscall.SIGTERM)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd, reported, stderr := run(t, tt.how)
			if tt.signal != 0 {
				found := traces(reported)
				for _, kind := range []string{"cgroup", "process", "loop device"} {
					if !slices.ContainsFunc(found, func(s string) bool { return strings.HasPrefix(s, kind) }) {
						t.Errorf("no %s of the running lab is seen in %q: this test would not notice one that is left", kind, found)
					}
				}
				if err := cmd.Process.Signal(tt.signal); err != nil {
					t.Fatal(err)
				}
			}
			err := cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != tt.code {
				t.Errorf("exit code = %d (%v), want %d\n%s", code, err, tt.code, stderr)
			}
			if !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("stderr = %q, want %q in it", stderr, tt.stderr)
			}
			gone(t, reported, "")
		})
	}
}

func TestAKilledLabLeavesOnlyEmptyCgroupsForTheNextToSweep(t *testing.T) {
	cmd, reported, _ := run(t, "wait")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	gone(t, reported, "cgroup")
	next, _, _ := run(t, "end")
	_ = next.Wait()
	gone(t, reported, "")
}

// fetch prints which logind it got.
func fetch() error {
	tools, err := lab.Fetch(context.Background(), lab.FetchOptions{Kits: []lab.Kit{lab.KitLogin}, Always: true}, nil)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(inside{Logind: tools.Logind.Path})
}

func TestFetchedToolsServeSeveralProcessesAtOnce(t *testing.T) {
	cache := "HOSTLER_TEST_CACHE=" + t.TempDir()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	outputs := make([]bytes.Buffer, 3)
	var cmds []*exec.Cmd
	for i := range outputs {
		cmd := exec.Command(exe)
		cmd.Env = append(os.Environ(), programVariable+"=fetch", cache, lab.Prepared+"=")
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	for i, cmd := range cmds {
		_ = cmd.Wait()
		if cmd.ProcessState.ExitCode() != 7 || outputs[i].String() != outputs[0].String() {
			t.Errorf("fetch %d exited with %d and printed %q, want 7 and what the first printed, %q", i, cmd.ProcessState.ExitCode(), &outputs[i], &outputs[0])
		}
	}
	var reported inside
	if err := json.Unmarshal(outputs[0].Bytes(), &reported); err != nil {
		t.Fatal(err)
	}
	if dir := strings.TrimPrefix(cache, "HOSTLER_TEST_CACHE="); !strings.HasPrefix(reported.Logind, dir+"/") {
		t.Errorf("logind was fetched to %q, want below %s", reported.Logind, dir)
	}

	// The cache works without any package tool.
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), programVariable+"=fetch", cache, "PATH=/nowhere")
	if out, _ := cmd.CombinedOutput(); string(out) != outputs[0].String() {
		t.Errorf("a second fetch printed %q, want %q", out, &outputs[0])
	}
	program, again, _ := run(t, "end", cache, "HOSTLER_TEST_FETCH=always", lab.Prepared+"=")
	_ = program.Wait()
	if again.Logind != reported.Logind {
		t.Errorf("the lab ran logind from %q, want %q", again.Logind, reported.Logind)
	}
	gone(t, again, "")
}

func TestALabWithoutRootSaysWhatToDo(t *testing.T) {
	// Other users may not enter Go's build folder, so the program is copied.
	dir, err := os.MkdirTemp("", "hostler-lab-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	exe := filepath.Join(dir, "program")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(exe, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), programVariable+"=end")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "run as root, such as: sudo make test") {
		t.Errorf("without root the program exited with %d and printed %q, want 1 and how to run it", cmd.ProcessState.ExitCode(), out)
	}
}
