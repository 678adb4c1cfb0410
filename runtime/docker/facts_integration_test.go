//go:build integration

package docker_test

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/shutdown/drain"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/test/lab"
)

const image = "localhost/hostler/a:1"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// containers returns the listed containers by name.
func containers(t *testing.T, r *docker.Runtime) map[string]runtime.Container {
	t.Helper()
	list := map[string]runtime.Container{}
	// A list does not have the ends that a slow dockerd did not report in time. The next one asks again.
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		pods, err := r.Pods(t.Context())
		check(t, err)
		clear(list)
		asked := true
		for _, p := range pods {
			for _, c := range p.Containers {
				list[c.Name] = c
				asked = asked && (c.State != runtime.Exited || !c.FinishedAt.IsZero())
			}
		}
		if asked || time.Now().After(deadline) {
			return list
		}
	}
}

// A container's own stop signal ends it, and no restart policy starts it again.
func TestDockerStopsByTheContainersOwnSignal(t *testing.T) {
	r, d := startDocker(t, lab.DockerOptions{})
	d.AddImage(t, image)
	const program = "trap '' TERM; trap 'echo heard; exit 0' USR1; echo ready; while :; do sleep 86400 & wait $!; done"
	id, err := d.Run(t.Context(), lab.DockerContainer{
		Name: "web", Image: image, Command: []string{"sh", "-c", program}, Ready: "ready",
		StopSignal: "SIGUSR1", StopTimeout: 70 * time.Second, Restart: "always",
	})
	check(t, err)
	c := containers(t, r)["web"]
	if c.StopTimeout == nil || *c.StopTimeout != 70*time.Second {
		t.Errorf("Pods() = stop timeout %v, want 70s", c.StopTimeout)
	}
	check(t, r.StopContainer(t.Context(), c, patience))
	check(t, d.AwaitOutput(t.Context(), id, "heard"))
	state, err := d.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil || state.Container.State.Running || state.Container.RestartCount != 0 {
		t.Errorf("container is %+v after %d restarts, %v, want it stopped for good", state.Container.State, state.Container.RestartCount, err)
	}
}

// A container that Docker restarts repeatedly can be stopped between two attempts, too.
func TestDockerStopsACrashingContainer(t *testing.T) {
	r, d := startDocker(t, lab.DockerOptions{})
	d.AddImage(t, image)
	id, err := d.Run(t.Context(), lab.DockerContainer{Name: "web", Image: image, Command: lab.ExitWith(1), Restart: "always"})
	check(t, err)
	inspect := func() client.ContainerInspectResult {
		t.Helper()
		state, err := d.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
		check(t, err)
		return state
	}
	for deadline := time.Now().Add(patience); inspect().Container.RestartCount < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the container is not restarted")
		}
	}
	check(t, r.StopContainer(t.Context(), containers(t, r)["web"], patience))
	if state := inspect().Container.State; state.Running || state.Restarting {
		t.Errorf("container is %+v after it was stopped, want it to stay so", state)
	}
}

// A paused container is resumed, and handles its stop signal.
func TestDockerStopsAPausedContainer(t *testing.T) { onEachDocker(t, testPaused) }

func testPaused(t *testing.T, o lab.DockerOptions) {
	r, d := startDocker(t, o)
	d.AddImage(t, image)
	id, err := d.Run(t.Context(), lab.DockerContainer{Name: "web", Image: image, Command: lab.ServeFor(0), Ready: "ready"})
	check(t, err)
	_, err = d.API.ContainerPause(t.Context(), id, client.ContainerPauseOptions{})
	check(t, err)
	c := containers(t, r)["web"]
	if c.State != runtime.Running {
		t.Errorf("a paused container is %v, want %v", c.State, runtime.Running)
	}
	check(t, r.StopContainer(t.Context(), c, patience))
	state, err := d.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	if err != nil || state.Container.State.Running || state.Container.State.ExitCode != 0 {
		t.Errorf("container is %+v, %v, want it to have ended by itself", state.Container.State, err)
	}
}

