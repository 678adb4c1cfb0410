//go:build integration

package etcd_test

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/controlplane/controlplanetest"
	"hostler.io/hostler/agent/controlplane/etcd"
	"hostler.io/hostler/agent/controlplane/objects"
	"hostler.io/hostler/agent/controlplane/objects/objectstest"
	bed "hostler.io/hostler/test/etcd"
)

// fleets gives each store of a cluster a prefix of its own.
type fleets struct {
	cluster *bed.Cluster
	last    atomic.Int32
}

// next is the prefix of a fleet that is empty.
func (f *fleets) next() string { return fmt.Sprintf("/fleets/%d", f.last.Add(1)) }

// in returns a store in one fleet.
func (f *fleets) in(t *testing.T, prefix string) *etcd.Store {
	return at(t, f.cluster, func(o *etcd.Options) { o.Prefix = prefix })
}

func TestTheStoreKeepsWhatStoresPromise(t *testing.T) {
	t.Parallel()
	f := &fleets{cluster: bed.For(t, bed.Options{})}
	objectstest.Run(t, func(t *testing.T) objects.Store { return f.in(t, f.next()) })
}

var update = flag.Bool("update", false, "write what became of the conformance checks anew")

func TestConformance(t *testing.T) {
	t.Parallel()
	f := &fleets{cluster: bed.For(t, bed.Options{})}
	controlplanetest.Record(t, etcd.Type, *update, func(t *testing.T) controlplanetest.Backend {
		prefix := f.next()
		elsewhere := f.in(t, prefix)
		server, err := url.Parse(f.cluster.Endpoints()[0])
		if err != nil {
			t.Fatal(err)
		}
		wire, err := controlplanetest.NewWire(server.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = wire.Close() })
		hindered := func(o *etcd.Options) {
			o.Prefix, o.Endpoints = prefix, []string{fmt.Sprintf("%s://localhost:%d", server.Scheme, wire.Port())}
		}
		return controlplanetest.Backend{
			Client: objects.New(at(t, f.cluster, hindered), objects.Options{}),
			Hinder: wire.Hinder,
			Edit: func(ctx context.Context, name string, change func(*corev1.Node)) error {
				return objectstest.EditNode(ctx, elsewhere, name, change)
			},
			Delete: func(ctx context.Context, name string) error {
				return elsewhere.Delete(ctx, objects.Key{Kind: objects.Node, Node: name}, objects.None)
			},
			AskPace: func(ctx context.Context, duration string) error {
				return objectstest.AskPace(ctx, elsewhere, duration)
			},
			Expires: true,
			Restart: func(context.Context) (controlplane.Client, error) {
				return objects.New(f.in(t, prefix), objects.Options{}), nil
			},
		}
	})
}
