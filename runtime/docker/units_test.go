package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
)

type others = local.Units

// manager is a service manager with one service, whose main process is 7.
type manager struct {
	others // not used by tests
	fails  error
	atBoot bool

	mu      sync.Mutex
	stopped int    // number of requested stops
	stop    func() // what the first stop does; the service has stopped then
}

const shopUnit = "shop.service"

func (m *manager) StopUnit(ctx context.Context, name string, pid int, before func(context.Context, []string) error) (bool, error) {
	if m.fails != nil || name != shopUnit || pid != 0 && pid != 7 {
		return false, m.fails
	}
	if err := before(ctx, []string{name}); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopped++; m.stopped == 1 && m.stop != nil {
		m.stop()
	}
	return true, nil
}

func (m *manager) HoldStop(context.Context, string, time.Duration, func(context.Context, []string) error) (local.Hold, error) {
	return nil, nil
}

func (m *manager) UnitStops(context.Context, string) (bool, error) { return true, nil }

func (m *manager) Units(context.Context, ...string) (map[string]local.Unit, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return map[string]local.Unit{shopUnit: {Runs: m.stopped == 0, AtBoot: m.atBoot}}, m.fails
}

// runBy returns a proc file system with process 7 of the service.
func runBy(t *testing.T, command string) (procRoot string) {
	t.Helper()
	procRoot = t.TempDir()
	addProcess(t, procRoot, "7", command)
	return procRoot
}

// addProcess adds a process of the service.
func addProcess(t *testing.T, procRoot, pid, command string) {
	t.Helper()
	folder := filepath.Join(procRoot, pid)
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"cmdline": strings.ReplaceAll(command, " ", "\x00"), "cgroup": "0::/system.slice/" + shopUnit, "status": "Uid:\t0\t0\t0\t0\n", "comm": "docker\n"} {
		if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"cwd": "/", "exe": "/bin/sh"} { // owned by root
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
}

// one is a Docker with one container, shop, that ends when end is called, or after a signal.
type one struct {
	*server
	mu   sync.Mutex
	over chan struct{}
	code int
}

func (o *one) end(code int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.over:
	default:
		o.code = code
		close(o.over)
	}
}

// state returns "running" or "exited", and the exit code.
func (o *one) state() (string, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	select {
	case <-o.over:
		return "exited", o.code
	default:
		return "running", 0
	}
}

// If other is set, newOne also lists another running container with these labels.
func newOne(t *testing.T, labels object, other bool) *one {
	o := &one{over: make(chan struct{})}
	answer := func(value func() any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(value()) }
	}
	o.server = newServer(t, "1.45", object{
		"/containers/json": answer(func() any {
			state, _ := o.state()
			list := []any{listed("shop", state, labels)}
			if other {
				list = append(list, listed("web", "running", labels))
			}
			return list
		}),
		"/containers/shop/json": answer(func() any {
			c := started(time.Now())
			if state, code := o.state(); state == "exited" {
				c["State"] = object{"Running": false, "ExitCode": code, "FinishedAt": "2026-11-20T11:00:00Z"}
			}
			return c
		}),
		"/containers/web/json": answer(func() any { return started(time.Now()) }),
		"/containers/shop/kill": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			code := 143
			if r.URL.Query().Get("signal") == "SIGKILL" {
				code = 137
			}
			o.end(code)
			done(w, r)
		}),
		"/containers/shop/wait": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.(http.Flusher).Flush()
			select {
			case <-o.over:
				_ = json.NewEncoder(w).Encode(object{"StatusCode": o.code})
			case <-r.Context().Done():
			}
		}),
	})
	return o
}

