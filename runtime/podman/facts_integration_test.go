//go:build integration

package podman_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/podman"
	"hostler.io/hostler/test/lab"
)

const built = "localhost/hostler/program:1"

// containers returns the containers of all pods by name.
func containers(t *testing.T, r *podman.Runtime) map[string]runtime.Container {
	t.Helper()
	pods, err := r.Pods(t.Context())
	check(t, err)
	byName := map[string]runtime.Container{}
	for _, p := range pods {
		for _, c := range p.Containers {
			byName[c.Name] = c
		}
	}
	return byName
}

// counts is the command of a container that ends at once after the second signal, and within a
// second after the first.
func counts() []string {
	return []string{"sh", "-c", "trap 'echo signal; n=$((n+1)); [ $n = 1 ] || exit 9' TERM; echo ready; while [ \"$n\" != 1 ]; do sleep 0.1; done; for i in 0 1 2 3 4 5 6 7 8 9; do sleep 0.2; done; exit 4"}
}

// A stopped container stays stopped, whatever its restart policy is. It gets one signal, and may be
// removed afterwards.
func TestPodmansContainersStayStopped(t *testing.T) {
	r, d := startPodman(t, lab.PodmanOptions{})
	d.AddImage(t, built)
	run := func(c lab.PodmanContainer) {
		t.Helper()
		c.Image, c.Ready = built, "ready"
		_, err := d.Run(t.Context(), c)
		check(t, err)
	}
	run(lab.PodmanContainer{Name: "always", Command: lab.ServeFor(0), Restart: "always"})
	run(lab.PodmanContainer{Name: "stubborn", Command: lab.IgnoreTerm(), Restart: "always"})
	run(lab.PodmanContainer{Name: "removed", Command: lab.ServeFor(0), Flags: []string{"--rm"}})
	run(lab.PodmanContainer{Name: "own", Command: []string{"sh", "-c", "trap 'exit 6' USR1; echo ready; while :; do sleep 0.1; done"}, StopSignal: "SIGUSR1", StopTimeout: 20 * time.Second})
	run(lab.PodmanContainer{Name: "paused", Command: lab.ServeFor(0)})
	run(lab.PodmanContainer{Name: "once", Command: counts()})
	_, err := d.Command(t.Context(), "pause", "paused")
	check(t, err)

	all := containers(t, r)
	if timeout := all["own"].StopTimeout; timeout == nil || *timeout != 20*time.Second || all["once"].StopTimeout != nil {
		t.Errorf("stop timeouts = %v, %v, want 20s, and none where nobody says any", timeout, all["once"].StopTimeout)
	}
	if state := all["paused"].State; state != runtime.Running {
		t.Errorf("a paused container is %v, want %v", state, runtime.Running)
	}
	var stops sync.WaitGroup
	for name, grace := range map[string]time.Duration{"always": patience, "stubborn": time.Second, "removed": patience, "own": patience, "paused": patience} {
		stops.Go(func() {
			if err := r.StopContainer(t.Context(), all[name], grace); err != nil {
				t.Errorf("StopContainer(%s) = %v", name, err)
			}
		})
	}
	stops.Wait()
	// The service dies while a container is stopping, and another client starts the service.
	stops.Go(func() {
		if err := r.StopContainer(t.Context(), all["once"], patience); err != nil {
			t.Errorf("StopContainer(once) = %v", err)
		}
	})
	check(t, d.AwaitOutput(t.Context(), all["once"].ID, "signal"))
	check(t, d.Kill())
	check(t, d.Start())
	check(t, d.Ready(t.Context()))
	stops.Wait()

	after := containers(t, r)
	if _, there := after["removed"]; there {
		t.Errorf("a container with --rm is still there: %+v", after["removed"])
	}
	for name, code := range map[string]int32{"always": 0, "stubborn": 137, "own": 6, "once": 4, "paused": 0} {
		if c := after[name]; c.State != runtime.Exited || c.ExitCode != code {
			t.Errorf("%s is %v with exit code %d, want it to have ended with %d", name, c.State, c.ExitCode, code)
		}
	}
}

