// Package embedded is the control plane of a host that has none: it keeps the
// Node, its Lease and the last 1,000 Events in the agent's own state, and
// behaves towards the agent as a cluster would, with UIDs, resource versions and
// conflicts.
//
// It serves from memory and has every change written behind; so a disk that is full or slow
// delays nothing. It holds one Node, this host's, and refuses to be a registry of others.
package embedded

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/objects/memory"
	"hostler.io/hostler/internal/statefile"
)

// Type is the control plane's name in the configuration.
const Type = "embedded"

// MaxEvents is how many Events are kept.
const MaxEvents = 1000

// kinds are the stored kinds, each in its own file: a Lease is renewed too often to write the others
// with it.
var kinds = []objects.Kind{objects.Node, objects.Lease, objects.Event}

// Options are what the control plane is made of.
type Options struct {
	Folder   *statefile.Folder // keeps it
	Endpoint string            // shown in status: the path of the folder
	// Machine is this one. A Lease of another one's that is found in the folder is not alive:
	// the folder is one agent's at a time.
	Machine controlplane.Identity
	Now     func() time.Time // the wall clock; time.Now if nil
	Log     *slog.Logger
}

// Client is the embedded control plane. Nobody but the agent writes there: it has the roles of
// a Client that make sense then.
type Client struct {
	controlplane.Client
	controlplane.NodeLister
	controlplane.FleetLister
	controlplane.EventLister
	controlplane.Cordoner

	client *objects.Client
	store  *memory.Store
	log    *slog.Logger
}

// New returns the control plane as an earlier run of the agent left it in the folder.
func New(o Options) *Client {
	files := map[objects.Kind]*statefile.File{}
	var kept []memory.Object
	for _, kind := range kinds {
		var stored []memory.Object
		files[kind] = o.Folder.File(string(kind))
		files[kind].Load(&stored)
		for _, object := range stored {
			if object.Key.Kind == kind && !ended(object, o.Machine) {
				kept = append(kept, object)
			}
		}
	}
	store := memory.New(memory.Options{Type: Type, Endpoint: o.Endpoint, MaxEvents: MaxEvents})
	store.Restore(kept)
	store.Follow(func(kind objects.Kind) {
		snapshot := func() any { return store.Snapshot(kind) }
		if kind == objects.Lease {
			files[kind].SaveLazily(snapshot)
			return
		}
		files[kind].Save(snapshot)
	})
	c := objects.New(store, objects.Options{Now: o.Now, KeepTaints: true, SoleWriter: true})
	return &Client{c, c, c, c, c, c, store, o.Log.With("component", "controlplane")}
}

// ended reports whether that is a Lease of another machine's.
func ended(o memory.Object, machine controlplane.Identity) bool {
	var lease coordinationv1.Lease
	return o.Key.Kind == objects.Lease && (json.Unmarshal(o.Value, &lease) != nil || controlplane.HolderOf(&lease).Differs(machine))
}

// Register creates or adopts the Node. A Node and Lease of another name go,
// since a host that was renamed is still one host.
func (c *Client) Register(ctx context.Context, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	stored, err := c.client.Register(ctx, node, opts)
	if err != nil {
		return nil, err
	}
	for _, other := range c.store.Snapshot(objects.Node, objects.Lease) {
		if other.Key.Node == node.Name {
			continue
		}
		if other.Key.Kind == objects.Node {
			c.log.Info("node name changed, deleted the old node", "old", other.Key.Node, "new", node.Name)
		}
		if err := c.store.Delete(ctx, other.Key, objects.None); err != nil {
			return nil, err
		}
	}
	return stored, nil
}

// Edit changes the stored Node as someone else would, if there were anyone: the agent
// does not. It implements conformance.Editor.
func (c *Client) Edit(ctx context.Context, name string, change func(*corev1.Node)) error {
	return c.client.Edit(ctx, name, change)
}
