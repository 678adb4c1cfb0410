package server

import (
	"fmt"
	"log/slog"

	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/internal/configfile"
)

// Spec returns how a server with this environment reads its configuration: in a pod it needs no
// kubeconfig.
func Spec(getenv func(string) string) configfile.Spec[config.Config] {
	spec := config.Spec()
	check := spec.Check
	spec.Check = func(k *configfile.Checker, c *config.Config) {
		check(k, c)
		if c.Store.Type == kubernetes.Type && c.Store.Kubernetes.Kubeconfig == "" {
			_, err := kubernetes.PodAccount(getenv)
			k.Require(err == nil, "store.type", "kubernetes needs to know the cluster: set store.kubernetes.kubeconfig, or run the server in a pod with a service account: %v", err)
		}
	}
	return spec
}

// OpenStore opens the configured store. It sends no request yet.
func OpenStore(c config.Store, version string, getenv func(string) string, log *slog.Logger) (store.Store, error) {
	switch c.Type {
	case etcd.Type:
		return etcd.NewFleet(etcd.OptionsOf(c.Etcd, "store.etcd", version))
	case kubernetes.Type:
		kubernetes.LogTo(log)
		o := kubernetes.Options{Kubeconfig: c.Kubernetes.Kubeconfig, Version: version, Log: log, Namespace: c.Kubernetes.Namespace}
		if o.Kubeconfig == "" {
			account, err := kubernetes.PodAccount(getenv)
			if err != nil {
				return nil, err
			}
			o.Account = &account
		}
		return kubernetes.NewFleet(o)
	}
	return nil, fmt.Errorf("no store %q", c.Type)
}
