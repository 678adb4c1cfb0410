//go:build integration

package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/election"
	etcdstore "hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/kube"
)

// BenchmarkReboots measures how fast the controller reboots gives slots, and the number of its
// requests to the store: 1,000 Nodes want to reboot, 10 may do so at a time, and a reboot takes no
// time.
func BenchmarkReboots(b *testing.B) {
	const nodes, most = 1000, 10
	for name, open := range map[string]func(b *testing.B) store.Store{
		"etcd": func(b *testing.B) store.Store {
			s, err := etcdstore.NewFleet(etcdstore.Options{Endpoints: etcd.For(b, etcd.Options{Flags: []string{quota}}).Endpoints(), Prefix: prefix, Insecure: true})
			check(b, err)
			return s
		},
		"Kubernetes": func(b *testing.B) store.Store {
			c := kube.For(b, kube.Options{APIServerFlags: []string{"--audit-log-path=", "--audit-policy-file="}})
			_, err := c.Kubectl(b.Context(), "create", "namespace", "hostler-system")
			check(b, err)
			file, err := c.Kubeconfig(kube.User{Name: "admin", Groups: []string{"system:masters"}})
			check(b, err)
			s, err := kubernetes.NewFleet(kubernetes.Options{Kubeconfig: file, Version: version, Log: slog.New(slog.DiscardHandler)})
			check(b, err)
			return s
		},
	} {
		b.Run(name, func(b *testing.B) {
			r := newReboots(b, open(b), most)
			for i := range nodes {
				r.join(i)
			}
			began := time.Now()
			r.serve()
			for range nodes {
				<-r.done
			}
			took := time.Since(began)
			fmt.Printf("%-12s %4.0f grants a second; for each reboot %.2f reads and %.2f writes of Nodes, %.2f reads and %.2f writes of the group\n", name, nodes/took.Seconds(),
				float64(r.counts.reads.Load())/nodes, float64(r.counts.writes.Load())/nodes, float64(r.counts.groupReads.Load())/nodes, float64(r.counts.groupWrites.Load())/nodes)
		})
	}
}

// counts are the requests of the controller.
type counts struct{ reads, writes, groupReads, groupWrites atomic.Int64 }

// counting is a store that counts requests.
type counting struct {
	store.Store
	*counts
}

func (c counting) of(kind store.Kind) (reads, writes *atomic.Int64) {
	if kind.Name == store.Nodes.Name {
		return &c.reads, &c.writes
	}
	return &c.groupReads, &c.groupWrites
}

func (c counting) Get(ctx context.Context, kind store.Kind, name string) (store.Object, error) {
	reads, _ := c.of(kind)
	reads.Add(1)
	return c.Store.Get(ctx, kind, name)
}

func (c counting) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	reads, writes := c.of(kind)
	reads.Add(1)
	edited := false
	o, err := c.Store.Update(ctx, kind, name, pre, func(o store.Object) error {
		edited = true
		return edit(o)
	})
	if edited {
		writes.Add(1)
	}
	return o, err
}

// rebooting is a fleet whose hosts reboot as soon as they may.
type rebooting struct {
	b      *testing.B
	store  store.Store
	counts *counts
	most   int
	done   chan string
	table  *store.Table[string]
}

func newReboots(b *testing.B, s store.Store, most int) *rebooting {
	r := &rebooting{b: b, store: s, counts: &counts{}, most: most, done: make(chan string, 1000)}
	var begun sync.Map
	r.table = store.NewTable(store.Nodes, func(_ string, o store.Object, _ bool) (string, bool) {
		slot, err := controlplane.RebootSlotOf(o.GetAnnotations())
		if _, twice := begun.Load(o.GetName()); err == nil && slot != nil && slot.Granted != nil && !twice {
			begun.Store(o.GetName(), true)
			go r.reboot(o.GetName())
		}
		return o.GetName(), false
	}, func() {})
	b.Cleanup(func() { _ = s.Close() })
	return r
}

// join stores a Node whose host requests a slot.
func (r *rebooting) join(i int) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%04d", i)}}
	request(node, controlplane.RebootWaiting)
	_, err := r.store.Create(r.b.Context(), store.Nodes, node)
	check(r.b, err)
}

func request(o store.Object, step controlplane.RebootStep) {
	text, err := json.Marshal(controlplane.RebootRequest{ID: "r-" + o.GetName(), Step: step, Since: metav1.Now(), Wanted: metav1.Now(), Reason: "kernel"})
	if err != nil {
		panic(err)
	}
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[controlplane.AnnotationReboot] = string(text)
	o.SetAnnotations(annotations)
}

// reboot moves a host through all steps.
func (r *rebooting) reboot(name string) {
	for _, step := range []controlplane.RebootStep{controlplane.RebootGranted, controlplane.RebootDraining, controlplane.RebootRebooting, controlplane.RebootVerifying, controlplane.RebootDone} {
		for {
			_, err := r.store.Update(r.b.Context(), store.Nodes.Metadata(), name, store.Preconditions{}, func(o store.Object) error {
				request(o, step)
				return nil
			})
			if err == nil || r.b.Context().Err() != nil {
				break
			}
		}
	}
	r.done <- name
}

// serve starts the hosts and a server, which end with the benchmark.
func (r *rebooting) serve() {
	s, contact, changed, log := counting{r.store, r.counts}, &store.Contact{}, loop.NewSignal(), slog.New(slog.DiscardHandler)
	part, err := slots.ParsePart("100%")
	check(r.b, err)
	policies := reboots.Policies{"default": {Group: "default", Slots: r.most, MaxUnavailable: part}}
	c := reboots.New(s, slots.NewGroups(s, "hostler-system"), contact, podcache.New(), changed, policies, nil, "bench", log)
	e, ignore := election.New(r.store, reboots.Name, "bench", log), func(error) {}
	ctx, cancel := context.WithCancel(r.b.Context())
	var loops sync.WaitGroup
	for _, run := range []func() error{
		func() error { return contact.Run(ctx, s.Ping, ignore) },
		func() error { return s.Follow(ctx, store.Nodes, store.AllChanges, store.Followers{c.Nodes(), r.table}) },
		func() error { return c.Run(ctx, ignore) },
		func() error { return c.RunReads(ctx, ignore) },
		func() error { return e.Run(ctx, c.Lead, ignore) },
	} {
		loops.Go(func() {
			if err := run(); ctx.Err() == nil {
				r.b.Errorf("a loop has ended: %v", err)
			}
		})
	}
	r.b.Cleanup(func() { cancel(); loops.Wait() })
}
