package podman_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/podman"
)

// patience bounds waits for events that must occur.
const patience = 5 * time.Minute

// manager is a service manager with several units.
type manager struct {
	holdsNothing
	units        map[string]int // by name, with a process of the unit, or 0
	main         string         // the unit whose main process is a container's monitor, if any
	boots        []string       // units that it starts at boot
	shuttingDown bool           // the host is shutting down
	starts       bool           // whether all units are starting
	once         bool           // whether all units are starting and have Type=oneshot
	fails        error

	timeout time.Duration // stop timeout of all units

	mu      sync.Mutex
	stopped []string
	stop    func()
	waits   int    // after how many requests the stop of a unit begins; never if negative
	turn    func() // called when it begins
}

// holdsNothing is part of a service manager that Podman does not use: it stops containers by their
// units.
type holdsNothing struct{}

func (holdsNothing) HoldStop(context.Context, string, time.Duration, func(context.Context, []string) error) (local.Hold, error) {
	return nil, nil
}

func (m *manager) MainOf(_ context.Context, pid int) (string, error) {
	if m.fails != nil || m.main == "" || m.units[m.main] != pid {
		return "", m.fails
	}
	return m.main, nil
}

func (m *manager) UnitStops(context.Context, string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.waits != 0 {
		m.waits--
		return false, nil
	}
	if m.turn != nil {
		m.turn()
	}
	return true, nil
}

