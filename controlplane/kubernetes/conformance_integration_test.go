//go:build integration

package kubernetes_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/test/kube"
)

var update = flag.Bool("update", false, "rewrite the results of the conformance checks")

// TestConformanceOfAnAdministrator makes every call as an administrator who may delete Nodes.
func TestConformanceOfAnAdministrator(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	controlplanetest.Run(t, func(t *testing.T) controlplanetest.Backend {
		f := newFleet(t, cluster)
		f.alone = true
		return controlplanetest.Backend{Client: f, Inject: f.injectFault}
	})
}

// TestConformance makes every call as the Node's own user, system:node:NAME. Leave needs the right
// to delete Nodes, so an administrator makes it. The administrator also changes Nodes as other
// clients do.
func TestConformance(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	controlplanetest.Record(t, kubernetes.Type, *update, func(t *testing.T) controlplanetest.Backend {
		f := newFleet(t, cluster)
		return controlplanetest.Backend{
			Client: f,
			Inject: f.injectFault,
			Delete: func(ctx context.Context, name string) error {
				return f.Leave(ctx, name, controlplane.Identity{})
			},
			Keeps:   true,
			Restart: func(context.Context) (controlplane.Client, error) { return newFleet(t, cluster), nil },
		}
	})
}

// fleet makes each call as the node that it is about.
type fleet struct {
	*kubernetes.Client // the administrator's
	t                  *testing.T
	cluster            *kube.Cluster
	wire               *controlplanetest.Wire // all calls use it

	alone bool // the administrator makes every call

	mu    sync.Mutex
	nodes map[string]*kubernetes.Client
}

func newFleet(t *testing.T, cluster *kube.Cluster) *fleet {
	server, err := url.Parse(cluster.Server)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := controlplanetest.NewWire(server.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = wire.Close() })
	tamperer, err := cluster.NewTamperer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tamperer.Close() })
	tamperer.Use(ofAnother)
	wire.Tamper = tamperer.Address
	f := &fleet{t: t, cluster: cluster, wire: wire, nodes: map[string]*kubernetes.Client{}}
	f.Client = open(t, f.over(cluster.AdminKubeconfig()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for name := range f.nodes {
			if err := f.Leave(ctx, name, controlplane.Identity{}); err != nil {
				t.Error(err)
			}
		}
	})
	return f
}

// injectFault is the Inject of a conformance.Backend. WrongObject needs new connections.
func (f *fleet) injectFault(fault conformance.Fault) (restore func(), err error) {
	restore, err = f.wire.InjectFault(fault)
	if err == nil && fault == conformance.WrongObject {
		f.Reconnect()
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, client := range f.nodes {
			client.Reconnect()
		}
	}
	return restore, err
}

// over returns a kubeconfig that uses the wire.
func (f *fleet) over(kubeconfig string) string {
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		f.t.Fatal(err)
	}
	led := strings.ReplaceAll(string(text), f.cluster.Server, fmt.Sprintf("https://localhost:%d", f.wire.Port()))
	file := filepath.Join(f.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(led), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return file
}

// of returns the client of the node of that name. For an invalid name it returns the
// administrator's client.
func (f *fleet) of(name string) *kubernetes.Client {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return f.Client
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.alone {
		f.nodes[name] = f.Client // so that it is cleaned up
		return f.Client
	}
	if f.nodes[name] == nil {
		file, err := f.cluster.NodeKubeconfig(name)
		if err != nil {
			f.t.Fatal(err)
		}
		f.nodes[name] = open(f.t, f.over(file))
	}
	return f.nodes[name]
}

// asNode returns a client with the credentials of that node.
func asNode(t *testing.T, cluster *kube.Cluster, name string) *kubernetes.Client {
	t.Helper()
	file, err := cluster.NodeKubeconfig(name)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, file)
}

func (f *fleet) Register(ctx context.Context, node *corev1.Node, o controlplane.RegisterOptions) (*corev1.Node, error) {
	return f.of(node.Name).Register(ctx, node, o)
}

