//go:build integration && soak

package e2e_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/test/etcd"
)

const (
	soakHosts   = 50
	soakServers = 3
	soakSlots   = 3
	// soakPace is that of a default fleet.
	soakPace = "lease: {duration: 40s, renewInterval: 10s}\nstatus: {updateInterval: 10s}\n"
	soakRule = "nodeLifecycle: {evictionRate: 1}\nreboots: {groups: {default: {slots: 3, oneZoneAtATime: true, maxUnavailable: 4%}}}\ncontrollers: [node-lifecycle, eviction, garbage-collector, heartbeats, reboots]\n"
	// soakQuota is small, so that a fault can fill it.
	soakQuota = "--quota-backend-bytes=67108864"
)

// soak is a fleet of real parts that a random sequence of faults disturbs. One goroutine, that of the test, makes all
// faults.
type soak struct {
	etcdFleet
	*rand.Rand
	hosts   []*soakHost
	servers []*soakServer
	truth   *soakTruth
	backup  string
	events  []soakEvent
	busy    map[string]bool // targets of faults that have not ended
	counts  map[string]int  // faults, by name
	reboots int
}

// soakHost is an agent behind a link of its own.
type soakHost struct {
	*rebooter
	link   *link
	bootAt time.Time // when it boots again; zero while it is up
}

// soakServer is a server behind a link of its own.
type soakServer struct {
	*server
	link *link
}

// soakEvent is the beginning or the end of a fault.
type soakEvent struct {
	at   time.Time
	what string
	do   func()
}

// soakFault is a kind of fault. begin returns its target, which has no other fault meanwhile, what begins it and what
// ends it; an empty target if it cannot happen now.
type soakFault struct {
	name   string
	weight int
	most   time.Duration
	begin  func(s *soak) (target string, begin, end func())
}

// TestSoak disturbs three servers, three members of etcd and 50 hosts for HOSTLER_SOAK, and checks from the outside
// that nobody is harmed, and that the fleet recovers.
func TestSoak(t *testing.T) {
	lasts, err := time.ParseDuration(os.Getenv("HOSTLER_SOAK"))
	check(t, err)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	s := &soak{
		etcdFleet: newFleet(t, etcd.Options{Members: 3, Apart: true, Disks: true, Flags: []string{soakQuota}}), Rand: rand.New(rand.NewPCG(seed, 1)),
		backup: filepath.Join(t.TempDir(), "backup.db"), busy: map[string]bool{}, counts: map[string]int{},
	}
	s.truth = observeSoak(s)
	for i := range soakServers {
		l := s.newLink()
		srv := startServer(t, fmt.Sprintf("store: {type: etcd, etcd: {endpoints: [%s]}}\n%s", l.endpoints(), soakRule))
		s.servers = append(s.servers, &soakServer{srv, l})
		t.Logf("server %d runs", i+1)
	}
	for i := range soakHosts {
		l, name := s.newLink(), fmt.Sprintf("h%02d", i+1)
		settings := fmt.Sprintf("controlPlane: {type: etcd, etcd: {endpoints: [%s]}}\nnode: {name: %s, labels: {topology.kubernetes.io/zone: %s}}\n%s", l.endpoints(), name, soakZone(name), soakPace)
		s.hosts = append(s.hosts, &soakHost{rebooter: newRebooter(t, name, settings), link: l})
	}
	s.recovered("the fleet is up")
	check(t, s.Backup(t.Context(), s.backup))
	memory := s.memory()
	s.truth.begin()
	for end := time.Now().Add(lasts); time.Now().Before(end) && !t.Failed(); time.Sleep(200 * time.Millisecond) {
		s.tick(end)
	}
	s.endAll()
	s.recovered("the fleet has recovered")
	for i, m := range s.memory() {
		t.Logf("server %d: %d KiB of memory before, %d KiB after", i+1, memory[i], m)
	}
	s.truth.summarize(t)
	for _, name := range slices.Sorted(maps.Keys(s.counts)) {
		t.Logf("%4d %s", s.counts[name], name)
	}
	t.Logf("%4d reboots", s.reboots)
}

// tick makes what is due: ends of faults, boots, and sometimes a new fault.
func (s *soak) tick(end time.Time) {
	now := time.Now()
	for i := 0; i < len(s.events); {
		if e := s.events[i]; !now.Before(e.at) {
			s.events = slices.Delete(s.events, i, i+1)
			s.t.Log(now.UTC().Format("15:04:05"), e.what)
			e.do()
			continue
		}
		i++
	}
	s.boots()
	if len(s.busy) < 8 && s.IntN(15) == 0 && now.Before(end) {
		s.fault()
	}
}

