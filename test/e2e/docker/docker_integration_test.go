//go:build integration

package docker_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/lab/unit"
	"hostler.io/hostler/test/machine/debian"
)

// patience limits every wait. Only an error makes a wait that long.
const patience = 5 * time.Minute

// image is built here.
const image = "localhost/shop/app:1"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits until true returns true. It pauses for longer than true takes, which may run programs.
func eventually(t *testing.T, what string, true func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		asked := time.Now()
		if true() {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
		time.Sleep(min(max(20*time.Millisecond, 2*time.Since(asked)), 2*time.Second))
	}
}

// usualPlace links a Docker to the default socket path.
func usualPlace(t *testing.T, d *lab.Docker) {
	t.Helper()
	serveAt(t, "/run/docker.sock", d.Endpoint)
}

// serveAt links a runtime to another socket path.
func serveAt(t *testing.T, place, endpoint string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(place), 0o755))
	check(t, os.Symlink(strings.TrimPrefix(endpoint, "unix://"), place))
	t.Cleanup(func() { check(t, os.Remove(place)) })
}

// agent is `hostler agent`.
type agent struct {
	*testing.T
	runtimes []string // types of the configured runtimes
	folder   string
	api      *api.Client
	process  *unit.Process // nil before the first start
	manager  *lab.Notify   // service manager; nil: none
	dropIn   []string      // a drop-in of the unit
}

// startAgent starts an agent with Docker, unless its settings configure other runtimes, and waits
// until Docker answers.
func startAgent(t *testing.T, settings string) *agent {
	t.Helper()
	if !strings.Contains(settings, "runtimes:") {
		settings += "runtimes: [{type: docker, endpoint: /run/docker.sock}]\n"
	}
	return startAgentOf(t, settings, "docker")
}

// startAgentOf starts an agent, and waits until the runtimes of these types, in their order,
// answer.
func startAgentOf(t *testing.T, settings string, runtimes ...string) *agent {
	t.Helper()
	a := newAgent(t, settings, runtimes...)
	a.run()
	return a
}

// newAgent prepares an agent, but does not start it.
func newAgent(t *testing.T, settings string, runtimes ...string) *agent {
	t.Helper()
	folder, err := os.MkdirTemp(lab.Dir, "agent-")
	check(t, err)
	socket := filepath.Join(folder, "s")
	a := &agent{T: t, runtimes: runtimes, folder: folder, api: api.NewClient(socket)}
	config := fmt.Sprintf("api: {socket: %s}\nstate: {directory: %s}\nmetrics: {listen: \"\"}\n%s", socket, filepath.Join(folder, "state"), settings)
	check(t, os.WriteFile(filepath.Join(folder, "hostler.yaml"), []byte(config), 0o644))
	t.Cleanup(func() {
		a.end(syscall.SIGKILL)
		if t.Failed() {
			text, _ := os.ReadFile(filepath.Join(folder, "log"))
			t.Logf("log of the agent:\n%s", text)
		}
		check(t, os.RemoveAll(folder))
	})
	return a
}

