package maintenance_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/status/report"
)

const nodeName = "node-a"

// desk has a node that is reported to a control plane in memory. It is used in a synctest bubble.
type desk struct {
	maintenance.Options
	client *controlplanetest.Fake
	store  *statefile.Values
	notes  *statefile.Values
	folder string // of the journal
}

func bubble(t *testing.T, test func(t *testing.T, d *desk)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		kept := statefile.NewMemory()
		d := &desk{client: controlplanetest.NewFake(nil), store: kept.Values("agent"), notes: kept.Notes("node")}
		log := slog.New(slog.DiscardHandler)
		d.Options = maintenance.Options{
			Node:     nodeName,
			Owners:   ownedBy(owner.Auto, nil),
			Recorder: controlplane.NewRecorder(d.client, nodeName, time.Now, nil, log),
			Member:   loop.NewGate(""),
			Drained:  maintenance.OpenDrained(kept.File("drained")),
			Flush:    kept.Flush,
			Log:      log,

			OutOfReach: func() string { return "" },
		}
		d.over(d.client)
		test(t, d)
	})
}

// ownedBy returns owners in which seen, if not nil, owns the Node. node is the switch of the Node.
func ownedBy(node owner.Switch, seen *owner.Owner) *owner.Owners {
	o := owner.New(map[owner.Job]owner.Switch{owner.Node: node}, func(context.Context, map[owner.Job]owner.Owner) map[owner.Job]owner.Owner {
		found := map[owner.Job]owner.Owner{}
		if seen != nil && seen.Name != "" {
			found[owner.Node], found[owner.ContainerGC] = *seen, *seen
		}
		return found
	}, slog.New(slog.DiscardHandler))
	o.Refresh(context.Background())
	return o
}

// over reports the node to another control plane.
func (d *desk) over(client controlplane.Client) {
	options := status.Options{Name: nodeName, Version: "1.2.3", MaxPods: 110, MaxImages: 50, Pressure: status.DefaultPolicy()}
	d.ControlPlane = client.Type()
	d.Reporter = report.New(report.Options{
		Client:    client,
		Recorder:  d.Recorder,
		Facts:     facts{},
		Node:      func() status.Options { return options },
		Policy:    report.Policy{Update: 10 * time.Second, Rewrite: 5 * time.Minute},
		Mine:      func() bool { mine, _, _ := d.Owners.Mine(owner.Node); return mine },
		Boot:      "one",
		Storage:   report.Storage{Store: d.store, Notes: d.notes, Departures: report.OpenDepartures(d.notes, nodeName, client.Type(), d.Log)},
		Listeners: report.Listeners{Named: func(types.UID) {}, Theirs: func(bool) {}, Observe: func(error) {}, Count: func(corev1.NodeCondition) {}},
		Log:       d.Log,
	})
}

// facts are the facts of a host about which little is known.
type facts struct{}

func (facts) Now(context.Context, *shutdown.Status) status.Facts {
	return status.Facts{Machine: facts{}.Machine()}
}

func (facts) Machine() probe.Machine { return probe.Machine{MachineID: "m", BootID: "one"} }

// register reports the Node once.
func (d *desk) register(t *testing.T) {
	t.Helper()
	if err := d.Reporter.ReportShutdown(t.Context(), shutdown.Status{State: shutdown.Armed}); err != nil {
		t.Fatal(err)
	}
}

// guarded returns a drainer with a running guard and these pods.
func (d *desk) guarded(t *testing.T, pods ...runtimetest.ContainerSpec) (*maintenance.Drainer, *runtimetest.Fake) {
	t.Helper()
	fake := runtimetest.NewFake(runtimetest.Options{CallTimeout: time.Hour})
	fake.AddImage(runtimetest.ImageSpec{ID: "image"})
	for _, c := range pods {
		c.ID, c.Image = c.Name+"-c", "image"
		fake.RunPod(runtimetest.PodSpec{ID: c.Name, Name: c.Name, Namespace: "ns", Labels: c.Labels, Containers: []runtimetest.ContainerSpec{c}})
	}
	var err error
	d.folder = filepath.Join(t.TempDir(), "state")
	d.Journal = journal.Open(filepath.Join(d.folder, "shutdown.json"), "one", d.Log)
	d.Guard, err = shutdown.New(shutdown.Options{Phases: plan.Defaults(), Runtime: fake, Log: d.Log, Journal: d.Journal})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- d.Guard.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return maintenance.New(d.Options), fake
}

// publishing runs the recorder until the test ends.
func (d *desk) publishing(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- d.Recorder.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
}

// stored returns the Node on the control plane; nil if there is none.
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

func (d *desk) wantCordoned(t *testing.T, when string, want bool) {
	t.Helper()
	if n := d.stored(t); n == nil || n.Spec.Unschedulable != want {
		t.Errorf("%s the stored Node is %+v, want unschedulable: %v", when, n, want)
	}
}

// reasons returns the reasons of published Events with this prefix, with their messages.
func (d *desk) reasons(t *testing.T, prefix string) []string {
	t.Helper()
	events, err := d.client.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range events {
		if strings.HasPrefix(e.Reason, prefix) {
			list = append(list, e.Type+" "+e.Reason+": "+e.Message)
		}
	}
	return list
}

// hanging is a control plane whose first calls to cordon return only when their context ends.
type hanging struct {
	*controlplanetest.Fake
	calls int
}

func (h *hanging) Cordon(ctx context.Context, name string, unschedulable, own bool) (*corev1.Node, error) {
	if h.calls > 0 {
		h.calls--
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return h.Fake.Cordon(ctx, name, unschedulable, own)
}

// plain is a control plane that cannot cordon.
type plain struct{ controlplane.Client }