func (m *manager) StopUnit(ctx context.Context, name string, pid int, before func(context.Context, []string) error) (bool, error) {
	own, there := m.units[name]
	if m.fails != nil || !there || pid != 0 && pid != own {
		return false, m.fails
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := before(ctx, []string{name}); err != nil {
		return false, err
	}
	m.stopped = append(m.stopped, fmt.Sprint(name, " ", pid))
	if m.stop != nil {
		m.stop()
	}
	return true, nil
}

func (m *manager) Units(_ context.Context, names ...string) (map[string]local.Unit, error) {
	if m.fails != nil {
		return nil, m.fails
	}
	known := map[string]local.Unit{}
	for _, name := range names {
		if pid, there := m.units[name]; there {
			unit := local.Unit{AtBoot: slices.Contains(m.boots, name), Runs: true, Starts: m.starts, Instance: strings.Contains(name, "@"), Oneshot: m.once, TimeoutStop: m.timeout}
			if name == m.main {
				unit.Main = pid
			}
			known[name] = unit
		}
	}
	return known, nil
}

func (m *manager) Stopping(context.Context) (bool, error) { return m.shuttingDown, nil }

// sent returns the stops and the signals in calls.
func sent(calls []string) (sent []string) {
	for _, c := range calls {
		if strings.Contains(c, "/kill ") {
			sent = append(sent, c[strings.LastIndex(c, " ")+1:])
		} else if strings.HasSuffix(c, "/stop") {
			sent = append(sent, "stop")
		}
	}
	return sent
}

// running returns a server with one container. It ends when it is sent a stop signal or, if it is
// stubborn, when it is killed.
func running(t *testing.T, labels, infra object, stubborn bool) (s *server, end func()) {
	t.Helper()
	s = newServer(t, map[string]any{"/libpod/containers/a/json": inspected("running", nil)})
	list := []any{listed("a", "running", 1, object{"Labels": labels})}
	if infra != nil {
		list[0].(object)["Pod"] = "p"
		list = append(list, listed("i", "running", 1, object{"Labels": infra, "IsInfra": true, "Pod": "p"}))
		s.set("/libpod/pods/json", []any{object{"Id": "p", "Name": "p"}})
		holds := inspected("running", nil)
		holds["State"].(object)["ConmonPid"] = 4712
		s.set("/libpod/containers/i/json", holds)
	}
	s.set("/libpod/containers/json", list)
	ended := make(chan struct{})
	end = sync.OnceFunc(func() {
		s.set("/libpod/containers/a/json", inspected("exited", nil))
		close(ended)
	})
	wait := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		select {
		case <-ended:
			fmt.Fprint(w, s.exitCode)
		case <-req.Context().Done():
		}
	})
	s.set("/libpod/containers/a/wait", wait)
	s.set("/libpod/containers/a/stop", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !stubborn {
			end()
		}
		wait(w, req)
	}))
	s.set("/containers/a/kill", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("signal") == "SIGKILL" {
			end()
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	return s, end
}

func TestAContainerOfAUnitIsStoppedByIt(t *testing.T) {
	unit := object{"PODMAN_SYSTEMD_UNIT": "web.service"}
	const web, pod = "web.service", "pod.service"
	ofPod := object{"PODMAN_SYSTEMD_UNIT": pod}
	cases := []struct {
		name          string
		labels, infra object
		in            string // service in whose cgroup its monitor is
		units         map[string]int
		ends          bool // the container ends when its unit is stopped
		stubborn      bool
		grace         time.Duration
		stopped       []string
		sent          []string
	}{
		{"its unit ends it", unit, nil, web, map[string]int{web: 4711}, true, false, patience, []string{"web.service 4711"}, nil},
		{"its unit takes longer than its grace", unit, nil, web, map[string]int{web: 4711}, false, true, 20 * time.Millisecond, []string{"web.service 4711"}, []string{"SIGKILL"}},
		{"it has no grace", unit, nil, web, map[string]int{web: 4711}, false, true, 0, []string{"web.service 4711"}, []string{"SIGKILL"}},
		{"its unit does not run", unit, nil, web, nil, false, false, patience, nil, []string{"stop"}},
		{"its image claims another's unit", unit, nil, "", map[string]int{web: 1}, false, false, patience, nil, []string{"stop"}},
		{"it is of none", nil, nil, "", map[string]int{web: 4711}, false, false, patience, nil, []string{"stop"}},
		{"its pod is a unit's", nil, ofPod, "", map[string]int{pod: 4712}, true, false, patience, []string{"pod.service 4712"}, nil},
		{"its pod's image claims another's unit", nil, unit, "", map[string]int{web: 99}, false, false, patience, nil, []string{"stop"}},
		{"its pod claims what is no service", nil, object{"PODMAN_SYSTEMD_UNIT": "user.slice"}, "", map[string]int{"user.slice": 4712}, false, false, patience, nil, []string{"stop"}},
		{"it claims what is no name", object{"PODMAN_SYSTEMD_UNIT": "a\x00.service"}, nil, "", nil, false, false, patience, nil, []string{"stop"}},
		{"its pod is a unit's, and it is another's", unit, ofPod, web, map[string]int{web: 4711, pod: 99}, true, false, patience, []string{"web.service 4711"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s, end := running(t, c.labels, c.infra, c.stubborn)
			m := &manager{units: c.units}
			if c.ends {
				m.stop = end
			}
			r := s.openIn(t, withMonitor(t, "conmon -c a", "0::/"+cmp.Or(c.in, "machine.slice/libpod-conmon-a.scope")+"\n"), m)
			pods, err := r.Pods(t.Context())
			check(t, err)
			listed := pods[0].Containers[0]
			var reported []string
			ctx := runtime.WithUnitStops(t.Context(), func(_ context.Context, names []string) error { reported = append(reported, names...); return nil })
			err = r.StopContainer(ctx, listed, c.grace)
			sent := sent(s.asked())
			if killed := slices.Contains(sent, "SIGKILL") && listed.Unit != ""; errors.Is(err, runtime.ErrKilled) != killed || err != nil && !killed {
				t.Fatalf("StopContainer() = %v, want it to say that it was killed = %t", err, killed)
			}
			if !slices.Equal(m.stopped, c.stopped) || !slices.Equal(sent, c.sent) {
				t.Errorf("StopContainer() stopped units %v and sent %v, want %v and %v", m.stopped, sent, c.stopped, c.sent)
			}
			// The same units must have been reported.
			for i, unit := range c.stopped {
				if len(reported) != len(c.stopped) || !strings.HasPrefix(unit, reported[i]+" ") {
					t.Errorf("StopContainer() reported %v before it stopped %v", reported, m.stopped)
				}
			}
			// The unit in the list must be the one that was stopped.
			if stops := len(m.stopped) > 0; stops != (listed.Unit != "") || stops && !strings.HasPrefix(m.stopped[0], listed.Unit+" ") {
				t.Errorf("the list reports %q, and StopContainer() stopped %v", listed.Unit, m.stopped)
			}
		})
	}
}

func TestAKillByItsUnitIsReported(t *testing.T) {
	t.Parallel()
	const soon = 50 * time.Millisecond
	for name, c := range map[string]unitKill{
		"Podman kills it, as its unit has it":    {timeout: patience, code: 137, ends: soon, want: true},
		"systemd kills it with its monitor":      {timeout: 1, ends: soon, want: true},
		"it ends in its time":                    {timeout: patience, ends: soon},
		"its unit has no time-out":               {code: 1, ends: soon},
		"it ends in its time, its turn was late": {timeout: 3 * time.Second, turn: 3100 * time.Millisecond, ends: soon},
		"its unit is over, and does nothing":     {timeout: 1, code: 137, over: true, ends: soon},
		"it has ended before":                    {timeout: 1, code: 137, ends: -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.stop(t)
			for c.turn > 0 && errors.Is(err, runtime.ErrKilled) && c.timeout < patience { // on a busy machine, its end was late
				c.timeout, c.turn = 2*c.timeout, 2*c.turn
				err = c.stop(t)
			}
			if errors.Is(err, runtime.ErrKilled) != c.want || err != nil && !c.want {
				t.Errorf("StopContainer() = %v, want it to say that it was killed = %t", err, c.want)
			}
		})
	}
}

