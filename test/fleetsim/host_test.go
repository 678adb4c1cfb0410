package fleetsim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/agent/selfdrain"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/status/report"
)

// host is a host of the fleet. It outlives its agents and its boots.
type host struct {
	w      *world
	name   string
	zone   string
	boot   int // number of boots
	starts int // number of agents
	booted time.Time
	disk   disk
	wishes wishes
	gone   bool // it does not boot again
	copied bool // a copy of it gives signs of life, or gave them
	power  power
	// machineID is also its system UUID.
	machineID string
	process   *process
	agent     *agent
}

// power is what reboot commands did to a host. The driver's goroutine owns it.
type power struct {
	commanded int       // the boot in which one began a shutdown
	off       bool      // the host is down for that
	ignored   time.Time // when one last returned, and did nothing
}

// leaseDuration and renewInterval are the defaults of the agent.
const (
	leaseDuration = 40 * time.Second
	renewInterval = 10 * time.Second
)

func newHost(w *world, name, zone string) *host {
	return &host{w: w, name: name, zone: zone, machineID: "machine-of-" + name, process: newProcess(w.carrier, name)}
}

func (h *host) machine() probe.Machine {
	return probe.Machine{
		HostName: h.name, MachineID: h.machineID, SystemUUID: h.machineID, BootID: fmt.Sprintf("%s-boot-%d", h.name, h.boot),
		CPUs: 2, MemoryBytes: 4 << 30, Architecture: "amd64", CgroupVersion: 2,
	}
}

// boots starts the host and its agent.
func (h *host) boots() {
	h.boot++
	h.booted, h.power.off = time.Now(), false
	h.require(false)
	h.start()
}

// bootsAgain is boots after a host has died, unless it has booted meanwhile.
func (h *host) bootsAgain() {
	if !h.gone && !h.w.truth.of(h.name).alive {
		h.boots()
	}
}

// restarts starts the agent again, without a boot, unless it runs.
func (h *host) restarts() {
	if !h.gone && !h.power.off && !h.w.truth.of(h.name).alive {
		h.start()
	}
}

// start starts an agent.
func (h *host) start() {
	h.starts++
	h.process = newProcess(h.w.carrier, h.name)
	h.process.network.refused[string(statusRefused)] = h.w.active[fmt.Sprint(statusRefused, "/", h.name, "/")] > 0
	h.w.truth.lives(h.name, true)
	h.agent = newAgent(h)
	go h.agent.run(h.process.ctx)
}

// dies stops the host at once.
func (h *host) dies() {
	h.process.kill()
	h.agent.writesBehind()
	h.w.truth.lives(h.name, false)
}

// disk is what survives an agent.
type disk struct {
	mu       sync.Mutex        // guards the fields below
	values   map[string][]byte // as the present agent has them
	synced   map[string][]byte // those on the disk
	changed  time.Time         // since when synced is old; zero if it is not
	files    map[string][]byte // state files, by name
	full     bool
	saved    *disk // a copy of synced and files
	required bool  // the host has to reboot
}

// errFull is the result of a write to a full disk.
var errFull = errors.New("no space left on device")

// wants reports whether the host has to reboot.
func (h *host) wants() bool {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	return h.disk.required
}

// require makes the host want a reboot, or not any more.
func (h *host) require(required bool) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	h.disk.required = required
}

// fill fills the disk, or frees space.
func (h *host) fill(full bool) {
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	if h.disk.full = full; !h.disk.changed.IsZero() {
		h.disk.changed = time.Now() // it is written a while later
	}
}

// Load implements report.Store.
func (d *disk) Load() (map[string][]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.values), nil
}

// saveTime is how long a change of values may take until it is on the disk.
const saveTime = 5 * time.Second

// Write implements report.Store. As package statefile, it does not wait for the disk.
func (d *disk) Write(put map[string][]byte, remove []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.values == nil {
		d.values = map[string][]byte{}
	}
	for _, key := range remove {
		delete(d.values, key)
	}
	maps.Copy(d.values, put)
	if d.changed.IsZero() {
		d.changed = time.Now()
	}
	return nil
}

// late reports whether values may not be on the disk yet.
func (d *disk) late() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.changed.IsZero() && (d.full || time.Since(d.changed) < saveTime)
}

// forget forgets the values that are not on the disk.
func (d *disk) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.values, d.changed = maps.Clone(d.synced), time.Time{}
}

// agent is the agent of a host: the loops of the Lease, of the status and of the pods, connected as
// package agent connects them.
type agent struct {
	h         *host
	process   *process
	client    *objects.Client
	keeper    *controlplane.LeaseKeeper
	reporter  *report.Reporter
	existence *loop.Gate
	member    *loop.Gate
	pods      *pods
	reboot    *reboot.Controller
	selfDrain *selfdrain.Controller
	cordoner  *maintenance.Drainer // only cordons and uncordons
	loops     loop.Set

	mu        sync.Mutex       // guards the fields below
	unflushed map[string]saved // state files that nobody has waited for
	commanded time.Time        // when its reboot command began a shutdown; zero if none did
}