// run starts the agent, for the first time or again.
func (a *agent) run() {
	a.Helper()
	log, err := os.OpenFile(filepath.Join(a.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(a.T, err)
	defer log.Close()
	cmd := exec.Command(binary, "agent", "--config", filepath.Join(a.folder, "hostler.yaml"))
	cmd.Env = os.Environ() // runc and crun need it for their libraries
	cmd.Stdout, cmd.Stderr = log, log
	start := func() (err error) {
		a.process, err = units.Start(cmd, a.dropIn...)
		return err
	}
	if a.manager != nil {
		check(a.T, a.manager.StartBy(cmd, start))
	} else {
		check(a.T, start())
	}
	a.await(fmt.Sprintf("%q are found", a.runtimes), func(s api.Status) bool {
		var ready []string
		for _, r := range s.Runtimes {
			if r.Ready {
				ready = append(ready, r.Name)
			}
		}
		slices.Sort(ready)
		return slices.Equal(ready, a.runtimes) && len(s.Runtimes) == len(ready)
	})
}

// end ends the agent, once.
func (a *agent) end(s syscall.Signal) {
	if a.process != nil && a.process.Running() {
		_ = a.process.Signal(s) // it may have ended already
		<-a.process.Done
	}
}

func (a *agent) await(what string, awaited func(api.Status) bool) (s api.Status) {
	a.Helper()
	eventually(a.T, what, func() bool {
		var err error
		s, err = a.api.Status(a.Context())
		return err == nil && awaited(s)
	})
	return s
}

// hostler runs a command and returns its output.
func (a *agent) hostler(args ...string) string {
	a.Helper()
	cmd := exec.Command(binary, append(args, "--socket", filepath.Join(a.folder, "s"))...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	_ = cmd.Run() // its output has the result
	return strings.Join(strings.Fields(out.String()), " ")
}

// prints waits until a command prints all parts: on a busy machine, Docker answers too late at times.
func (a *agent) prints(command string, parts ...string) {
	a.Helper()
	eventually(a.T, fmt.Sprintf("hostler %s prints %q", command, parts), func() bool {
		output := a.hostler(strings.Fields(command)...)
		return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(output, part) })
	})
}

// A Compose project of five services, which Docker would restart, is stopped in the order of
// depends_on when the host shuts down. Critical containers stop after it.
func TestADockerHostGoesDownInOrder(t *testing.T) {
	for name, o := range map[string]lab.DockerOptions{"as installed": {}, "with live restore": {LiveRestore: true}} {
		t.Run(name, func(t *testing.T) { testGoesDownInOrder(t, o) })
	}
}

func testGoesDownInOrder(t *testing.T, o lab.DockerOptions) {
	d := lab.DockerFor(t, o)
	usualPlace(t, d)
	_, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	needs := map[string][]string{"db": nil, "cache": nil, "api": {"db", "cache"}, "web": {"api"}, "proxy": {"web"}}
	ids := map[string]string{}
	run := func(c lab.DockerContainer) {
		t.Helper()
		c.Image, c.Command, c.Ready, c.Restart, c.StopTimeout = image, lab.ServeFor(time.Second), "ready", "always", 10*time.Minute
		ids[c.Name], err = d.Run(t.Context(), c)
		check(t, err)
	}
	for _, name := range []string{"db", "cache", "api", "web", "proxy"} {
		run(lab.DockerContainer{Project: "shop", Name: name, DependsOn: needs[name]})
	}
	run(lab.DockerContainer{Name: "dns", Labels: map[string]string{"hostler.io/critical": "true"}})

	login := lab.LoginFor(t, lab.LoginOptions{})
	a := startAgent(t, "shutdown: {gracePeriod: 20m, gracePeriodCriticalPods: 10m}\n")
	a.await("the guard is armed", func(s api.Status) bool { return s.Shutdown.State == shutdown.Armed })
	a.prints("shutdown plan", "shop", "dns")
	check(t, login.Reboot(t.Context()))
	s := a.await("the drain is over", func(s api.Status) bool { return s.Shutdown.State == shutdown.Released })

	ended := map[string]time.Time{}
	for name, id := range ids {
		c, err := d.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
		check(t, err)
		state := c.Container.State
		if state.Running || state.ExitCode != 0 || c.Container.RestartCount != 0 {
			t.Errorf("%s is %+v after %d restarts, want it to have ended by itself, for good", name, state, c.Container.RestartCount)
		}
		ended[name], err = time.Parse(time.RFC3339Nano, state.FinishedAt)
		check(t, err)
	}
	for name := range needs {
		for _, needed := range needs[name] {
			// Each takes a second to end.
			if ended[needed].Before(ended[name].Add(time.Second)) {
				t.Errorf("%s ended at %v, and %s, which needs it, at %v", needed, ended[needed], name, ended[name])
			}
		}
		if ended["dns"].Before(ended[name]) {
			t.Errorf("the critical container ended before %s", name)
		}
	}
	r := s.Shutdown.Current
	if r == nil {
		r = s.Shutdown.Last
	}
	if r == nil || !r.Graceful || len(r.Pods) != 2 || slices.ContainsFunc(r.Pods, func(p journal.PodRecord) bool { return p.Outcome != journal.Stopped }) {
		t.Errorf("record = %+v, want shop and dns stopped gracefully", r)
	}
}

// Unused objects stay until a person requests their removal.
func TestNothingOfDockersIsRemovedBeforeSomebodyAsks(t *testing.T) {
	d := lab.DockerFor(t, lab.DockerOptions{ImageFSBytes: 256 << 20})
	usualPlace(t, d)
	unused := d.Reference("shop/unused:1")
	layer, err := lab.RandomLayer(4 << 20)
	check(t, err)
	id, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{unused}, Layers: []lab.Layer{layer}})
	check(t, err)
	_, err = d.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	const settings = "imageGC: {interval: 1s, highThresholdPercent: 1, lowThresholdPercent: 0, minimumAge: 0s%s}\n"
	there := func() bool {
		_, err := d.API.ImageInspect(t.Context(), id)
		return err == nil
	}

	a := startAgent(t, fmt.Sprintf(settings, ""))
	s := a.await("images were collected, and the status says what a person may collect", func(s api.Status) bool {
		on := s.ImageGC.OnRequest
		return s.ImageGC.LastRun != nil && on != nil && on.Unused == 1 && on.Bytes > 0 && len(on.Full) == 1 && on.Full[0] == d.Root
	})
	if s.ImageGC.LastRun.Removed != 0 || !there() {
		t.Errorf("imageGC = %+v, image there: %t; want it there", s.ImageGC.LastRun, there())
	}
	for _, command := range []string{"status", "doctor"} {
		a.prints(command, "1 unused image of", "imageGC: {enabled: true}")
		a.prints(command+" -o wide", "full, collected on request only")
	}
	a.prints("gc plan --images --all-unused", unused)
	a.end(syscall.SIGTERM)

	b := startAgent(t, fmt.Sprintf(settings, ", enabled: true"))
	eventually(t, "the unused image is collected", func() bool { return !there() })
	if s := b.await("status", func(api.Status) bool { return true }); s.ImageGC.OnRequest != nil {
		t.Errorf("imageGC waits for a request: %+v, want it to need none", s.ImageGC.OnRequest)
	}
	if _, err := d.API.ImageInspect(t.Context(), image); err != nil {
		t.Errorf("the image that was built here: %v, want it kept", err)
	}
}

