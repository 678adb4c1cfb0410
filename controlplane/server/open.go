package server

import (
	"fmt"
	"log/slog"

	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/store"
)

// OpenStore opens the configured store, and sends it nothing yet.
func OpenStore(c config.Store, version string, log *slog.Logger) (store.Store, error) {
	switch c.Type {
	case etcd.Type:
		return etcd.NewFleet(etcd.OptionsOf(c.Etcd, "store.etcd", version))
	case kubernetes.Type:
		kubernetes.LogTo(log)
		return kubernetes.NewFleet(kubernetes.Options{
			Kubeconfig: c.Kubernetes.Kubeconfig, Version: version, Log: log,
			Namespace: c.Kubernetes.Namespace,
		})
	}
	return nil, fmt.Errorf("no store %q", c.Type)
}