func TestDockerReportsTheLatestEnd(t *testing.T) {
	r, d := startDocker(t, lab.DockerOptions{})
	d.AddImage(t, image)
	id, err := d.Run(t.Context(), lab.DockerContainer{Name: "job", Image: image, Command: []string{"sh", "-c", "test -e /tmp/again && exit 5; echo > /tmp/again; exit 4"}})
	check(t, err)
	_, err = d.AwaitEnd(t.Context(), id)
	check(t, err)
	first := containers(t, r)["job"]
	_, err = d.API.ContainerStart(t.Context(), id, client.ContainerStartOptions{})
	check(t, err)
	_, err = d.AwaitEnd(t.Context(), id)
	check(t, err)
	second := containers(t, r)["job"]
	if first.ExitCode != 4 || second.ExitCode != 5 || !second.FinishedAt.After(first.FinishedAt) {
		t.Errorf("Pods() = %d at %v, then %d at %v, want 4, and 5 later", first.ExitCode, first.FinishedAt, second.ExitCode, second.FinishedAt)
	}
}

// In containerd's store, pulled images cannot be distinguished from local builds. Both count as
// built here.
func TestImagesOfDockersInContainerdCarryNoDigests(t *testing.T) {
	onEachDocker(t, func(t *testing.T, o lab.DockerOptions) {
		if o.Dockerd == "" { // too old
			return
		}
		r, d := inContainerd(t, o)
		pulled, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{d.Reference("team/one:1")}})
		check(t, err)
		built, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
		check(t, err)
		list, err := r.Images(t.Context())
		check(t, err)
		for _, id := range []string{pulled, built} {
			i := slices.IndexFunc(list, func(img runtime.Image) bool { return img.ID == id })
			if i < 0 || len(list[i].Digests) > 0 || len(list[i].Tags) != 1 {
				t.Errorf("Images() = %+v, want %s in it, with its tag and no digest", list, id)
			}
		}
	})
}

func TestDockersImages(t *testing.T) { onEachDocker(t, testDockersImages) }

func testDockersImages(t *testing.T, o lab.DockerOptions) {
	o.ImageFSBytes = 512 << 20
	r, d := startDocker(t, o)
	shared, err := lab.RandomLayer(8 << 20)
	check(t, err)
	own, err := lab.RandomLayer(4 << 20)
	check(t, err)
	one, two := d.Reference("team/one:1"), d.Reference("team/two:1")
	pulled, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{one, two}, Layers: []lab.Layer{shared, own}, Labels: map[string]string{runtime.LabelKeep: "true", "maintainer": "me"}})
	check(t, err)
	_, err = d.API.ImageTag(t.Context(), client.ImageTagOptions{Source: pulled, Target: "localhost/hostler/mine:1"})
	check(t, err)
	built, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{image}, Layers: []lab.Layer{shared}})
	check(t, err)

	find := func(id string) (runtime.Image, bool) {
		t.Helper()
		list, err := runtime.DetailedImages(t.Context(), r)
		check(t, err)
		i := slices.IndexFunc(list, func(img runtime.Image) bool { return img.ID == id })
		if i < 0 {
			return runtime.Image{}, false
		}
		return list[i], true
	}
	img, _ := find(pulled)
	if len(img.Tags) != 3 || len(img.Digests) != 2 || len(img.Labels) != 1 {
		t.Errorf("pulled image = %+v, want three tags, the digests of two repositories, and hostler's label", img)
	}
	if !img.SharedKnown || img.OwnBytes() < 4<<20 || img.OwnBytes() > 6<<20 {
		t.Errorf("pulled image has %d bytes of its own, known: %t, want 4 MiB", img.OwnBytes(), img.SharedKnown)
	}
	if img, _ := find(built); len(img.Digests) != 0 || len(img.Tags) != 1 {
		t.Errorf("image that was loaded = %+v, want no digest", img)
	}
	list, err := r.ImageFilesystems(t.Context())
	if err != nil || len(list) != 1 || list[0].Mountpoint != d.Root || !strings.HasPrefix(list[0].Device, "/dev/loop") || !strings.HasSuffix(list[0].Path, "/"+d.Driver) {
		t.Errorf("ImageFilesystems() = %+v, %v, want the storage driver's folder on Docker's own filesystem", list, err)
	}

	// The image of a container that never ran stays, with all its names.
	id, err := d.Run(t.Context(), lab.DockerContainer{Name: "waiting", Image: one, Unstarted: true})
	check(t, err)
	if err := r.RemoveImage(t.Context(), img); !errors.Is(err, runtime.ErrInUse) || !strings.Contains(err.Error(), `"waiting"`) {
		t.Errorf("RemoveImage() of an image in use = %v, want %v, naming the container", err, runtime.ErrInUse)
	}
	if after, _ := find(pulled); len(after.Tags) != 3 || len(after.Digests) != 2 {
		t.Errorf("an image that is in use has lost names: %+v", after)
	}
	check(t, r.RemoveContainer(t.Context(), runtime.Container{ID: id, Name: "waiting"}))
	check(t, r.RemoveImage(t.Context(), img))
	if after, found := find(pulled); found {
		t.Errorf("RemoveImage() left %+v", after)
	}
	if _, found := find(built); !found {
		t.Errorf("RemoveImage() took another image along")
	}
}

