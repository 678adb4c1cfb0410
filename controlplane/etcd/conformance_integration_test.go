//go:build integration

package etcd_test

import (
	"context"
	"flag"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/objectstest"
	bed "hostler.io/hostler/test/etcd"
)

// fleets gives each store of a cluster its own prefix.
type fleets struct {
	cluster *bed.Cluster
	user    bed.Credentials // with TLS
	last    atomic.Int32
}

// next returns the prefix of an empty fleet.
func (f *fleets) next() string { return fmt.Sprintf("/fleets/%d", f.last.Add(1)) }

// in returns a store of the fleet with that prefix.
func (f *fleets) in(t *testing.T, prefix string, change ...func(*etcd.Options)) *etcd.Store {
	t.Helper()
	return at(t, f.cluster, append(change, func(o *etcd.Options) {
		o.Prefix, o.Certificate, o.Key = prefix, f.user.Certificate, f.user.Key
	})...)
}

func TestTheStoreKeepsWhatStoresPromise(t *testing.T) {
	t.Parallel()
	f := &fleets{cluster: bed.For(t, bed.Options{})}
	objectstest.Run(t, func(t *testing.T) objects.Store { return f.in(t, f.next()) })
}

var update = flag.Bool("update", false, "rewrite the results of the conformance checks")

func TestConformance(t *testing.T) {
	t.Parallel()
	f := &fleets{cluster: bed.For(t, bed.Options{TLS: true})}
	var err error
	if f.user, err = f.cluster.Client("agent", time.Hour); err != nil {
		t.Fatal(err)
	}
	controlplanetest.Record(t, etcd.Type, *update, func(t *testing.T) controlplanetest.Backend {
		prefix := f.next()
		elsewhere := f.in(t, prefix)
		between := newTamperer(t, f.cluster, f.user)
		wire, err := controlplanetest.NewWire(between.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = wire.Close() })
		hindered := func(o *etcd.Options) { o.Endpoints = []string{fmt.Sprintf("https://localhost:%d", wire.Port())} }
		return controlplanetest.Backend{
			Client: objects.New(f.in(t, prefix, hindered), objects.Options{}),
			Inject: func(fault conformance.Fault) (restore func(), err error) {
				if fault != conformance.WrongObject {
					return wire.InjectFault(fault)
				}
				between.tampers.Store(true)
				return func() { between.tampers.Store(false) }, nil
			},
			Edit: func(ctx context.Context, name string, change func(*corev1.Node)) error {
				return objectstest.EditNode(ctx, elsewhere, name, change)
			},
			Delete: func(ctx context.Context, name string) error {
				return elsewhere.Delete(ctx, objects.Key{Kind: objects.Node, Node: name}, objects.None)
			},
			RequestPace: func(ctx context.Context, duration string) error {
				return objectstest.RequestPace(ctx, elsewhere, duration)
			},
			Expires: true,
			Restart: func(context.Context) (controlplane.Client, error) {
				return objects.New(f.in(t, prefix), objects.Options{}), nil
			},
		}
	})
}