// If Podman is killed after it resumed a container and before it saved that, it calls the container
// paused from then on. It can neither resume nor stop it.
func TestAContainerThatPodmanCallsPausedIsSignalled(t *testing.T) {
	r, d := startPodman(t, lab.PodmanOptions{})
	d.AddImage(t, built)
	for name, c := range map[string]lab.PodmanContainer{
		"usual": {Command: lab.ServeFor(0)},
		"own":   {Command: []string{"sh", "-c", "trap 'exit 6' USR1; echo ready; while :; do sleep 0.1; done"}, StopSignal: "SIGUSR1"},
	} {
		c.Name, c.Image, c.Ready = name, built, "ready"
		_, err := d.Run(t.Context(), c)
		check(t, err)
		_, err = d.Command(t.Context(), "pause", name)
		check(t, err)
	}
	here, err := lab.Current()
	check(t, err)
	var stops sync.WaitGroup
	for _, c := range containers(t, r) {
		resume := exec.CommandContext(t.Context(), here.Tools.Runc.Path, "resume", c.ID)
		resume.Env = append(os.Environ(), here.Tools.Runc.Environ()...)
		if out, err := resume.CombinedOutput(); err != nil {
			t.Fatalf("runc resume %s = %v: %s", c.Name, err, out)
		}
		stops.Go(func() {
			if err := r.StopContainer(t.Context(), c, patience); err != nil {
				t.Errorf("StopContainer(%s) = %v", c.Name, err)
			}
		})
	}
	stops.Wait()
	after := containers(t, r)
	for name, code := range map[string]int32{"usual": 0, "own": 6} {
		if c := after[name]; c.State != runtime.Exited || c.ExitCode != code {
			t.Errorf("%s is %v with exit code %d, want it to have ended with %d, by the signal of its own", name, c.State, c.ExitCode, code)
		}
	}
}

// An image that was built here also has digests, which mean nothing.
func TestOnlyImagesThatPodmanPulledHaveDigests(t *testing.T) {
	r, d := startPodman(t, lab.PodmanOptions{})
	pulled := d.Registry.Address + "/shop/app:1"
	id, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{pulled, d.Registry.Address + "/other/app:2"}})
	check(t, err)
	d.AddImage(t, "docker.io/library/built:1")
	// A commit by Podman has the same format as a build by Buildah.
	_, err = d.Run(t.Context(), lab.PodmanContainer{Name: "base", Image: pulled, Command: lab.ExitWith(0)})
	check(t, err)
	_, err = d.Command(t.Context(), "commit", "--quiet", "--change", "LABEL hostler.io/keep=true", "base", "docker.io/library/committed:1")
	check(t, err)

	images, err := r.Images(t.Context())
	check(t, err)
	by := map[string]runtime.Image{}
	for _, img := range images {
		for _, tag := range img.Tags {
			by[tag] = img
		}
	}
	if img := by[pulled]; img.ID != id || len(img.Digests) == 0 || len(img.Tags) != 2 {
		t.Errorf("Images() = %+v, want ID %s, two tags, and digests", img, id)
	}
	for _, name := range []string{"docker.io/library/built:1", "docker.io/library/committed:1"} {
		if img, there := by[name]; !there || len(img.Digests) != 0 {
			t.Errorf("Images() = %+v for %s, want it there without digests", img, name)
		}
	}
	if keep := by["docker.io/library/committed:1"].Labels["hostler.io/keep"]; keep != "true" {
		t.Errorf("label of the image = %q, want true", keep)
	}
	_, err = d.Command(t.Context(), "rm", "base")
	check(t, err)
	if err := r.RemoveImage(t.Context(), by[pulled]); err != nil {
		t.Errorf("RemoveImage() of one with names in two repositories = %v", err)
	}
	if images, err = r.Images(t.Context()); err != nil || slices.ContainsFunc(images, func(img runtime.Image) bool { return img.ID == id }) {
		t.Errorf("Images() = %v, %v, want it gone", images, err)
	}
}

