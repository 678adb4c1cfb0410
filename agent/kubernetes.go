package agent

import (
	"cmp"
	"context"
	"crypto/tls"

	"k8s.io/klog/v2"

	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
)

// openKubernetes opens a cluster: with the credentials of a kubeconfig, or where
// there is one to bootstrap by with a certificate that a loop gets and renews.
func (a *Agent) openKubernetes() (*kubernetes.Client, error) {
	klog.SetSlogLogger(a.log) // client-go's only way to speak
	c := a.cfg.ControlPlane.Kubernetes
	plain := kubernetes.Options{Kubeconfig: cmp.Or(c.Kubeconfig, c.BootstrapKubeconfig), Version: a.options.Version, Log: a.log}
	if c.BootstrapKubeconfig == "" {
		return kubernetes.New(plain)
	}
	byToken := plain
	byToken.Kubeconfig = c.BootstrapKubeconfig
	first, err := kubernetes.NewRequests(byToken)
	if err != nil {
		return nil, err
	}
	own := plain
	own.Certificate = func() (*tls.Certificate, error) { return a.certificate.Certificate() }
	own.Refused = func() { a.certificate.Doubt() }
	later, err := kubernetes.NewRequests(own)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.New(own)
	if err != nil {
		return nil, err
	}
	a.certificate, err = certificate.New(certificate.Options{
		Node: a.node, Directory: c.CertificateDirectory, Bootstrap: first, Renewal: later, Log: a.log,
		Try: func(ctx context.Context, c *tls.Certificate) error { return kubernetes.Try(ctx, plain, a.node, c) },
		Renewed: func() {
			client.Reconnect()
			later.Reconnect()
			a.reporter.Changed() // it need not wait for its next look
		},
	})
	return client, err
}
