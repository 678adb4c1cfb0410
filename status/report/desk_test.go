package report

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/probe"
)

const nodeName = "node-a"

// desk is a reporter on a small virtual machine with one container runtime, with a control plane in
// memory. It lives in a synctest bubble.
type desk struct {
	*Reporter
	client   *controlplanetest.Fake
	runtime  *runtimetest.Fake
	runtimes *discovery.Runtimes
	machine  probe.Machine
	log      *logtest.Book
	kept     *shelf // survives the agent
	noted    *shelf // survives the state file, too
	named    []types.UID
	lost     int
	counted  []string // transitions
	theirs   []bool   // whether the Node had a kubelet's status

	mu         sync.Mutex // guards the fields below
	mine       bool
	guard      shutdown.Status
	heartbeats []error
}

// shelf is a store in memory.
type shelf struct {
	mu     sync.Mutex
	values map[string][]byte // guarded by mu
}

func (s *shelf) Load() (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.values), nil
}

func (s *shelf) Write(put map[string][]byte, remove []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.values == nil {
		s.values = map[string][]byte{}
	}
	for _, key := range remove {
		delete(s.values, key)
	}
	maps.Copy(s.values, put)
	return nil
}

func (s *shelf) WriteNow(put map[string][]byte, remove []string) error { return s.Write(put, remove) }

// newDesk returns a desk whose runtime was checked once.
func newDesk(t *testing.T) *desk {
	t.Helper()
	d := newUnaskedDesk(t)
	if err := d.runtimes.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func newUnaskedDesk(t *testing.T) *desk {
	t.Helper()
	reader, err := probe.New("../../test/hosts/small-vm")
	if err != nil {
		t.Fatal(err)
	}
	machine, err := reader.Machine()
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{
		client:  controlplanetest.NewFake(nil),
		runtime: runtimetest.NewFake(runtimetest.Options{Name: "containerd"}),
		log:     &logtest.Book{},
		kept:    &shelf{},
		noted:   &shelf{},
		machine: machine,
		mine:    true,
		guard:   shutdown.Status{State: shutdown.Armed, Reason: "shutdown lock held"},
	}
	t.Cleanup(func() { _ = d.runtime.Close() })
	d.runtimes, err = discovery.New(discovery.Options{Observe: func(string, string, time.Duration, error) {}, Log: discard()})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.runtimes.Set().Add(d.runtime); err != nil {
		t.Fatal(err)
	}
	pressure := status.DefaultPolicy()
	pressure.NodefsAvailable, pressure.NodefsInodesFree = status.Threshold{}, status.Threshold{} // the disk is the test machine's
	options := status.Options{Name: nodeName, Version: "1.2.3", MaxPods: 110, MaxImages: 50, Pressure: pressure}
	departures := OpenDepartures(d.noted, nodeName, d.client.Type(), d.log.Logger())
	d.Reporter = New(Options{
		Client:   d.client,
		Recorder: controlplane.NewRecorder(d.client, nodeName, time.Now, departures.Gone, discard()),
		Facts: gather.NewFacts(gather.FactsOptions{
			Reader: reader, Folder: "/", Runtimes: d.runtimes, Machine: machine,
			MaxImages: func() int { return -1 },
			Guard:     func() shutdown.Status { d.mu.Lock(); defer d.mu.Unlock(); return d.guard },
		}),
		Node:    func() status.Options { return options },
		Policy:  Policy{Update: 10 * time.Second, Rewrite: 5 * time.Minute},
		Mine:    func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.mine },
		Boot:    "one",
		Storage: Storage{Store: d.kept, Notes: d.noted, Departures: departures},
		Listeners: Listeners{
			Named:   func(uid types.UID) { d.named = append(d.named, uid) },
			Lost:    func() { d.lost++ },
			Observe: func(error) {},
			Theirs:  func(kubelets bool) { d.mu.Lock(); defer d.mu.Unlock(); d.theirs = append(d.theirs, kubelets) },
			Count:   func(c corev1.NodeCondition) { d.counted = append(d.counted, string(c.Type)+"="+string(c.Status)) },
		},
		Log: d.log.Logger(),
	})
	d.holdToTable(t)
	return d
}

// holdToTable fails the test if the registration makes a transition that is not in Transitions.
func (d *desk) holdToTable(t *testing.T) {
	d.registration.observe = func(from, to State) {
		if !slices.ContainsFunc(Transitions(), func(e Transition) bool { return e.From == from && e.To == to }) {
			t.Errorf("the registration went from %v to %v, which is not in the table", from, to)
		}
	}
}

// start runs the reporter until the bubble ends.
func (d *desk) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		err := d.Run(ctx, func(err error) { d.mu.Lock(); defer d.mu.Unlock(); d.heartbeats = append(d.heartbeats, err) })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Run() = %v, want that it was cancelled", err)
		}
	})
	t.Cleanup(func() { cancel(); done.Wait() })
	synctest.Wait()
}

func (d *desk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// stored returns the Node on the control plane, or nil.
func (d *desk) stored(t *testing.T) *corev1.Node {
	t.Helper()
	nodes, err := d.client.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		if nodes[i].Name == nodeName {
			return &nodes[i]
		}
	}
	return nil
}

func ready(n *corev1.Node) corev1.NodeCondition {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// writes returns how often the Node was registered, and how often its status was written.
func (d *desk) writes() [2]int {
	return [2]int{d.client.Calls(controlplanetest.Register), d.client.Calls(controlplanetest.UpdateStatus)}
}

// after waits and then checks the writes so far.
func (d *desk) after(t *testing.T, pass time.Duration, what string, registered, written int) {
	t.Helper()
	time.Sleep(pass)
	synctest.Wait()
	if got, want := d.writes(), [2]int{registered, written}; got != want {
		t.Fatalf("%s: registered and written %v times, want %v", what, got, want)
	}
}

func bubble(t *testing.T, test func(t *testing.T, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newDesk(t)) })
}