// unitKill is a case of a container that its unit may kill.
type unitKill struct {
	timeout time.Duration // stop timeout of the unit
	code    int           // exit code of the container
	turn    time.Duration
	ends    time.Duration // time of its end after the stop begins; before the request if negative
	over    bool          // the unit has ended since the list
	want    bool
}

// stop returns the error of StopContainer.
func (c unitKill) stop(t *testing.T) error {
	t.Helper()
	s, end := running(t, object{"PODMAN_SYSTEMD_UNIT": "web.service"}, nil, true)
	s.exitCode = c.code
	m := &manager{units: map[string]int{"web.service": 4711}, timeout: c.timeout}
	ends := func() { time.AfterFunc(c.ends, end) }
	if m.turn = ends; c.turn > 0 {
		m.waits = -1
		time.AfterFunc(c.turn, func() { m.mu.Lock(); defer m.mu.Unlock(); m.waits = 0 })
	}
	r := s.openIn(t, withMonitor(t, "conmon -c a", "0::/system.slice/web.service\n"), m)
	pods, err := r.Pods(t.Context())
	check(t, err)
	if c.over {
		m.units = nil
		ends()
	}
	grace := patience
	if c.ends < 0 {
		end()
		grace = 0
	}
	exit := make(chan int32, 9)
	ctx := runtime.WithExit(t.Context(), func(code int32) { exit <- code })
	err = r.StopContainer(ctx, pods[0].Containers[0], grace)
	if ended := c.ends > 0 && !c.over; ended && (len(exit) == 0 || <-exit != int32(c.code)) {
		t.Errorf("StopContainer() reports no exit code, or another one, want %d", c.code)
	}
	if sent := sent(s.asked()); slices.Contains(sent, "SIGKILL") {
		t.Errorf("StopContainer() sent %v, want no kill of hostler's", sent)
	}
	return err
}

// If it were killed, its unit would fail.
func TestAnInfraContainerOfAUnitIsLeftToTheUnit(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{"the unit ends it": nil, "the unit does not": {"SIGKILL"}} {
		t.Run(name, func(t *testing.T) {
			grace := patience
			if want != nil {
				grace = 2 * time.Second // half of it is for the unit
			}
			for ; !stopsInfra(t, grace, want); grace *= 2 {
				t.Logf("StopPod() has not ended in %v: this machine is busy", grace)
				if grace > patience/2 {
					t.Fatal("StopPod() does not end in time")
				}
			}
		})
	}
}