// boots lets hosts go down that have run reboot.command, and boot a while later.
func (s *soak) boots() {
	for _, h := range s.hosts {
		switch _, err := os.Stat(h.requested); {
		case !h.bootAt.IsZero() && time.Now().After(h.bootAt):
			h.bootAt = time.Time{}
			h.boot()
			s.truth.up(h.name)
			s.reboots++
		case err == nil && h.bootAt.IsZero() && !s.busy[h.name]:
			s.truth.rebooting(h.name)
			s.truth.down(h.name)
			h.dies()
			h.bootAt = time.Now().Add(time.Duration(5+s.IntN(60)) * time.Second)
		}
	}
}

// fault begins a random fault.
func (s *soak) fault() {
	all := 0
	for _, f := range soakFaults {
		all += f.weight
	}
	n := s.IntN(all)
	for _, f := range soakFaults {
		if n -= f.weight; n >= 0 {
			continue
		}
		target, begin, end := f.begin(s)
		if target == "" || s.busy[target] {
			return
		}
		lasts := time.Duration(1 + s.Int64N(int64(f.most)))
		what := fmt.Sprintf("%s, %s", f.name, target)
		s.t.Logf("%s %s for %v", time.Now().UTC().Format("15:04:05"), what, lasts.Round(time.Second))
		s.busy[target] = true
		s.counts[f.name]++
		begin()
		s.events = append(s.events, soakEvent{time.Now().Add(lasts), "ended: " + what, func() {
			delete(s.busy, target)
			end()
		}})
		return
	}
}

// endAll ends all faults now.
func (s *soak) endAll() {
	for _, e := range s.events {
		s.t.Log(time.Now().UTC().Format("15:04:05"), e.what)
		e.do()
	}
	s.events = nil
}

// soakFaults are all kinds of faults.
var soakFaults = []soakFault{
	{"host killed", 8, 3 * time.Minute, onHost((*soakHost).dies, (*soakHost).start)},
	{"host suspended", 6, 3 * time.Minute, onHost(func(h *soakHost) { h.signal(syscall.SIGSTOP) }, func(h *soakHost) { h.signal(syscall.SIGCONT) })},
	{"host cut off", 8, 3 * time.Minute, onHost(func(h *soakHost) { h.link.cut() }, func(h *soakHost) { h.link.heal() })},
	{"agent restarted", 8, time.Second, func(s *soak) (string, func(), func()) {
		h := s.anyHost()
		return h.free(), h.dies, h.start
	}},
	{"reboot requested", 30, time.Second, func(s *soak) (string, func(), func()) {
		h := s.anyHost()
		return h.free(), func() { h.hostler("reboot", "--reason", "soak") }, func() {}
	}},
	{"slot released by a person", 3, time.Second, func(s *soak) (string, func(), func()) {
		return "slots", func() { s.release() }, func() {}
	}},
	{"Node deleted by a person", 2, time.Second, func(s *soak) (string, func(), func()) {
		h := s.anyHost()
		return h.free(), func() { s.truth.deleted(h.name); s.try("del", "/hostler/nodes/"+h.name) }, func() { s.truth.up(h.name) }
	}},
	{"server killed", 6, time.Minute, onServer(func(v *soakServer) { v.end(syscall.SIGKILL) }, func(v *soakServer) { v.launch() })},
	{"server suspended", 6, 2 * time.Minute, onServer(func(v *soakServer) { _ = v.cmd.Process.Signal(syscall.SIGSTOP) }, func(v *soakServer) { _ = v.cmd.Process.Signal(syscall.SIGCONT) })},
	{"server cut off", 6, 2 * time.Minute, onServer(func(v *soakServer) { v.link.cut() }, func(v *soakServer) { v.link.heal() })},
	{"etcd member killed", 5, time.Minute, onMember(func(m *etcd.Member) error { return m.Kill() }, func(m *etcd.Member) error { return m.Start() })},
	{"etcd member suspended", 5, time.Minute, onMember(func(m *etcd.Member) error { return m.Pause() }, func(m *etcd.Member) error { return m.Continue() })},
	{"etcd member cut off", 5, time.Minute, onMember((*etcd.Member).Cut, (*etcd.Member).Restore)},
	{"etcd disk blocked", 3, 30 * time.Second, onMember((*etcd.Member).Freeze, (*etcd.Member).Thaw)},
	{"all of etcd suspended", 3, 90 * time.Second, func(s *soak) (string, func(), func()) {
		return "etcd", func() { s.truth.shaken(); s.each((*etcd.Member).Pause) }, func() { s.each(func(m *etcd.Member) error { return m.Continue() }); s.truth.shaken() }
	}},
	{"etcd full", 1, 90 * time.Second, func(s *soak) (string, func(), func()) {
		return "etcd", func() { s.truth.shaken(); s.fill() }, func() { s.empty(); s.truth.shaken() }
	}},
	{"backup", 3, time.Second, func(s *soak) (string, func(), func()) {
		return "etcd", func() {
			file := s.backup + ".new"
			if s.Backup(s.t.Context(), file) == nil {
				check(s.t, os.Rename(file, s.backup))
			}
		}, func() {}
	}},
	{"backup restored", 1, time.Second, func(s *soak) (string, func(), func()) {
		return "etcd", func() {
			check(s.t, s.Restore(s.t.Context(), s.backup))
			s.truth.restored()
		}, func() {}
	}},
}