func TestAServiceIsStoppedOnceItsContainersHaveEnded(t *testing.T) {
	const up = "docker compose up"
	project := object{"com.docker.compose.project": "shop", "com.docker.compose.project.working_dir": "/"}
	for name, test := range map[string]struct {
		command string
		other   bool // another container of the project is running
		exit    int  // exit code when the service is stopped; 0 if the container keeps running
		fails   error
		grace   time.Duration
		unit    string // unit in the list
		signal  string
		stopped bool
		want    error
	}{
		"docker run":            {command: "docker run --name shop nginx", exit: 143, grace: time.Minute, unit: shopUnit, stopped: true},
		"killed by its client":  {command: "docker run --name shop nginx", exit: 137, grace: time.Minute, unit: shopUnit, stopped: true, want: runtime.ErrKilled},
		"left by its client":    {command: "docker attach shop", grace: time.Minute, unit: shopUnit, signal: "SIGTERM", stopped: true},
		"docker run --tty":      {command: "docker run -it --name shop nginx", grace: time.Minute, unit: shopUnit, signal: "SIGTERM", stopped: true},
		"a killed container":    {command: "docker start -a shop", unit: shopUnit, signal: "SIGKILL", stopped: true, want: runtime.ErrKilled},
		"the last of a project": {command: up, grace: time.Minute, unit: shopUnit, signal: "SIGTERM", stopped: true},
		"one of a project":      {command: up, other: true, grace: time.Minute, unit: shopUnit, signal: "SIGTERM"},
		"another client":        {command: "docker run --name other nginx", grace: time.Minute, signal: "SIGTERM"},
		"systemd refuses":       {command: up, fails: errors.New("refused"), grace: time.Minute, unit: shopUnit, signal: "SIGTERM", want: errors.New("refused")},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOne(t, project, test.other)
			units := &manager{atBoot: true, stop: func() {
				if test.exit != 0 {
					s.end(test.exit)
				}
			}}
			r := s.client(t, func(o *docker.Options) { o.Units, o.ProcRoot = units, runBy(t, test.command) })
			pods, err := r.Pods(t.Context())
			if err != nil || len(pods) != 1 {
				t.Fatalf("Pods() = %+v, %v, want one", pods, err)
			}
			c := pods[0].Containers[0]
			if c.Unit != test.unit || (c.Restart == runtime.RestartByUnit) != (test.unit != "") {
				t.Errorf("Pods() has it of unit %q, started again %v, want %q", c.Unit, c.Restart, test.unit)
			}
			units.mu.Lock()
			units.fails = test.fails
			units.mu.Unlock()
			s.asked()
			var reported []string
			ctx := runtime.WithUnitStops(t.Context(), func(_ context.Context, names []string) error {
				if state, _ := s.state(); state == "running" {
					reported = append(reported, names...)
				}
				return nil
			})
			switch err := r.StopContainer(ctx, c, test.grace); {
			case test.want == nil && err != nil, test.want != nil && (err == nil || !errors.Is(err, test.want) && !strings.Contains(err.Error(), test.want.Error())):
				t.Errorf("StopContainer() = %v, want %v", err, test.want)
			}
			if got := strings.Join(signals(s.server), ","); got != strings.TrimSuffix("shop "+test.signal, "shop ") {
				t.Errorf("StopContainer() sent %q, want %q", got, test.signal)
			}
			if stopped := units.stopped > 0; stopped != test.stopped || (len(reported) > 0) != (test.unit != "") {
				t.Errorf("StopContainer() stopped the unit: %t, and reported %v while the container ran, want %t and %q", stopped, reported, test.stopped, test.unit)
			}
		})
	}
}

// An image may have all labels of Compose. One that Compose has built has only the first.
func TestLabelsOfAnImageAttachNoContainerToAService(t *testing.T) {
	built := object{"com.docker.compose.project": "shop"}
	project := object{"com.docker.compose.project": "shop", "com.docker.compose.project.working_dir": "/"}
	for name, test := range map[string]struct {
		image, container object
		unit             string
	}{
		"of Compose":               {nil, project, shopUnit},
		"of an image it has built": {built, project, shopUnit},
		"of the image":             {project, project, ""},
		"of an unknown image":      {object{"a": 1}, project, ""}, // its answer cannot be read
	} {
		for _, command := range []string{"docker compose up", "docker compose -p shop up"} {
			s := newOne(t, test.container, false)
			s.set("/images/sha256:a/json", object{"Id": "sha256:a", "Config": object{"Labels": test.image}})
			r := s.client(t, func(o *docker.Options) { o.Units, o.ProcRoot = &manager{}, runBy(t, command) })
			pods, err := r.Pods(t.Context())
			if err != nil || len(pods) != 1 || pods[0].Containers[0].Unit != test.unit {
				t.Errorf("Pods() with labels %s and %q = %+v, %v, want its unit %q", name, command, pods, err, test.unit)
			}
		}
	}
}

func TestAContainerThatIsFoundByItsNameNeedsNoLabelsOfItsImage(t *testing.T) {
	project := object{"com.docker.compose.project": "shop", "com.docker.compose.project.working_dir": "/"}
	s := newOne(t, project, false)
	s.set("/containers/json", []any{listed("shop", "running", project), listed("web", "running", nil)})
	s.set("/images/sha256:a/json", object{"Id": "sha256:a"}) // its labels cannot be read
	procRoot := runBy(t, "docker compose up")
	addProcess(t, procRoot, "8", "docker run --name web nginx")
	r := s.client(t, func(o *docker.Options) { o.Units, o.ProcRoot = &manager{}, procRoot })
	pods, err := r.Pods(t.Context())
	if err != nil || len(pods) != 2 {
		t.Fatalf("Pods() = %+v, %v, want two", pods, err)
	}
	for _, p := range pods {
		if c := p.Containers[0]; c.Unit != map[string]string{"shop": "", "web": shopUnit}[c.ID] {
			t.Errorf("Pods() has %s of unit %q, want web alone of %s", c.ID, c.Unit, shopUnit)
		}
	}
}

