//go:build integration

package e2e_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/lab"
)

// kubelet runs a service of root with a process of that name, which does nothing.
func kubelet(t testing.TB) *exec.Cmd {
	t.Helper()
	return kubeletOf(t, 0)
}

// kubeletOf is kubelet as another user.
func kubeletOf(t testing.TB, uid uint32) *exec.Cmd {
	t.Helper()
	return kubeletBy(t, &exec.Cmd{SysProcAttr: &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid}}})
}

// kubeletBy is kubelet, executed by the command.
func kubeletBy(t testing.TB, cmd *exec.Cmd) *exec.Cmd {
	t.Helper()
	program, err := os.ReadFile(lab.In(t).Tools.Busybox.Path)
	check(t, err)
	path := filepath.Join(lab.Dir, "kubelet")
	check(t, os.WriteFile(path, program, 0o755))
	if cmd.Path == "" {
		cmd.Path, cmd.Args = path, []string{"sleep"}
	} else {
		cmd.Args = append(cmd.Args, path, "sleep")
	}
	cmd.Args = append(cmd.Args, "86400")
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be dead already
		_ = cmd.Wait()
		check(t, os.Remove(path))
	})
	check(t, lab.In(t).IntoService(cmd.Process.Pid, "kubelet.service"))
	return cmd
}

// kubeletsLock lets a process of the kubelet's service delay shutdowns, until release is called.
func kubeletsLock(t testing.TB) (release func()) {
	t.Helper()
	cmd := exec.Command("systemd-inhibit", "--what=shutdown", "--mode=delay", "--who=kubelet", "--why=Kubelet needs time to handle node shutdown", "sh", "-c", "echo held; read line")
	cmd.Args = append([]string{"sh", "-c", `read go; exec "$@"`, "sh"}, cmd.Args...) // it waits until it is in the service
	cmd.Path, cmd.Err = "/bin/sh", nil
	in, err := cmd.StdinPipe() // it ends when this is closed
	check(t, err)
	out, err := cmd.StdoutPipe()
	check(t, err)
	check(t, cmd.Start())
	release = sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(release)
	check(t, lab.In(t).IntoService(cmd.Process.Pid, "kubelet.service"))
	_, err = io.WriteString(in, "go\n")
	check(t, err)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("systemd-inhibit says %q, %v", line, err)
	}
	return release
}

// owned reports whether an owner has these jobs.
func owned(s api.Status, owner string, jobs ...string) bool {
	for _, job := range jobs {
		if s.Owners[job].Name != owner {
			return false
		}
	}
	return true
}