func (s *soak) anyHost() *soakHost { return s.hosts[s.IntN(len(s.hosts))] }

// free is the name of a host that is up; empty if it is down.
func (h *soakHost) free() string {
	if !h.bootAt.IsZero() {
		return ""
	}
	return h.name
}

// onHost is a fault of a host that is up. It gives no sign of life meanwhile.
func onHost(begin, end func(*soakHost)) func(s *soak) (string, func(), func()) {
	return func(s *soak) (string, func(), func()) {
		h := s.anyHost()
		return h.free(), func() { s.truth.down(h.name); begin(h) }, func() { end(h); s.truth.up(h.name) }
	}
}

func onServer(begin, end func(*soakServer)) func(s *soak) (string, func(), func()) {
	return func(s *soak) (string, func(), func()) {
		i := s.IntN(len(s.servers))
		return fmt.Sprintf("server %d", i+1), func() { s.truth.shaken(); begin(s.servers[i]) }, func() { end(s.servers[i]); s.truth.shaken() }
	}
}

// onMember is a fault of one member of etcd. The others go on.
func onMember(begin, end func(*etcd.Member) error) func(s *soak) (string, func(), func()) {
	return func(s *soak) (string, func(), func()) {
		m := s.Members[s.IntN(len(s.Members))]
		return "etcd", func() { s.truth.shaken(); check(s.t, begin(m)) }, func() { check(s.t, end(m)); s.truth.shaken() }
	}
}

func (s *soak) each(do func(*etcd.Member) error) {
	for _, m := range s.Members {
		check(s.t, do(m))
	}
}

// try runs etcdctl, which may fail.
func (s *soak) try(args ...string) string {
	out, err := s.Ctl(s.t.Context(), args...)
	if err != nil {
		s.t.Logf("etcdctl %s: %.200v", strings.Join(args[:min(2, len(args))], " "), err)
	}
	return out
}

// fill stores data until etcd takes no more.
func (s *soak) fill() {
	for i := range 100 {
		if err := s.Put(s.t.Context(), fmt.Sprint("/filler/", i), strings.Repeat("x", 1<<20)); err != nil {
			return
		}
	}
}

// empty makes space in etcd again.
func (s *soak) empty() {
	s.try("del", "--prefix", "/filler/")
	revision := strings.TrimPrefix(s.revision(), `"revision":`)
	s.try("compact", revision)
	for _, m := range s.Members {
		if _, err := s.At(s.t.Context(), m, "defrag"); err != nil {
			s.t.Logf("defrag: %v", err)
		}
	}
	s.try("alarm", "disarm")
}

// release frees the slot of a host that is down.
func (s *soak) release() {
	for _, h := range s.hosts {
		if h.bootAt.IsZero() {
			continue
		}
		for i, v := range s.servers {
			if s.busy[fmt.Sprintf("server %d", i+1)] {
				continue
			}
			s.truth.excused(h.name)
			command(s.t, nil, "fleet", "slots", "release", h.name, "--group", "default", "--reason", "soak", "--socket", v.socket())
			return
		}
	}
}

// recovered waits until all hosts are well, and nobody waits for a reboot.
func (s *soak) recovered(what string) {
	s.t.Helper()
	why := ""
	for deadline := time.Now().Add(6 * patience); ; time.Sleep(time.Second) {
		s.boots()
		if why = s.truth.unwell(s.hosts); why == "" {
			s.t.Log(what)
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain until %s: %s", what, why)
		}
	}
}

// memory is the resident memory of each server, in KiB.
func (s *soak) memory() (all []int) {
	for _, v := range s.servers {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.cmd.Process.Pid))
		check(s.t, err)
		n := 0
		for line := range strings.Lines(string(text)) {
			if rest, is := strings.CutPrefix(line, "VmRSS:"); is {
				_, err := fmt.Sscan(rest, &n)
				check(s.t, err)
			}
		}
		all = append(all, n)
	}
	return all
}