// Docker may answer slowly just after a boot, when the clients of all containers are searched.
func TestEachImageIsQueriedOnceForItsLabels(t *testing.T) {
	project := object{"com.docker.compose.project": "shop", "com.docker.compose.project.working_dir": "/"}
	for command, want := range map[string]int{"docker compose up": 1, "docker attach shop web": 0} {
		s := newOne(t, project, true)
		r := s.client(t, func(o *docker.Options) { o.Units, o.ProcRoot = &manager{}, runBy(t, command) })
		if pods, err := r.Pods(t.Context()); err != nil || pods[0].Containers[0].Unit != shopUnit {
			t.Errorf("Pods() with %q = %+v, %v, want the unit %q", command, pods, err, shopUnit)
		}
		if got := strings.Count(strings.Join(s.asked(), "\n"), "GET /images/"); got != want {
			t.Errorf("%q of two containers: %d queries of their image, want %d", command, got, want)
		}
	}
}

// An image that cannot be read, or has no configuration, costs one query for its containers, and one search of processes,
// in each minute. Its containers have no unit.
func TestAnImageThatCannotBeReadIsNotQueriedForEachList(t *testing.T) {
	project := object{"com.docker.compose.project": "shop", "com.docker.compose.project.working_dir": "/"}
	for name, image := range map[string]any{
		"not readable":            object{"Id": "sha256:a", "Config": object{"Labels": object{"a": 1}}},
		"without a configuration": object{"Id": "sha256:a"},
	} {
		s := newOne(t, project, true)
		s.set("/images/sha256:a/json", image)
		r := s.client(t, func(o *docker.Options) { o.Units, o.ProcRoot = &manager{}, runBy(t, "docker compose up") })
		events := make(chan any)
		s.set("/events", streamOf(events))
		_ = watch(t, r, events) // else each list requests all facts
		for range 3 {
			if pods, err := r.Pods(t.Context()); err != nil || len(pods) != 1 || pods[0].Containers[0].Unit != "" {
				t.Errorf("Pods() with an image %s = %+v, %v, want no unit", name, pods, err)
			}
		}
		if got := strings.Count(strings.Join(s.asked(), "\n"), "GET /images/"); got != 1 {
			t.Errorf("an image %s was queried %d times for three lists, want once", name, got)
		}
	}
}

// A client that has ended, as after a restart of the service, does not count.
func TestAServiceWhoseClientHasEndedIsNotStopped(t *testing.T) {
	s := newOne(t, nil, false)
	units := &manager{}
	root := runBy(t, "docker run --name shop nginx")
	r := s.client(t, func(o *docker.Options) { o.Units, o.ProcRoot = units, root })
	pods, err := r.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(root, "7")); err != nil {
		t.Fatal(err)
	}
	if err := r.StopContainer(t.Context(), pods[0].Containers[0], time.Minute); err != nil {
		t.Errorf("StopContainer() = %v", err)
	}
	if got := signals(s.server); !slices.Equal(got, []string{"shop SIGTERM"}) || units.stopped > 0 {
		t.Errorf("StopContainer() sent %v, and stopped the service %d times, want it to stop the container alone", got, units.stopped)
	}
}

// A service may start its container with one client, and wait for it with another. A list may show
// the container as ended although it has been started by the time it is inspected.
func TestTheClientOfAServiceMayChange(t *testing.T) {
	for name, test := range map[string]struct {
		first string // state in the first lists
		then  []string
	}{
		"another client":             {first: "running", then: []string{"docker start shop", "docker wait shop"}},
		"a later client":             {first: "running", then: []string{"sleep 1", "docker wait shop"}},
		"started during a list":      {first: "exited", then: []string{"docker start -a shop"}},
		"created during a list":      {first: "created", then: []string{"docker run --name shop nginx"}},
		"no process can be listed":   {first: "running", then: []string{"", "docker wait shop"}},
		"a client that starts again": {first: "running", then: []string{"docker start -a shop", "sleep 1", "docker start -a shop"}},
		"it ran before it was found": {first: "exited", then: []string{"sleep 1", "docker wait shop"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newOne(t, nil, false)
			s.set("/containers/json", []any{listed("shop", test.first, nil)})
			root := filepath.Join(t.TempDir(), "proc")
			r := s.client(t, func(o *docker.Options) { o.Units, o.ProcRoot = &manager{}, root })
			events := make(chan any)
			s.set("/events", streamOf(events))
			_ = watch(t, r, events) // else each list requests all facts
			unit := ""
			for _, command := range test.then {
				if err := os.RemoveAll(root); err != nil {
					t.Fatal(err)
				}
				if command != "" {
					if err := os.Rename(runBy(t, command), root); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 {
					pods, err := r.Pods(t.Context())
					if err != nil || len(pods) != 1 {
						t.Fatalf("Pods() = %+v, %v, want one", pods, err)
					}
					unit = pods[0].Containers[0].Unit
					s.set("/containers/json", []any{listed("shop", "running", nil)})
				}
			}
			if unit != shopUnit {
				t.Errorf("the unit is %q, want %q", unit, shopUnit)
			}
		})
	}
}