func (f *fleet) Node(ctx context.Context, name string) (*corev1.Node, error) {
	// A node may read only its own Node. The authorizer decides about others.
	return f.of(name).Node(ctx, name)
}

func (f *fleet) UpdateStatus(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	return f.of(node.Name).UpdateStatus(ctx, node)
}

func (f *fleet) WatchNode(ctx context.Context, name string, seen chan<- *corev1.Node) error {
	return f.of(name).WatchNode(ctx, name, seen)
}

func (f *fleet) UpdateConditions(ctx context.Context, node *corev1.Node, gone []corev1.NodeConditionType) (*corev1.Node, error) {
	return f.of(node.Name).UpdateConditions(ctx, node, gone)
}

func (f *fleet) Cordon(ctx context.Context, name string, unschedulable, own bool) (*corev1.Node, error) {
	return f.of(name).Cordon(ctx, name, unschedulable, own)
}

func (f *fleet) Lease(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	return f.of(name).Lease(ctx, name)
}

func (f *fleet) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return f.of(lease.Name).RenewLease(ctx, lease)
}

func (f *fleet) PublishEvent(ctx context.Context, event *corev1.Event) error {
	return f.of(event.InvolvedObject.Name).PublishEvent(ctx, event)
}

// TestRights tests how the Node authorizer and NodeRestriction treat a node's calls.
func TestRights(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	client := asNode(t, cluster, "n")
	ctx := patient(t)
	refused := func(call string, err error, says ...string) {
		t.Helper()
		if !errors.Is(err, controlplane.ErrForbidden) {
			t.Errorf("%s = %v, want it forbidden", call, err)
			return
		}
		for _, part := range says {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s = %v, want it to say %q", call, err, part)
			}
		}
	}

	bad := newNode("n")
	bad.Labels = map[string]string{"node-restriction.kubernetes.io/zone": "z", "example.com/rack": "r1"}
	_, err := client.Register(ctx, bad, controlplane.RegisterOptions{})
	refused("Register() with a restricted label", err, "node-restriction.kubernetes.io/zone")

	node := newNode("n")
	node.Labels = map[string]string{"example.com/rack": "r1"}
	if _, err = client.Register(ctx, node, controlplane.RegisterOptions{}); err != nil {
		t.Fatalf("Register() = %v, want no error", err)
	}
	_, err = client.Register(ctx, bad, controlplane.RegisterOptions{})
	refused("Register() again with a restricted label", err, "node-restriction.kubernetes.io/zone")

	if _, err = client.RenewLease(ctx, newLease(t, "n")); err != nil {
		t.Fatalf("RenewLease() = %v, want no error", err)
	}
	_, err = client.RenewLease(ctx, newLease(t, "other"))
	refused("RenewLease() of another node", err, "other")
	_, err = client.Register(ctx, newNode("other"), controlplane.RegisterOptions{})
	refused("Register() of another node", err, "other")

	for _, want := range []bool{true, false} {
		cordoned, err := client.Cordon(ctx, "n", want, want)
		if err != nil || cordoned.Spec.Unschedulable != want {
			t.Errorf("Cordon(%t) = %v, %v, want a node to be allowed to", want, cordoned, err)
		}
	}

	err = client.Fleet(ctx, func(*corev1.Node, *coordinationv1.Lease) error { return nil })
	refused("Fleet()", err, "list nodes")

	err = client.Leave(ctx, "n", controlplane.Identity{})
	refused("Leave()", err, "kubectl delete node n")
	if _, err := client.Lease(ctx, "n"); err != nil {
		t.Errorf("Lease() after Leave() was refused = %v, want it to be there", err)
	}
	nowhere := &corev1.Event{InvolvedObject: controlplane.NodeReference("n"), Type: "Normal", Reason: "Test", Count: 1}
	nowhere.Namespace, nowhere.Name, nowhere.InvolvedObject.Namespace = "nowhere", "n.1", "nowhere"
	if err := client.PublishEvent(ctx, nowhere); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("PublishEvent() in a namespace that is not there = %v, want it in vain", err)
	}
}