// Layers of an OCI archive are compressed like those of a registry.
func TestAnArchiveThatPodmanLoadsIsNotPulled(t *testing.T) {
	r, d := startPodman(t, lab.PodmanOptions{})
	d.AddImage(t, built)
	archive, fromList := filepath.Join(t.TempDir(), "archive"), d.Registry.Address+"/shop/list:1"
	for _, command := range [][]string{
		{"save", "--quiet", "--format", "oci-archive", "--output", archive, built},
		{"manifest", "create", "localhost/list:1", "containers-storage:" + built},
		{"manifest", "push", "--all", "--format", "oci", "localhost/list:1", "docker://" + fromList},
		{"manifest", "rm", "localhost/list:1"},
		{"rmi", built},
		{"load", "--quiet", "--input", archive},
	} {
		_, err := d.Command(t.Context(), command...)
		check(t, err)
	}
	expect := func(name string, pulled bool) {
		t.Helper()
		images, err := r.Images(t.Context())
		check(t, err)
		i := slices.IndexFunc(images, func(img runtime.Image) bool { return slices.Contains(img.Tags, name) })
		if i < 0 || (len(images[i].Digests) > 0) != pulled {
			t.Errorf("Images() = %+v, want %s there with digests: %t", images, name, pulled)
		}
	}
	expect(built, false)
	_, err := d.Command(t.Context(), "rmi", built)
	check(t, err)
	_, err = d.Command(t.Context(), "pull", "--quiet", fromList)
	check(t, err)
	expect(fromList, true)
}

// An image that was pulled by tag and by digest is removed, and its parents stay.
func TestPodmansImagesAreRemovedWithTheirDigests(t *testing.T) {
	r, d := startPodman(t, lab.PodmanOptions{})
	pulled := d.Registry.Address + "/shop/app:1"
	id, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{pulled}})
	check(t, err)
	digest, err := d.Command(t.Context(), "image", "inspect", "--format", "{{.Digest}}", pulled)
	check(t, err)
	_, err = d.Command(t.Context(), "pull", "--quiet", d.Registry.Address+"/shop/app@"+digest)
	check(t, err)
	parent, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{built}})
	check(t, err)
	_, err = d.Run(t.Context(), lab.PodmanContainer{Name: "made", Image: built, Command: []string{"sh", "-c", "echo made >/tmp/made"}})
	check(t, err)
	_, err = d.Command(t.Context(), "wait", "made")
	check(t, err)
	_, err = d.Command(t.Context(), "commit", "--quiet", "made", "localhost/hostler/child:1")
	check(t, err)
	_, err = d.Command(t.Context(), "rm", "made")
	check(t, err)
	_, err = d.Command(t.Context(), "untag", built)
	check(t, err)

	images, err := r.Images(t.Context())
	check(t, err)
	for _, img := range images {
		if img.ID == parent {
			continue
		}
		if err := r.RemoveImage(t.Context(), img); err != nil {
			t.Errorf("RemoveImage(%v) = %v", img.Names(), err)
		}
	}
	left, err := r.Images(t.Context())
	check(t, err)
	if len(left) != 1 || left[0].ID != parent || !slices.ContainsFunc(images, func(img runtime.Image) bool { return img.ID == id }) {
		t.Errorf("Images() = %+v after %+v, want that alone which another was made of, %s", left, images, parent)
	}
}

// slowUnit is the unit of a container; its own stop takes longer than any grace.
type slowUnit struct {
	holdsNothing
	*lab.Podman
	stopped chan string
}

func (u slowUnit) StopUnit(ctx context.Context, name string, pid int, _ func(context.Context, []string) error) (bool, error) {
	go func() { // like its ExecStop=
		_, _ = u.Command(context.WithoutCancel(ctx), "stop", "--time", "3600", "web")
	}()
	u.stopped <- name
	return pid > 0, nil
}

func (u slowUnit) MainOf(context.Context, int) (string, error) { return "", nil }