// An agent finds a dockerd that starts later, without a restart. Its objects are not collected
// automatically either.
func TestADockerThatStartsLateIsFoundAndNotCollected(t *testing.T) {
	d := lab.DockerFor(t, lab.DockerOptions{ImageFSBytes: 256 << 20})
	usualPlace(t, d)
	layer, err := lab.RandomLayer(4 << 20)
	check(t, err)
	id, err := d.Pull(t.Context(), lab.ImageSpec{Names: []string{d.Reference("shop/unused:1")}, Layers: []lab.Layer{layer}})
	check(t, err)
	check(t, d.Stop(t.Context()))
	a := startAgentOf(t, "runtimes: auto\nimageGC: {interval: 1s, highThresholdPercent: 1, lowThresholdPercent: 0, minimumAge: 0s}\n")
	check(t, d.Start())
	check(t, d.Ready(t.Context()))
	s := a.await("Docker is found, and the status says what a person may collect", func(s api.Status) bool {
		return len(s.Runtimes) == 1 && s.Runtimes[0].Ready && s.ImageGC.OnRequest != nil && s.ImageGC.OnRequest.Unused == 1 && s.ImageGC.LastRun != nil
	})
	found := s.ImageGC.LastRun.StartedAt
	s = a.await("another collection", func(s api.Status) bool { return s.ImageGC.LastRun.StartedAt.After(found) })
	if _, err := d.API.ImageInspect(t.Context(), id); err != nil || s.ImageGC.LastRun.Removed != 0 {
		t.Errorf("the image: %v, after %+v; want it there", err, s.ImageGC.LastRun)
	}
}