// stopsInfra stops a pod of which only the infra container is left. It returns false if that did not end in time.
func stopsInfra(t *testing.T, grace time.Duration, want []string) bool {
	t.Helper()
	s, end := running(t, nil, nil, false)
	infra := listed("a", "running", 1, object{"Labels": object{"PODMAN_SYSTEMD_UNIT": "pod.service"}, "IsInfra": true, "Pod": "p"})
	s.set("/libpod/containers/json", []any{infra})
	s.set("/libpod/pods/json", []any{object{"Id": "p", "Name": "p"}})
	m := &manager{units: map[string]int{"pod.service": 4711}}
	if want == nil {
		m.stop = func() { time.AfterFunc(20*time.Millisecond, end) }
	}
	r := s.open(t, m)
	pods, err := r.Pods(t.Context())
	check(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), grace)
	defer cancel()
	var reported []string
	ctx = runtime.WithUnitStops(ctx, func(_ context.Context, names []string) error { reported = append(reported, names...); return nil })
	if err := r.StopPod(ctx, pods[0]); ctx.Err() != nil {
		return false
	} else if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(reported, []string{"pod.service"}) {
		t.Errorf("StopPod() reported %v before it stopped units, want pod.service", reported)
	}
	if sent := sent(s.asked()); !slices.Equal(sent, want) || !slices.Equal(m.stopped, []string{"pod.service 4711"}) {
		t.Errorf("StopPod() stopped units %v and sent %v, want pod.service to be stopped, and %v sent", m.stopped, sent, want)
	}
	return true
}

func TestTheUnitOfAContainerAndItsTimeOut(t *testing.T) {
	const own, ofPod = "container-web.service", "pod.service"
	unit, pod := object{"PODMAN_SYSTEMD_UNIT": own}, object{"PODMAN_SYSTEMD_UNIT": ofPod}
	const never = time.Duration(-1)
	for name, c := range map[string]struct {
		labels, infra object
		main          bool // the monitor is the main process
		timeout       time.Duration
		fails         error
		unit          string
		want          time.Duration
	}{
		"as systemd says": {labels: unit, timeout: time.Minute, unit: own, want: time.Minute},
		"nobody kills it": {labels: unit, unit: own, want: never},
		"its pod's unit":  {infra: pod, timeout: time.Minute, unit: ofPod, want: time.Minute},
		"it says of none, and is the main process":      {main: true, timeout: time.Minute, unit: own, want: time.Minute},
		"it says of none, and is another process of it": {timeout: time.Minute, want: never},
		"its image claims another's unit":               {labels: pod, timeout: time.Minute, want: never},
		"its unit is not there":                         {labels: object{"PODMAN_SYSTEMD_UNIT": "gone.service"}, timeout: time.Minute, want: never},
		"systemd does not answer":                       {labels: unit, timeout: time.Minute, fails: errors.New("systemd does not answer"), want: never},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := running(t, c.labels, c.infra, false)
			m := &manager{units: map[string]int{own: 4711, ofPod: 4712}, timeout: c.timeout, fails: c.fails}
			if c.main {
				m.main = own
			}
			proc := withMonitor(t, "conmon -c a", inService)
			pods, err := s.openIn(t, proc, m).Pods(t.Context())
			check(t, err)
			web, grace := pods[0].Containers[0], never
			if web.UnitGrace != nil {
				grace = *web.UnitGrace
			}
			if web.Unit != c.unit || grace != c.want {
				t.Errorf("its unit is %q and its time-out %v, want %q and %v", web.Unit, grace, c.unit, c.want)
			}
			if c.unit != "" && web.Restart != runtime.RestartByUnit {
				t.Errorf("%v starts it again, want its unit", web.Restart)
			}
		})
	}
}

// inService is the cgroup of a service's process.
const inService = "0::/system.slice/container-web.service\n"

// withMonitor returns a proc filesystem in which process 4711 has that command line and cgroup.
// Process 4712 is the monitor of container i, in pod.service.
func withMonitor(t *testing.T, command, cgroup string) (proc string) {
	t.Helper()
	proc = t.TempDir()
	check(t, os.Mkdir(filepath.Join(proc, "4711"), 0o755))
	for _, real := range []string{"net", "self"} { // for listening sockets and mounts
		check(t, os.Symlink(filepath.Join("/proc", real), filepath.Join(proc, real)))
	}
	check(t, os.Mkdir(filepath.Join(proc, "4712"), 0o755))
	for name, text := range map[string]string{
		"4711/cmdline": strings.ReplaceAll(command, " ", "\x00") + "\x00", "4711/cgroup": cgroup,
		"4711/status": "Uid:\t0\t0\t0\t0\n", "4712/status": "Uid:\t0\t0\t0\t0\n",
		"4712/cmdline": "conmon\x00-c\x00i\x00", "4712/cgroup": "0::/system.slice/pod.service\n",
	} {
		check(t, os.WriteFile(filepath.Join(proc, name), []byte(text), 0o644))
	}
	return proc
}