func (u slowUnit) UnitStops(context.Context, string) (bool, error) { return true, nil }

func (u slowUnit) Units(context.Context, ...string) (map[string]local.Unit, error) { return nil, nil }

func (u slowUnit) Stopping(context.Context) (bool, error) { return false, nil }

func TestAUnitsStopIsCutAtTheGrace(t *testing.T) {
	_, d := startPodman(t, lab.PodmanOptions{})
	d.AddImage(t, built)
	_, err := d.Run(t.Context(), lab.PodmanContainer{Name: "web", Image: built, Command: lab.IgnoreTerm(), Ready: "ready", Labels: map[string]string{"PODMAN_SYSTEMD_UNIT": "web.service"}, Restart: "always"})
	check(t, err)
	u := slowUnit{Podman: d.Podman, stopped: make(chan string, 1)}
	r := newAdapter(t, d.Podman, u)
	if err := r.StopContainer(t.Context(), containers(t, r)["web"], 3*time.Second); !errors.Is(err, runtime.ErrKilled) {
		t.Fatalf("StopContainer() = %v, want %v", err, runtime.ErrKilled)
	}
	if name := <-u.stopped; name != "web.service" {
		t.Errorf("StopContainer() stopped %s, want web.service", name)
	}
	if c := containers(t, r)["web"]; c.State != runtime.Exited || c.ExitCode != 137 {
		t.Errorf("container is %v with exit code %d, want it killed", c.State, c.ExitCode)
	}
}

// The service exits by itself, and only a new request starts it.
func TestPodmanIsNotStartedWithoutNeed(t *testing.T) {
	p := lab.PodmanFor(t, lab.PodmanOptions{Activated: true, Idle: time.Second})
	_, err := p.Load(t.Context(), lab.ImageSpec{Names: []string{built}})
	check(t, err)
	r := newAdapter(t, p, nil)
	ask := func() {
		t.Helper()
		_, err := r.Info(t.Context())
		check(t, err)
		_, err = r.Pods(t.Context())
		check(t, err)
		_, err = r.Images(t.Context())
		check(t, err)
		_, err = r.OtherImageUsers(t.Context())
		check(t, err)
		_, err = r.ImageFilesystems(t.Context())
		check(t, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan runtime.Event, 1000), make(chan error, 1)
	go func() { ended <- r.Watch(ctx, events) }()
	eventually := func(what string, true func() bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); !true(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited %v in vain: %s", patience, what)
			}
		}
	}
	awaitIdle := func() {
		t.Helper()
		eventually("Podman is idle", func() bool {
			ask()
			before := p.Starts()
			if p.PID() != 0 {
				return false
			}
			ask()
			return p.Starts() == before
		})
	}
	awaitIdle()
	id, err := p.Run(t.Context(), lab.PodmanContainer{Name: "web", Image: built, Command: lab.ServeFor(0), Ready: "ready"})
	check(t, err)
	eventually("the start is seen", func() bool { c, there := containers(t, r)["web"]; return there && c.State == runtime.Running })
	awaitIdle()
	_, err = p.Command(t.Context(), "kill", "web")
	check(t, err)
	eventually("the end is seen", func() bool { return containers(t, r)["web"].State == runtime.Exited })
	_, err = p.Command(t.Context(), "tag", built, "localhost/hostler/other:2")
	check(t, err)
	eventually("the name is seen", func() bool {
		images, err := r.Images(t.Context())
		check(t, err)
		return slices.ContainsFunc(images, func(img runtime.Image) bool { return len(img.Tags) == 2 })
	})
	awaitIdle()
	cancel()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("Watch() = %v, want %v", err, context.Canceled)
	}
	close(events)
	var types []runtime.EventType
	for e := range events {
		if e.ContainerID == id && !slices.Contains(types, e.Type) {
			types = append(types, e.Type)
		}
	}
	if !slices.Equal(types, []runtime.EventType{runtime.ContainerStarted, runtime.ContainerExited}) {
		t.Errorf("events of the container = %v, want its start and its end", types)
	}
}