// In the containerd of Docker's packages, CRI is disabled. Only Docker is managed then, and that is
// no error.
func TestAContainerdWithoutCRIIsLeftToDocker(t *testing.T) {
	c := lab.ContainerdFor(t, lab.ContainerdOptions{NoCRI: true})
	serveAt(t, "/run/containerd/containerd.sock", c.Endpoint)
	a := startAgentOf(t, "runtimes: auto\n")
	eventually(t, "doctor reports a containerd that hostler does not manage", func() bool {
		return strings.Contains(a.hostler("doctor"), "CRI of containerd is disabled")
	})

	d := lab.DockerFor(t, lab.DockerOptions{Containerd: c})
	usualPlace(t, d)
	a.await("Docker is found, and it alone", func(s api.Status) bool {
		return len(s.Runtimes) == 1 && s.Runtimes[0].Name == "docker" && s.Runtimes[0].Ready
	})
	eventually(t, "doctor has nothing to say of it any more", func() bool {
		r, err := a.api.Doctor(t.Context())
		i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Name == "runtimes" })
		return err == nil && i >= 0 && r.Checks[i].Status == doctor.OK
	})
}

// dockerd stops and starts again, while the agent runs.
func TestDockerIsFoundAgain(t *testing.T) {
	d := lab.DockerFor(t, lab.DockerOptions{LiveRestore: true})
	usualPlace(t, d)
	_, err := d.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	_, err = d.Run(t.Context(), lab.DockerContainer{Name: "web", Image: image, Ready: "ready"})
	check(t, err)
	a := startAgent(t, "")
	check(t, d.Stop(t.Context()))
	a.await("Docker is missed", func(s api.Status) bool { return len(s.Runtimes) == 1 && !s.Runtimes[0].Ready })
	check(t, d.Start())
	check(t, d.Ready(t.Context()))
	a.await("Docker is found again", func(s api.Status) bool { return s.Runtimes[0].Ready })
	eventually(t, "its container is listed", func() bool { return strings.Contains(a.hostler("ps"), "web") })
}

// An upgrade of Docker's package, from Debian 12's to Debian 13's, needs no change to hostler.
func TestDockerIsUpgraded(t *testing.T) {
	later, err := debian.PrepareDockerd(t.Context(), slog.New(slog.DiscardHandler))
	check(t, err)
	d := lab.DockerFor(t, lab.DockerOptions{})
	usualPlace(t, d)
	_, err = d.Load(t.Context(), lab.ImageSpec{Names: []string{image}})
	check(t, err)
	id, err := d.Run(t.Context(), lab.DockerContainer{Name: "web", Image: image, Command: lab.ServeFor(time.Second), Ready: "ready", Restart: "always"})
	check(t, err)
	a := startAgentOf(t, "runtimes: auto\nshutdown: {gracePeriod: 20m, gracePeriodCriticalPods: 10m}\n", "docker")
	awaitVersion := func() string {
		t.Helper()
		server, err := d.API.ServerVersion(t.Context(), client.ServerVersionOptions{})
		check(t, err)
		a.await(server.Version+" is reported", func(s api.Status) bool {
			return len(s.Runtimes) == 1 && s.Runtimes[0].Ready && s.Runtimes[0].Version == server.Version &&
				s.Node != nil && s.Node.Status.NodeInfo.ContainerRuntimeVersion == "docker://"+server.Version
		})
		return server.Version
	}
	before := awaitVersion()

	check(t, d.Upgrade(t.Context(), later))

	if after := awaitVersion(); after == before {
		t.Fatalf("Docker is %s before and after its upgrade", after)
	}
	eventually(t, "what it has started again is listed", func() bool {
		output := a.hostler("ps")
		return strings.Contains(output, "web") && strings.Contains(output, "Running")
	})
	if output := a.hostler("drain", "--all"); !strings.Contains(output, "web") {
		t.Errorf("hostler drain prints %s, want web", output)
	}
	c, err := d.API.ContainerInspect(t.Context(), id, client.ContainerInspectOptions{})
	check(t, err)
	if state := c.Container.State; state.Running || state.ExitCode != 0 {
		t.Errorf("web is %+v, want it to have ended by itself, for good", state)
	}
}
