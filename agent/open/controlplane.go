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

// ControlPlane is the client of the configured control plane, with parts that only some types have.
type ControlPlane struct {
	controlplane.Client
	Certificate *certificate.Keeper // manages the client certificate; nil if the kubeconfig has credentials
	Plugin      *plugin.Store       // nil for other types
	Pods        *etcd.Pods          // objects of this host's pods; nil for other types than etcd
	// Address returns the host and port of its server; nil if it is on this host.
	Address func() (string, error)
	// Reconnect drops connections after the route to the server has changed; nil if Address is.
	Reconnect func()
}

// ControlPlaneOptions are the options beside the configuration.
type ControlPlaneOptions struct {
	Node     string
	Version  string
	Pods     bool                  // publish objects of this host's pods
	State    *statefile.Folder     // state of the embedded control plane
	Endpoint string                // displayed endpoint of the embedded control plane
	Machine  controlplane.Identity // this machine
	Renewed  func()                // called after a renewal of the client certificate; may be nil
	Log      *slog.Logger
}

// NewControlPlane creates the client of the configured control plane. It sends no request.
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

// newKubernetes creates the client of a cluster. It uses the credentials of a kubeconfig. With a
// bootstrap kubeconfig, a Keeper requests and renews a client certificate.
func newKubernetes(c config.Kubernetes, o ControlPlaneOptions) (*ControlPlane, error) {
	kubernetes.LogTo(o.Log)
	plain := kubernetes.Options{Kubeconfig: cmp.Or(c.Kubeconfig, c.BootstrapKubeconfig), Version: o.Version, PluginUser: c.ExecPluginUser, Log: o.Log}
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