func newAgent(h *host) *agent {
	a := &agent{h: h, process: h.process, existence: loop.NewGate(""), member: loop.NewGate(""), unflushed: map[string]saved{}}
	log := h.w.journal.logger(h.name)
	view := h.w.store.Over(h.process)
	a.client = objects.New(hostStore{view.Objects(), h.process}, objects.Options{KeepTaints: h.w.plan.Engine == kubernetes})
	machine := h.machine()
	watch := controlplane.NewLeaseWatch(nil)
	var err error
	a.keeper, err = controlplane.NewLeaseKeeper(a.client, controlplane.LeasePolicy{
		Node: h.name, Holder: controlplane.Identity{MachineID: machine.MachineID, SystemUUID: machine.SystemUUID},
		Duration: leaseDuration, Interval: renewInterval, Instance: fmt.Sprintf("%s/%d", machine.BootID, h.starts), Watch: watch,
		Rebooting: func() bool { return a.reboot.HasTurn() },
		Heartbeat: func(err error) { a.selfDrain.Renewal(err, leaseDuration) },
	}, log)
	if err != nil {
		panic(err)
	}
	a.pods = &pods{store: view, host: h}
	options := status.Options{Name: h.name, Version: "1.2.3", MaxPods: 110, MaxImages: -1, Labels: map[string]string{corev1.LabelTopologyZone: h.zone}, Pressure: status.DefaultPolicy()}
	recorder := controlplane.NewRecorder(a.client, h.name, time.Now, nil, log)
	a.reporter = report.New(report.Options{
		Client: a.client, Recorder: recorder, Facts: a,
		Node: func() status.Options { return options }, Policy: report.Policy{Update: 10 * time.Second, Rewrite: 5 * time.Minute},
		Watch: watch, Mine: func() bool { return true }, Boot: machine.BootID,
		Storage: report.Storage{Store: &h.disk, Notes: &h.disk, Flush: a.flusher("status"), Departures: report.OpenDepartures(&h.disk, h.name, a.client.Type(), log)},
		Listeners: report.Listeners{
			Named: func(uid types.UID) { a.keeper.SetOwner(uid); a.pods.named(uid) }, Lost: func() { a.pods.named("") },
			Stored: func(node *corev1.Node) { a.reboot.Stored(node) },
			Waits:  func(why string) { a.existence.Set(why); a.selfDrain.Waits(why != "") },
			Taints: func(taints []corev1.Taint) { a.selfDrain.Taints(taints) }, Observe: func(error) {}, Theirs: func(bool) {}, Count: func(corev1.NodeCondition) {},
		},
		Log: log,
	})
	a.cordoner = maintenance.New(maintenance.Options{Node: h.name, Reporter: a.reporter, Recorder: recorder, Member: a.member, Flush: a.flusher("cordon"), Log: log})
	a.addMember("lease", func(ctx context.Context, l *loop.Loop) error { return a.existence.While(ctx, l, a.keeper.Run) })
	a.add("status", func(ctx context.Context, l *loop.Loop) error { return a.reporter.Run(ctx, l.Heartbeat) })
	a.addMember("node-watch", func(ctx context.Context, l *loop.Loop) error { return a.reporter.Watch(ctx, a.client, l.Heartbeat) })
	a.addMember("pods", func(ctx context.Context, _ *loop.Loop) error { return a.pods.run(ctx) })
	a.addSelfDrain()
	a.addReboots()
	return a
}

func (a *agent) add(name string, run func(context.Context, *loop.Loop) error) {
	a.loops = append(a.loops, loop.New(name, 0, nil).Do(func(ctx context.Context, l *loop.Loop) error {
		return run(context.WithValue(ctx, loopName{}, name), l)
	}))
}

// addMember adds a loop that is paused while the host has left the fleet.
func (a *agent) addMember(name string, run func(context.Context, *loop.Loop) error) {
	a.add(name, func(ctx context.Context, l *loop.Loop) error {
		return a.member.While(ctx, l, func(ctx context.Context) error { return run(ctx, l) })
	})
}

// run runs all loops until ctx ends.
func (a *agent) run(ctx context.Context) {
	var all sync.WaitGroup
	for _, l := range a.loops {
		all.Go(func() { l.Supervise(ctx, a.h.w.journal.logger(a.h.name)) })
	}
	all.Wait()
}

// Now implements report.Facts: a healthy host.
func (a *agent) Now(_ context.Context, guarded *shutdown.Status) status.Facts {
	f := status.Facts{
		Machine: a.Machine(), RuntimesQueried: true, Shutdown: status.Shutdown{State: "Armed"},
		Memory: probe.Memory{TotalBytes: 4 << 30, AvailableBytes: 3 << 30}, PIDs: probe.PIDs{Used: 100, Limit: 32768}, CPUs: probe.CPUs{},
		Filesystems: []status.Filesystem{
			{Role: status.RoleNode, Filesystem: probe.Filesystem{Path: "/", Mountpoint: "/", CapacityBytes: 100 << 30, AvailableBytes: 90 << 30, Inodes: 1000000, InodesFree: 900000}},
		},
		Network: probe.Network{
			Addresses: []probe.Address{{IP: netip.MustParseAddr("10.0.0.1"), Bits: 24, Interface: "eth0", Kind: "device", Up: true, Carrier: true}},
			Routes:    []probe.DefaultRoute{{Interface: "eth0"}},
		},
		Runtimes: []runtime.Health{{Info: runtime.Info{Name: "containerd", Ready: true, Imageless: true}}},
	}
	if guarded != nil {
		f.Shutdown.State = guarded.State.String()
	}
	return f
}

// Machine implements report.Facts.
func (a *agent) Machine() probe.Machine { return a.h.machine() }

// hostStore is the store of an agent, whose watches faults can end.
type hostStore struct {
	memory.Objects
	process *process
}

// Watch implements objects.Store.
func (s hostStore) Watch(ctx context.Context, key objects.Key, seen chan<- objects.Object) error {
	return s.process.watching(ctx, string(key.Kind), func(ctx context.Context) error {
		states := make(chan objects.Object)
		go func() {
			for {
				select {
				case o := <-states:
					o.Value = s.process.clock.seen(o.Value)
					select {
					case seen <- o:
					case <-ctx.Done():
						return
					}
				case <-ctx.Done():
					return
				}
			}
		}()
		return s.Objects.Watch(ctx, key, states)
	})
}
