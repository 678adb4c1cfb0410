package inspect

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
)

// clusterTimeout bounds the requests to the cluster.
const clusterTimeout = 5 * time.Second

// clusterAlone checks the cluster if the agent does not answer.
func clusterAlone(ctx context.Context, cfg config.Config, mine bool, log *slog.Logger) (*doctor.Cluster, error) {
	if cfg.ControlPlane.Type != kubernetes.Type {
		return nil, nil
	}
	file := cmp.Or(cfg.ControlPlane.Kubernetes.Kubeconfig, cfg.ControlPlane.Kubernetes.BootstrapKubeconfig)
	if servicesOwn(kubernetes.Files(file)...) {
		return &doctor.Cluster{Unchecked: true}, nil
	}
	name, err := open.NodeName(cfg)
	if err != nil {
		return nil, err
	}
	var current *tls.Certificate
	var waits error
	if k := cfg.ControlPlane.Kubernetes; k.BootstrapKubeconfig != "" {
		if current, waits = certificate.Stored(k.CertificateDirectory, name); current == nil && waits == nil {
			waits = fmt.Errorf("%w: none in %s; the agent has to request one", controlplane.ErrUnavailable, k.CertificateDirectory)
		}
	}
	c := Cluster(ctx, cfg, name, "doctor", current, waits, log)
	if c.Managed = mine; !mine || cfg.Lease.Enabled == config.Off {
		c.LeaseExpired = ""
	}
	return c, nil
}

// Cluster checks the cluster with the credentials of this Node: the client certificate if the host
// joined by bootstrap, otherwise those in the kubeconfig.
func Cluster(ctx context.Context, cfg config.Config, node, version string, current *tls.Certificate, waits error, log *slog.Logger) *doctor.Cluster {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	k := cfg.ControlPlane.Kubernetes
	file := cmp.Or(k.Kubeconfig, k.BootstrapKubeconfig)
	c := &doctor.Cluster{Node: node, Kubeconfig: file, CertificateErr: waits}
	held, err := kubernetes.Credentials(file)
	secrets := held.Secrets
	o := kubernetes.Options{Kubeconfig: file, Version: version, PluginUser: k.ExecPluginUser, Log: log}
	switch {
	case k.BootstrapKubeconfig == "":
		if !held.Ends.IsZero() {
			c.Certificate = &doctor.Certificate{Path: held.Certificate, Begins: held.Begins, Ends: held.Ends}
		}
	case current == nil:
		c.Exposed = Exposed(secrets)
		c.Err = cmp.Or(err, waits)
		return c
	default:
		path := filepath.Join(k.CertificateDirectory, certificate.FileCurrent)
		secrets = append(slices.Clone(secrets), path)
		_, refused := errors.AsType[*certificate.RefusedError](waits)
		c.Certificate = &doctor.Certificate{Path: path, Begins: current.Leaf.NotBefore, Ends: current.Leaf.NotAfter, Renewed: true, Refused: refused}
		o.Certificate = func() (*tls.Certificate, error) { return current, nil }
	}
	c.Exposed = Exposed(secrets)
	rights := kubernetes.Needed(node)
	s := kubernetes.Diagnose(ctx, o, node, append(slices.Clone(rights), kubernetes.ToLeave(node)))
	c.Server, c.Err, c.Now, c.Skew, c.Found = s.Server, s.Err, s.Now, s.Skew, s.Node != nil
	if s.Node != nil {
		for name, last := range kubernetes.Writers(s.Node) {
			c.Others = append(c.Others, doctor.Writer{Name: name, Last: last})
		}
	}
	if l := s.Lease; l != nil && l.Spec.RenewTime != nil && l.Spec.LeaseDurationSeconds != nil && !controlplane.LeaseAlive(l, time.Now()) { // the Lease has the time of its own host's clock
		c.LeaseExpired = fmt.Sprintf("its lease was renewed last on %s, and is good for %ds only", l.Spec.RenewTime.UTC().Format(time.RFC3339), *l.Spec.LeaseDurationSeconds)
	}
	c.Rights = doctor.Rights{Checked: s.Rights != nil || s.RightsErr != nil, Err: s.RightsErr}
	for i, allowed := range s.Rights {
		switch {
		case i == len(rights):
			c.Rights.Delete = allowed
		case !allowed:
			c.Rights.Missing = append(c.Rights.Missing, rights[i].String())
		}
	}
	return c
}

// Exposed returns the files that users other than root can read.
func Exposed(files []string) []string {
	var open []string
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil {
			continue // the check that reads the file reports the error
		}
		mode := info.Mode().Perm()
		if owner, known := info.Sys().(*syscall.Stat_t); known && owner.Gid == 0 {
			mode &^= 0o070
		}
		if mode&0o077 != 0 {
			open = append(open, file)
		}
	}
	return open
}
