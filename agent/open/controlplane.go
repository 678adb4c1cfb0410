package open

import (
	"cmp"
	"context"
	"crypto/tls"
	"log/slog"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/etcd/endpoint"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/internal/statefile"
)

// ControlPlane is the client of the configured control plane, with what only some have.
type ControlPlane struct {
	controlplane.Client
	Certificate *certificate.Keeper // gets the client certificate; nil where the kubeconfig has credentials
	Plugin      *plugin.Store       // nil where the control plane is no plugin
	Pods        *etcd.Pods          // objects of this host's pods; nil where the control plane is not etcd
	// Address is the host and port of its server; nil where it is on this host.
	Address func() (string, error)
	// Reconnect drops connections, since the way to the server is another one; nil as above.
	Reconnect func()
}

// ControlPlaneOptions are what a control plane is opened with, beside its configuration.
type ControlPlaneOptions struct {
	Node     string
	Version  string
	Pods     bool                  // this host is to keep objects of its pods
	State    *statefile.Folder     // of the embedded one
	Endpoint string                // that the embedded one is shown with
	Machine  controlplane.Identity // this one
	Renewed  func()                // is called when a client certificate was renewed; may be nil
	Log      *slog.Logger
}

// NewControlPlane opens the configured control plane, and sends it nothing yet.
func NewControlPlane(cfg config.ControlPlane, o ControlPlaneOptions) (*ControlPlane, error) {
	switch cfg.Type {
	case kubernetes.Type:
		return newKubernetes(cfg.Kubernetes, o)
	case etcd.Type:
		return newEtcd(cfg.Etcd, o)
	case plugin.Type:
		store, err := plugin.New(plugin.Options{Socket: cfg.Plugin.Socket, Version: o.Version, Log: o.Log})
		if err != nil {
			return nil, err
		}
		return &ControlPlane{Client: objects.New(store, objects.Options{}), Plugin: store}, nil
	default:
		return &ControlPlane{Client: embedded.New(embedded.Options{Folder: o.State, Endpoint: o.Endpoint, Machine: o.Machine, Log: o.Log})}, nil
	}
}

// newKubernetes opens a cluster: with the credentials of a kubeconfig, or where there is one
// to bootstrap by, with a certificate that a Keeper gets and renews.
func newKubernetes(c config.Kubernetes, o ControlPlaneOptions) (*ControlPlane, error) {
	kubernetes.LogTo(o.Log)
	plain := kubernetes.Options{Kubeconfig: cmp.Or(c.Kubeconfig, c.BootstrapKubeconfig), Version: o.Version, PluginAsRoot: c.ExecPluginUser == config.UserRoot, Log: o.Log}
	if c.BootstrapKubeconfig == "" {
		client, err := kubernetes.New(plain)
		return kubernetesAt(c, client, nil), err
	}
	byToken := plain
	byToken.Kubeconfig = c.BootstrapKubeconfig
	first, err := kubernetes.NewRequests(byToken)
	if err != nil {
		return nil, err
	}
	current := certificate.NewCurrent()
	own := plain
	own.Certificate, own.Refused = current.Certificate, current.Doubt
	later, err := kubernetes.NewRequests(own)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.New(own)
	if err != nil {
		return nil, err
	}
	keeper, err := certificate.New(certificate.Options{
		Node: o.Node, Directory: c.CertificateDirectory, Current: current, Bootstrap: first, Renewal: later, Log: o.Log,
		Try: func(ctx context.Context, c *tls.Certificate) error { return kubernetes.Try(ctx, plain, o.Node, c) },
		Renewed: func() {
			client.Reconnect()
			later.Reconnect()
			if o.Renewed != nil {
				o.Renewed()
			}
		},
	})
	return kubernetesAt(c, client, keeper), err
}

func kubernetesAt(c config.Kubernetes, client *kubernetes.Client, keeper *certificate.Keeper) *ControlPlane {
	return &ControlPlane{
		Client: client, Certificate: keeper,
		Address:   func() (string, error) { return kubernetes.Server(cmp.Or(c.Kubeconfig, c.BootstrapKubeconfig)) },
		Reconnect: client.Reconnect,
	}
}

func newEtcd(c config.Etcd, o ControlPlaneOptions) (*ControlPlane, error) {
	options := etcd.OptionsOf(c, "controlPlane.etcd", o.Version)
	options.Node = o.Node
	options.Pods = o.Pods
	store, err := etcd.New(options)
	if err != nil {
		return nil, err
	}
	client := objects.New(store, objects.Options{})
	return &ControlPlane{
		Client:    client,
		Pods:      store.Pods(o.Node),
		Address:   func() (string, error) { return endpoint.Address(client.Endpoint()) },
		Reconnect: store.Reconnect,
	}, nil
}