// containerd's folder may be configured, for example on a separate disk.
func TestContainerdReportsWhereDockersImagesAre(t *testing.T) {
	c := lab.ContainerdFor(t, lab.ContainerdOptions{ImageFSBytes: 64 << 20})
	store := map[string]any{
		"DockerRootDir": "/var/lib/docker", "Driver": "overlayfs", "DriverStatus": []any{[]any{"driver-type", "io.containerd.snapshotter.v1"}},
		"Containerd": map[string]any{"Address": strings.TrimPrefix(c.Endpoint, "unix://")},
	}
	r := newServer(t, "1.46", map[string]any{"/info": store}).client(t)
	list, err := r.ImageFilesystems(t.Context())
	if err != nil || len(list) != 1 || list[0].Mountpoint != c.Root || list[0].Path != filepath.Join(c.Root, "io.containerd.snapshotter.v1.overlayfs") {
		t.Errorf("ImageFilesystems() = %+v, %v, want the snapshotter's folder below %s", list, err, c.Root)
	}
	// While Docker has not changed, containerd is not queried again.
	check(t, c.Stop(t.Context()))
	if again, err := r.ImageFilesystems(t.Context()); err != nil || !slices.Equal(again, list) {
		t.Errorf("ImageFilesystems() without containerd = %+v, %v, want %+v", again, err, list)
	}
	unknown := newServer(t, "1.46", map[string]any{"/info": store}).client(t)
	if list, err := unknown.ImageFilesystems(t.Context()); err == nil || !strings.Contains(err.Error(), "containerd") {
		t.Errorf("ImageFilesystems() of a containerd that does not answer = %+v, %v, want an error", list, err)
	}
}

func TestDockersDependentsStopFirst(t *testing.T) { onEachDocker(t, testDependents) }

func testDependents(t *testing.T, o lab.DockerOptions) {
	r, d := startDocker(t, o)
	d.AddImage(t, image)
	services := map[string][]string{"db": nil, "cache": nil, "api": {"db", "cache"}, "web": {"api", "ghost"}, "mail": nil}
	for _, name := range []string{"db", "cache", "api", "web", "mail"} { // in the order in which Compose starts them
		_, err := d.Run(t.Context(), lab.DockerContainer{Project: "shop", Name: name, DependsOn: services[name], Image: image, Command: lab.ServeFor(time.Second), Ready: "ready"})
		check(t, err)
	}
	record := &journal.Record{}
	run := drain.New(drain.Options{
		Log: slog.New(slog.DiscardHandler), Roster: &drain.Roster{Runtime: r}, Phases: []plan.PhaseSpec{{Name: "regular", Grace: 2 * time.Minute}},
		Start: time.Now(), Record: record, Publish: func(*journal.Record) {},
	})
	run.Run(t.Context())
	<-run.Idle()
	ended := containers(t, r)
	for name, c := range ended {
		if c.State != runtime.Exited || c.ExitCode != 0 {
			t.Errorf("%s is %v with code %d, want it to have ended by itself", name, c.State, c.ExitCode)
		}
		for _, needed := range services[name] {
			// Each takes a second to end.
			if n, there := ended[needed]; there && n.FinishedAt.Before(c.FinishedAt.Add(time.Second)) {
				t.Errorf("%s ended at %v, and %s, which needs it, at %v: want it asked after that", needed, n.FinishedAt, name, c.FinishedAt)
			}
		}
	}
	if got := run.Record(); !got.Graceful || len(got.Pods) != 1 || got.Pods[0].Outcome != journal.Stopped {
		t.Errorf("Run() recorded %+v, want the project stopped gracefully", got)
	}
}