// `podman generate systemd` without --new creates a unit for an existing container, which does not
// name the unit.
func TestAContainerWhoseMonitorIsAUnitsMainProcessIsStoppedByIt(t *testing.T) {
	for name, c := range map[string]struct {
		labels  object
		monitor string // command line of the process that was the monitor
		cgroup  string // of that process; a service's if empty
		fails   error
		stopped []string
		sent    []string
	}{
		"it says of none":                  {nil, "/usr/bin/conmon -c a", "", nil, []string{"container-web.service 4711"}, nil},
		"it says of another one":           {object{"PODMAN_SYSTEMD_UNIT": "web.service"}, "/usr/bin/conmon -c a", "", nil, []string{"container-web.service 4711"}, nil},
		"hierarchies of version 1":         {nil, "/usr/bin/conmon -c a", "3:pids:/\n1:name=systemd:/system.slice/container-web.service\n0::/\n", nil, []string{"container-web.service 4711"}, nil},
		"its unit has groups of its own":   {nil, "/usr/bin/conmon -c a", "0::/system.slice/container-web.service/supervisor\n", nil, []string{"container-web.service 4711"}, nil},
		"its monitor is in a scope":        {nil, "/usr/bin/conmon -c a", "0::/machine.slice/libpod-conmon-a.scope\n", nil, nil, []string{"stop"}},
		"its monitor is no more":           {nil, "nginx -c a", "", nil, nil, []string{"stop"}},
		"its monitor is another one's":     {nil, "/usr/bin/conmon -c b", "", nil, nil, []string{"stop"}},
		"systemd does not report the unit": {nil, "/usr/bin/conmon -c a", "", errors.New("systemd does not answer"), nil, []string{"stop"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, end := running(t, c.labels, nil, false)
			m := &manager{units: map[string]int{"container-web.service": 4711, "web.service": 1}, main: "container-web.service", fails: c.fails, stop: end}
			r := s.openIn(t, withMonitor(t, c.monitor, cmp.Or(c.cgroup, inService)), m)
			web := runtime.Container{ID: "a", Labels: map[string]string{}}
			for k, v := range c.labels {
				web.Labels[k] = v.(string)
			}
			check(t, r.StopContainer(t.Context(), web, patience))
			if sent := sent(s.asked()); !slices.Equal(m.stopped, c.stopped) || !slices.Equal(sent, c.sent) {
				t.Errorf("StopContainer() stopped units %v and sent %v, want %v and %v", m.stopped, sent, c.stopped, c.sent)
			}
		})
	}
}

// Seen on a busy host: Podman's answer comes too late, and is known already.
func TestAKnownMonitorIsNotQueriedAgain(t *testing.T) {
	s, end := running(t, nil, nil, false)
	m := &manager{units: map[string]int{"container-web.service": 4711}, main: "container-web.service", stop: end}
	proc := withMonitor(t, "conmon -c a", inService)
	r := s.openIn(t, proc, m)
	pods, err := r.Pods(t.Context())
	check(t, err)
	s.set("/libpod/containers/a/json", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		m.mu.Lock()
		stopped := len(m.stopped) > 0
		m.mu.Unlock()
		if !stopped {
			<-req.Context().Done()
			return
		}
		check(t, json.NewEncoder(w).Encode(inspected("exited", nil)))
	}))
	check(t, r.StopContainer(t.Context(), pods[0].Containers[0], patience))
	if sent := sent(s.asked()); len(m.stopped) != 1 || len(sent) > 0 {
		t.Errorf("StopContainer() stopped units %v and sent %v, want the unit stopped, and nothing sent", m.stopped, sent)
	}
}

