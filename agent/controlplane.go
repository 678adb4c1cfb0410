package agent

import (
	"cmp"
	"log/slog"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/etcd/endpoint"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/plugin"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/status/gather"
)

// surroundings are what a client of a control plane needs beside its configuration.
// The agent's are its own; a command's, which runs without it, end with the command.
type surroundings struct {
	state    *statefile.Folder // of the embedded one
	endpoint string            // that the embedded one is shown with
	machine  controlplane.Identity
	log      *slog.Logger
	// kubernetes opens a cluster with the credentials that there are.
	kubernetes func() (*kubernetes.Client, error)
	// etcd opens a store of objects.
	etcd func() (controlplane.Client, error)
	// plugin opens a store of objects that a plugin keeps.
	plugin func() (controlplane.Client, error)
}

// openControlPlane opens the configured control plane, which it does not ask
// anything yet.
func openControlPlane(cfg config.ControlPlane, s surroundings) (controlplane.Client, error) {
	switch cfg.Type {
	case kubernetes.Type:
		return s.kubernetes()
	case etcd.Type:
		return s.etcd()
	case plugin.Type:
		return s.plugin()
	default:
		return embedded.New(embedded.Options{Folder: s.state, Endpoint: s.endpoint, Machine: s.machine, Log: s.log}), nil
	}
}

// openEtcd opens a store of objects.
func (a *Agent) openEtcd() (controlplane.Client, error) {
	store, err := etcd.New(etcdOptions(a.cfg.ControlPlane.Etcd, a.options.Version))
	if err != nil {
		return nil, err
	}
	a.etcd = store
	return objects.New(store, objects.Options{}), nil
}

func etcdOptions(c config.Etcd, version string) etcd.Options {
	return etcd.Options{
		Endpoints: c.Endpoints, Prefix: c.Prefix,
		CA: c.TLS.CA, Certificate: c.TLS.Certificate, Key: c.TLS.Key,
		Username: c.Username, PasswordFile: c.PasswordFile, Insecure: c.Insecure,
		Version: version,
	}
}

// networkOptions have the ways to the control plane followed, where it is elsewhere.
func (a *Agent) networkOptions() gather.NetworkOptions {
	o := gather.NetworkOptions{Log: a.log.With("component", "network")}
	switch a.client.Type() {
	case kubernetes.Type:
		c := a.cfg.ControlPlane.Kubernetes
		o.ControlPlane = func() (string, error) { return kubernetes.Server(cmp.Or(c.Kubeconfig, c.BootstrapKubeconfig)) }
		o.Endpoint = a.client.Endpoint
		if c, able := a.client.(interface{ Reconnect() }); able {
			o.Lost = c.Reconnect
		}
	case etcd.Type:
		o.ControlPlane = func() (string, error) { return endpoint.Address(a.client.Endpoint()) }
		o.Endpoint, o.Lost = a.client.Endpoint, a.etcd.Reconnect
	}
	return o
}