// dockerd is restarted while its containers still run, and is found again, with its events.
func TestDockerIsFoundAgain(t *testing.T) { onEachDocker(t, testFoundAgain) }

func testFoundAgain(t *testing.T, o lab.DockerOptions) {
	o.LiveRestore = true
	r, d := startDocker(t, o)
	d.AddImage(t, image)
	_, err := d.Run(t.Context(), lab.DockerContainer{Name: "web", Image: image, Ready: "ready"})
	check(t, err)
	before := containers(t, r)["web"]
	watch := func() (events chan runtime.Event, ended chan error) {
		events, ended = make(chan runtime.Event, 64), make(chan error, 1)
		go func() { ended <- r.Watch(t.Context(), events) }()
		return events, ended
	}
	_, ended := watch()
	check(t, d.Kill())
	if err := <-ended; !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Watch() = %v, want %v", err, runtime.ErrUnavailable)
	}
	if _, err := r.Info(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Info() = %v, want %v", err, runtime.ErrUnavailable)
	}
	check(t, d.Start())
	check(t, d.Ready(t.Context()))
	if info, err := r.Info(t.Context()); err != nil || !info.Ready {
		t.Errorf("Info() = %+v, %v, want it ready again", info, err)
	}
	if after := containers(t, r)["web"]; after.ID != before.ID || after.State != runtime.Running {
		t.Errorf("Pods() = %+v, want the container as it was", after)
	}
	events, ended := watch()
	// No answer confirms a subscription, so images are added until an event arrives.
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		d.AddImage(t, fmt.Sprintf("localhost/hostler/prime:%d", n))
		select {
		case <-events:
			return
		case err := <-ended:
			t.Fatalf("Watch() = %v, want it to continue", err)
		case <-tick.C:
		case <-time.After(patience):
			t.Fatal("Watch() delivered nothing")
		}
	}
}

// If Docker and CRI share one containerd, as on Debian, neither lists the other's images, and
// removals through CRI do not affect Docker's.
func TestDockersImagesInContainerdAreNotCollectedThroughCRI(t *testing.T) {
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	r, d := startDocker(t, lab.DockerOptions{Containerd: c})
	d.AddImage(t, image)
	_, err := d.Run(t.Context(), lab.DockerContainer{Name: "web", Image: image, Ready: "ready"})
	check(t, err)
	over, err := cri.New(cri.Options{Endpoint: c.Endpoint, Name: "containerd", Timeouts: local.Timeouts{Query: patience / 2}})
	check(t, err)
	defer over.Close()
	if pods, err := over.Pods(t.Context()); err != nil || len(pods) != 0 {
		t.Errorf("Pods() over CRI = %+v, %v, want none of Docker's", pods, err)
	}
	images, err := over.Images(t.Context())
	check(t, err)
	for _, img := range images {
		check(t, over.RemoveImage(t.Context(), img))
	}
	if web := containers(t, r)["web"]; web.State != runtime.Running {
		t.Errorf("Docker's container is %v, want it running still", web.State)
	}
	if list, err := r.Images(t.Context()); err != nil || len(list) != 1 || list[0].Tags[0] != image {
		t.Errorf("Images() = %+v, %v, want Docker's image still", list, err)
	}
	_, err = d.Run(t.Context(), lab.DockerContainer{Name: "again", Image: image, Ready: "ready"})
	check(t, err)
}
