package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
)

const (
	// update is the interval of an agent's host checks. At each of them it retries a status that could
	// not be written.
	update = 10 * time.Second
	// statusesPerEvent is the number of statuses between two Events: by default an agent publishes one
	// Event an hour.
	statusesPerEvent = 12
)

// Name returns the name of an agent's Node.
func Name(i int) string { return fmt.Sprintf("rack%d-node%05d", i/40, i) }

// agent is a simulated agent.
type agent struct {
	fleet        *Fleet
	client       Client
	node         *corev1.Node
	leases       *controlplane.LeaseWatch
	keeper       *controlplane.LeaseKeeper
	recorder     *controlplane.Recorder
	firstRenewal chan struct{} // closed at the first renewal of its Lease
	renewed      func()        // closes firstRenewal
}

func newAgent(f *Fleet, client Client, name string, i int) (*agent, error) {
	log := slog.New(slog.DiscardHandler)
	a := &agent{
		fleet: f, client: client, node: nodeOf(f.o.Template, name, i),
		leases: controlplane.NewLeaseWatch(nil), recorder: controlplane.NewRecorder(client, name, nil, nil, log),
		firstRenewal: make(chan struct{}),
	}
	a.renewed = sync.OnceFunc(func() { close(a.firstRenewal) })
	info := a.node.Status.NodeInfo
	var err error
	a.keeper, err = controlplane.NewLeaseKeeper(timed{client, f.renewed}, controlplane.LeasePolicy{
		Node:      name,
		Holder:    controlplane.Identity{MachineID: info.MachineID, SystemUUID: info.SystemUUID},
		Instance:  fmt.Sprintf("%s/%d/%08x", info.BootID, 1000+i, i),
		Watch:     a.leases,
		Heartbeat: a.heartbeat,
		Duration:  f.o.Pace.Duration,
		Interval:  f.o.Pace.Interval,
	}, log)
	return a, err
}

// nodeOf returns the Node of an agent.
func nodeOf(template *corev1.Node, name string, i int) *corev1.Node {
	node := template.DeepCopy()
	node.Name = name
	node.Labels[corev1.LabelHostname] = name
	node.Status.NodeInfo.MachineID = fmt.Sprintf("%032x", i+1)
	node.Status.NodeInfo.SystemUUID = fmt.Sprintf("00000000-0000-4000-8000-%012x", i+1)
	node.Status.NodeInfo.BootID = fmt.Sprintf("00000000-0000-4000-9000-%012x", i+1)
	return node
}

// run runs the loops of an agent. None of them waits for another one.
func (a *agent) run(ctx context.Context) {
	var loops sync.WaitGroup
	// They return only when ctx ends.
	loops.Go(func() { _ = a.keeper.Run(ctx) })
	loops.Go(func() { _ = a.recorder.Run(ctx) })
	loops.Go(func() { a.watch(ctx) })
	if pacer, able := a.client.(controlplane.Pacer); able {
		loops.Go(func() { follow(ctx, a, "watch the pace", pacer.WatchPace) })
	}
	loops.Go(func() { a.report(ctx) })
	loops.Wait()
}

func (a *agent) heartbeat(err error) {
	if err != nil {
		a.fleet.fail("renew", err)
		return
	}
	a.renewed()
}

// report registers the Node and writes its status, and then again at every interval. The first
// interval starts at a random moment, because real hosts do not start together.
func (a *agent) report(ctx context.Context) {
	if !a.until(ctx, "register", controlplane.Retry().Duration, a.register) || !a.until(ctx, "status", update, a.status) {
		return
	}
	select {
	case <-a.firstRenewal:
		a.fleet.joined <- struct{}{}
	case <-ctx.Done():
		return
	}
	for next := rand.N(a.fleet.o.Report); bounded.Sleep(ctx, next) == nil; next = a.fleet.o.Report {
		if !a.until(ctx, "status", update, a.status) {
			return
		}
		if rand.N(statusesPerEvent) == 0 {
			a.recorder.Record(controlplane.NodeReference(a.node.Name), corev1.EventTypeNormal, "ImageGCDone", fmt.Sprintf("removed %d images of 2.1 GB; / has 31%% free", rand.N(20)))
		}
	}
}

// until repeats a call until it succeeds. It returns false if ctx ends first.
func (a *agent) until(ctx context.Context, what string, again time.Duration, call func(context.Context) error) bool {
	for {
		err := call(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		a.fleet.fail(what, err)
		if bounded.Sleep(ctx, again/2+rand.N(again)) != nil {
			return false
		}
	}
}

func (a *agent) register(ctx context.Context) error {
	stored, err := a.client.Register(ctx, a.node, controlplane.RegisterOptions{Watch: a.leases})
	if err == nil {
		a.node.UID = stored.UID
		a.keeper.SetOwner(stored.UID)
	}
	return err
}

func (a *agent) status(ctx context.Context) error {
	now := metav1.Now()
	for i := range a.node.Status.Conditions {
		a.node.Status.Conditions[i].LastHeartbeatTime = now
	}
	_, err := a.client.UpdateStatus(ctx, a.node)
	return err
}

// watch follows the Node while it exists.
func (a *agent) watch(ctx context.Context) {
	follow(ctx, a, "watch", func(ctx context.Context, seen chan<- *corev1.Node) error {
		return a.client.WatchNode(ctx, a.node.Name, seen)
	})
}

// follow keeps a watch running. Its events change nothing on a simulated host.
func follow[T any](ctx context.Context, a *agent, what string, watch func(context.Context, chan<- T) error) {
	seen := make(chan T)
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-seen:
			case <-ctx.Done():
				return
			}
		}
	})
	a.until(ctx, what, update, func(ctx context.Context) error { return watch(ctx, seen) })
	reader.Wait()
}

// timed measures how long successful renewals take.
type timed struct {
	Client
	renewed func(took time.Duration)
}

// RenewLease implements controlplane.Renewer.
func (t timed) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	began := time.Now()
	stored, err := t.Client.RenewLease(ctx, lease)
	if err == nil {
		t.renewed(time.Since(began))
	}
	return stored, err
}
