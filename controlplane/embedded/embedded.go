// Package embedded is the control plane of a host without a fleet. It stores the Node, its Lease
// and the last 1,000 Events in the agent's own state. To the agent it behaves as a cluster does,
// with UIDs, resource versions and conflicts.
//
// It serves from memory and writes changes to disk in the background, so that a full or slow disk
// delays no call. It stores one Node, this host's, and refuses others.
package embedded

import (
	"context"
	"encoding/json"
	"errors"
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

// MaxEvents is the number of Events that are kept.
const MaxEvents = 1000

// kinds are the stored kinds, each in its own file. A Lease is renewed often, and the other kinds
// must not be written each time.
var kinds = []objects.Kind{objects.Node, objects.Lease, objects.Event}

// Options configure the control plane.
type Options struct {
	Folder   *statefile.Folder // where it stores its objects
	Endpoint string            // shown in status: the path of the folder
	// Machine is this machine. A Lease of another machine in the folder counts as expired, because
	// only one agent uses a folder at a time.
	Machine controlplane.Identity
	Now     func() time.Time // the wall clock; time.Now if nil
	Log     *slog.Logger
}

// Client is the embedded control plane. Only the agent writes to it, so it has no roles for changes
// of others.
type Client struct {
	controlplane.Client
	controlplane.NodeLister
	controlplane.FleetLister
	controlplane.EventLister
	controlplane.Cordoner

	client  *objects.Client
	store   *memory.Store
	machine controlplane.Identity
	log     *slog.Logger
}

// New returns the control plane with the objects that an earlier run of the agent left in the
// folder.
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
	return &Client{c, c, c, c, c, c, store, o.Machine, o.Log.With("component", "controlplane")}
}

// ended reports whether the object is a Lease of another machine, or unreadable.
func ended(o memory.Object, machine controlplane.Identity) bool {
	var lease coordinationv1.Lease
	return o.Key.Kind == objects.Lease && (json.Unmarshal(o.Value, &lease) != nil || controlplane.HolderOf(&lease).Differs(machine))
}

// Register creates or adopts the Node. It deletes a Node and Lease of another name: a renamed host
// is still one host. Without a Lease, a Node of another machine is of an earlier run.
func (c *Client) Register(ctx context.Context, node *corev1.Node, opts controlplane.RegisterOptions) (*corev1.Node, error) {
	if _, err := c.Lease(ctx, node.Name); errors.Is(err, controlplane.ErrNotFound) && controlplane.IdentityOf(node) == c.machine {
		opts.Takeover = true
	}
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

// Edit changes the stored Node as another client does. It implements conformance.Editor; the agent
// does not call it.
func (c *Client) Edit(ctx context.Context, name string, change func(*corev1.Node)) error {
	return c.client.Edit(ctx, name, change)
}