// If systemd or Podman is slow to return a container's unit, the container must not be killed
// without its stop signal.
func TestAContainerWithoutAUnitLabelKeepsItsGrace(t *testing.T) {
	t.Parallel()
	for name, units := range map[string]local.Units{"it is of none": &manager{}, "systemd is slow": slowManager{&manager{}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var err error
			var signals []string
			for grace := 500 * time.Millisecond; grace < patience; grace *= 2 { // on a busy machine, the stop is sent too late
				s, _ := running(t, nil, nil, true)
				r := s.openWith(t, podman.Options{Timeouts: local.Timeouts{Query: 2 * grace}, Units: units, ProcRoot: withMonitor(t, "conmon -c a", inService)})
				err = r.StopContainer(t.Context(), runtime.Container{ID: "a"}, grace)
				if signals = sent(s.asked()); err == nil && slices.Equal(signals, []string{"stop", "SIGKILL"}) {
					return
				}
			}
			t.Errorf("StopContainer() = %v, and sent %v, want a stop, and a kill after the grace", err, signals)
		})
	}
}

// slowManager does not return the service of a process.
type slowManager struct{ *manager }

func (slowManager) MainOf(ctx context.Context, _ int) (string, error) {
	<-ctx.Done()
	return "", ctx.Err()
}

func TestAContainerOfAUnitIsNotStoppedWithoutSystemd(t *testing.T) {
	s, _ := running(t, object{"PODMAN_SYSTEMD_UNIT": "web.service"}, nil, false)
	fails := errors.New("systemd does not answer")
	r := s.open(t, &manager{fails: fails})
	err := r.StopContainer(t.Context(), runtime.Container{ID: "a", Labels: map[string]string{"PODMAN_SYSTEMD_UNIT": "web.service"}}, patience)
	if sent := sent(s.asked()); !errors.Is(err, fails) || len(sent) > 0 {
		t.Errorf("StopContainer() = %v, sent %v, want %v and nothing sent", err, sent, fails)
	}
}

// A container with --rm may be removed while Podman still stops it. Then it has stopped, and a
// caller that waited knows its exit code.
func TestAContainerThatIsRemovedWhileItIsStoppedHasStopped(t *testing.T) {
	for name, status := range map[string]int{"not found": http.StatusNotFound, "an error of its own": http.StatusInternalServerError} {
		t.Run(name, func(t *testing.T) {
			s, end := running(t, nil, nil, false)
			s.exitCode = 3
			now := inspected("running", nil)
			now["HostConfig"] = object{"AutoRemove": true}
			s.set("/libpod/containers/a/json", now)
			s.set("/libpod/containers/a/stop", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				gone := func(w http.ResponseWriter) {
					w.WriteHeader(status)
					fmt.Fprint(w, `{"cause":"no such container","message":"container a does not exist in database: no such container","response":500}`)
				}
				end()
				s.set("/libpod/containers/a/json", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { gone(w) }))
				gone(w)
			}))
			r := s.open(t, nil)
			pods, err := r.Pods(t.Context())
			check(t, err)
			code := int32(-1)
			ctx := runtime.WithExit(t.Context(), func(c int32) { code = c })
			if err := r.StopContainer(ctx, pods[0].Containers[0], patience); err != nil || code != 3 {
				t.Errorf("StopContainer() = %v, and reported exit code %d, want 3", err, code)
			}
		})
	}
}

// Podman's service dies after it has sent the stop signal, and answers again only after a while. Some programs exit at once
// on a second signal.
func TestTheStopSignalIsSentOnceIfPodmanDies(t *testing.T) {
	s, end := running(t, nil, nil, true)
	queries := 0
	s.set("/libpod/containers/a/stop", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		s.set("/libpod/containers/a/json", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if queries++; queries <= 3 {
				panic(http.ErrAbortHandler)
			}
			_ = json.NewEncoder(w).Encode(inspected("stopping", nil))
			end()
		}))
		panic(http.ErrAbortHandler)
	}))
	r := s.open(t, nil)
	err := r.StopContainer(t.Context(), runtime.Container{ID: "a"}, patience)
	if sent := sent(s.asked()); err != nil || !slices.Equal(sent, []string{"stop"}) {
		t.Errorf("StopContainer() = %v, sent %v, want one request to stop", err, sent)
	}
}