func TestBesideAKubeletTheAgentYieldsAndTakesOverWhenAPersonRequestsIt(t *testing.T) {
	login := logind(t)
	cmd := kubelet(t)
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	_, err := c.Pull(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/unused:1"}})
	check(t, err)
	over, err := c.RunPod(t.Context(), lab.PodSpec{Name: "over"})
	check(t, err)
	check(t, c.StopPod(t.Context(), over))
	settings := quick + "runtimes: [{type: cri, endpoint: " + c.Endpoint + "}]\nimageGC: {interval: 1s, minimumAge: 0s, maximumAge: 1s}\n"

	// A kubelet without graceful node shutdown leaves that job to hostler.
	a := startAgent(t, settings)
	s := a.awaitGuard(shutdown.Armed)
	evidence := fmt.Sprintf("process kubelet, pid %d", cmd.Process.Pid)
	for _, job := range []string{"node", "lease", "imageGC", "containerGC"} {
		if got, want := s.Owners[job], (owner.Owner{Name: owner.Kubelet, Evidence: evidence}); got != want {
			t.Errorf("owner of %s = %+v, want %+v", job, got, want)
		}
	}
	if !owned(s, owner.Hostler, "shutdown") {
		t.Errorf("owner of shutdown = %+v, want hostler", s.Owners["shutdown"])
	}
	a.stop()

	release := kubeletsLock(t)
	a.start()
	s = a.awaitGuard(shutdown.Delegated)
	mentions(t, "reason of Delegated", s.Shutdown.Reason, "kubelet", "Kubelet needs time to handle node shutdown")
	a.await("ShutdownProtected says that it is delegated", func(s api.Status) bool {
		return condition(s, status.ShutdownProtected).Reason == status.ReasonDelegated
	})
	if n := len(locks(t, login)); n != 0 {
		t.Errorf("hostler holds %d locks beside the kubelet's, want none", n)
	}
	mentions(t, "hostler status", a.screen(), "left to others node, lease, imageGC, containerGC: kubelet ("+evidence+")", "shutdown Delegated to kubelet")
	s = a.status()
	if s.Lease != nil || nodeOf(s).UID != "" || s.ImageGC.LastRun != nil || s.ContainerGC.LastRun != nil {
		t.Errorf("beside a kubelet: lease %v, node UID %q, GC runs %v and %v, want none of them", s.Lease, nodeOf(s).UID, s.ImageGC.LastRun, s.ContainerGC.LastRun)
	}
	if !images(t, c)["docker.io/library/unused:1"] {
		t.Error("an image was collected beside a kubelet")
	}
	a.await("all loops are at rest in good order", func(s api.Status) bool {
		return !slices.ContainsFunc(s.Loops, func(l api.Loop) bool { return !l.Healthy })
	})

	// A kubelet that does not run may be in an upgrade, or fail to start.
	release()
	check(t, cmd.Process.Kill()) // not reaped: a zombie does not count as a kubelet
	a.awaitGuard(shutdown.Armed)
	a.stop() // so that the test does not wait a minute for the kubelet's return
	a.start()
	s = a.awaitGuard(shutdown.Armed)
	if !owned(s, owner.Kubelet, "node", "lease", "imageGC", "containerGC") || !owned(s, owner.Hostler, "shutdown") {
		t.Errorf("owners while the kubelet is away = %+v, want all jobs but the shutdown its own", s.Owners)
	}
	mentions(t, "evidence", s.Owners["imageGC"].Evidence, "does not run now", "node.enabled: true", "reboot without a kubelet")
	keeps := func(want bool) {
		t.Helper()
		for _, p := range answers[api.CollectPlan](a, "gc", "plan", "--containers").Pods {
			if p.ID == over.ID && (p.Reason == gc.Newest) == want {
				return
			}
		}
		t.Errorf("gc plan does not show the dead pod, kept for the kubelet: %v", want)
	}
	keeps(true)
	a.stop()
	a.configure(settings + "containerGC: {interval: 1s, enabled: true}\n")
	a.start()
	a.await("the dead pod is collected by hostler", func(s api.Status) bool { return owned(s, owner.Hostler, "containerGC") && s.ContainerGC.LastRun != nil })
	keeps(true)
	if !images(t, c)["docker.io/library/unused:1"] {
		t.Error("an image was collected while the kubelet was away")
	}
	a.stop()

	a.configure(settings + "node: {enabled: true}\n")
	a.start()
	a.await("all jobs are hostler's", func(s api.Status) bool {
		return owned(s, owner.Hostler, "node", "lease", "shutdown", "imageGC", "containerGC") && s.Lease != nil && nodeOf(s).UID != ""
	})
	a.awaitGuard(shutdown.Armed)
	eventually(t, "the image that is due is collected", func() bool { return !images(t, c)["docker.io/library/unused:1"] })
	a.stop()
	a.configure(settings)
	a.start()
	a.await("all jobs stay hostler's with the default", func(s api.Status) bool {
		return owned(s, owner.Hostler, "node", "lease", "shutdown", "imageGC", "containerGC")
	})
	a.stop()
}

// Any user can give a process this name, and let it take a lock where polkit allows that.
func TestAUsersProcessThatIsNamedKubeletGetsNoJob(t *testing.T) {
	logind(t)
	kubeletOf(t, 65534)
	a := startAgent(t, "")
	s := a.awaitGuard(shutdown.Armed)
	if !owned(s, owner.Hostler, "node", "lease", "shutdown", "imageGC", "containerGC") {
		t.Errorf("owners = %+v, want all jobs hostler's", s.Owners)
	}
	found(t, a.diagnose(), "kubelet", doctor.Warn, "is ignored: it runs as user 65534")
	a.stop()
}

// A container can share the host's processes, and be in the cgroup of a service, such as with podman
// run --pid=host --cgroups=disabled.
func TestAContainersProcessThatIsNamedKubeletGetsNoJob(t *testing.T) {
	logind(t)
	cmd := kubeletBy(t, exec.Command("unshare", "--mount", "setpriv", "--bounding-set=-sys_admin", "--inh-caps=-all", "bash", "-c", `exec -a "$1" "$0" "$2"`))
	eventually(t, "the process has its name", func() bool {
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid))
		check(t, err)
		return string(name) == "kubelet\n"
	})
	a := startAgent(t, "")
	s := a.awaitGuard(shutdown.Armed)
	if !owned(s, owner.Hostler, "node", "lease", "shutdown", "imageGC", "containerGC") {
		t.Errorf("owners = %+v, want all jobs hostler's", s.Owners)
	}
	found(t, a.diagnose(), "kubelet", doctor.Warn, "is ignored: it has no CAP_SYS_ADMIN")
	a.stop()
}

func TestAJobThatIsSwitchedOnOrOffIsSoWhateverIsFound(t *testing.T) {
	kubelet(t)
	a := startAgent(t, "lease: {enabled: true}\nimageGC: {enabled: false}\n")
	s := a.await("the lease is hostler's", func(s api.Status) bool { return s.Lease != nil })
	if !owned(s, owner.Hostler, "lease") || !owned(s, owner.Kubelet, "node", "imageGC") {
		t.Errorf("owners = %+v, want the lease hostler's, and the rest the kubelet's", s.Owners)
	}
	mentions(t, "evidence", s.Owners["lease"].Evidence, "switched on in the configuration")
	a.stop()
}