func TestACancelledStopKillsNothing(t *testing.T) {
	s, _ := running(t, object{"PODMAN_SYSTEMD_UNIT": "web.service"}, nil, true)
	ctx, cancel := context.WithCancel(t.Context())
	r := s.open(t, &manager{units: map[string]int{"web.service": 4711}, stop: cancel})
	err := r.StopContainer(ctx, runtime.Container{ID: "a", Labels: map[string]string{"PODMAN_SYSTEMD_UNIT": "web.service"}}, patience)
	if sent := sent(s.asked()); !errors.Is(err, context.Canceled) || len(sent) > 0 {
		t.Errorf("StopContainer() = %v, sent %v, want %v and nothing sent", err, sent, context.Canceled)
	}
}

// systemd first stops units that are ordered after a unit. Until then, the unit's container gets no
// stop signal.
func TestTheGraceOfAContainerBeginsWithTheStopOfItsUnit(t *testing.T) {
	t.Parallel()
	killed := []string{"not tried"}
	for seconds := 1; len(killed) > 0 && seconds <= 32; seconds *= 2 { // on a busy machine, its end may be seen too late
		s, end := running(t, object{"PODMAN_SYSTEMD_UNIT": "web.service"}, nil, true)
		r := s.open(t, &manager{units: map[string]int{"web.service": 4711}, waits: 10 * seconds, turn: end})
		web := runtime.Container{ID: "a", Labels: map[string]string{"PODMAN_SYSTEMD_UNIT": "web.service"}}
		if err := r.StopContainer(t.Context(), web, time.Duration(seconds)*time.Second); err != nil && !errors.Is(err, runtime.ErrKilled) {
			t.Fatalf("StopContainer() = %v", err)
		}
		killed = sent(s.asked())
	}
	if len(killed) > 0 {
		t.Errorf("StopContainer() sent %v to a container without a stop signal, want nothing", killed)
	}
}

func TestWaitingForTheStopOfAUnitEndsWithTheContext(t *testing.T) {
	s, _ := running(t, object{"PODMAN_SYSTEMD_UNIT": "web.service"}, nil, true)
	r := s.open(t, &manager{units: map[string]int{"web.service": 4711}, waits: -1})
	late := errors.New("the phase is over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, late)
	defer cancel()
	web := runtime.Container{ID: "a", Labels: map[string]string{"PODMAN_SYSTEMD_UNIT": "web.service"}}
	if err := r.StopContainer(ctx, web, patience); !errors.Is(err, late) {
		t.Errorf("StopContainer() = %v, want %v", err, late)
	}
}

// Starting a service would cancel a shutdown that systemd has begun.
func TestPodmanIsNotStartedDuringAShutdown(t *testing.T) {
	s := newServer(t, fleet())
	proc := t.TempDir()
	hold := func(pid string) {
		t.Helper()
		check(t, os.MkdirAll(filepath.Join(proc, pid, "fd"), 0o755))
		check(t, os.Symlink("socket:[4711]", filepath.Join(proc, pid, "fd", "3")))
		check(t, os.WriteFile(filepath.Join(proc, pid, "cgroup"), []byte("0::/system.slice/podman.service\n"), 0o644))
	}
	check(t, os.Mkdir(filepath.Join(proc, "net"), 0o755))
	check(t, os.WriteFile(filepath.Join(proc, "net", "unix"), []byte("0: 00000002 00000000 00010000 0001 01 4711 "+s.socket+"\n"), 0o644))
	hold("1")
	open := func(shuttingDown bool) *podman.Runtime {
		t.Helper()
		return s.openIn(t, proc, &manager{shuttingDown: shuttingDown})
	}
	if _, err := open(true).Pods(t.Context()); !errors.Is(err, runtime.ErrUnavailable) || len(s.asked()) > 0 {
		t.Errorf("Pods() of an idle daemon at a shutdown = %v, want %v and no request", err, runtime.ErrUnavailable)
	}
	_, err := open(false).Pods(t.Context())
	check(t, err)
	hold("2") // its service
	_, err = open(true).Pods(t.Context())
	check(t, err)
}
