package inspect

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/conformance"
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
	"hostler.io/hostler/internal/statefile"
)

// Verifier opens the configured control plane without an agent, and verifies that it behaves as
// hostler needs.
type Verifier struct {
	Config     config.Config
	Kubeconfig string // has the credentials to use; empty for those in the configuration
	Version    string
}

// Verification is the result.
type Verification struct {
	ControlPlane VerifiedControlPlane `json:"controlPlane"`
	Checks       []conformance.Result `json:"checks"`
	Note         string               `json:"note,omitempty"` // what the checks do not cover
	Hint         string               `json:"hint,omitempty"` // how to run more checks
}

// VerifiedControlPlane is what was verified.
type VerifiedControlPlane struct {
	Type     string `json:"type"`
	Endpoint string `json:"endpoint"`
	Prefix   string `json:"prefix"` // of the names of all test objects
}

// Count returns the number of checks with this status.
func (v Verification) Count(s conformance.Status) int {
	n := 0
	for _, c := range v.Checks {
		if c.Status == s {
			n++
		}
	}
	return n
}

// Left returns the prefixes of objects that could not be deleted.
func (v Verification) Left() (names []string) {
	for _, c := range v.Checks {
		names = append(names, c.Left...)
	}
	return names
}

// Verify runs the checks, and deletes the objects that they create, even after ctx has ended. It
// calls report for each result. The error says that the control plane cannot be opened or verified.
// If there are results too, it may also be that it cannot be closed.
func (v Verifier) Verify(ctx context.Context, checks []conformance.Check, report func(conformance.Result)) (Verification, error) {
	memory := statefile.NewMemory()
	client, err := v.open(memory)
	if err != nil {
		return Verification{}, err
	}
	b := conformance.Backend{Client: client, Prefix: conformance.NewPrefix()}
	b.Restart = func(context.Context) (controlplane.Client, error) {
		next, err := v.open(memory)
		if err != nil {
			return nil, err
		}
		return next, b.Client.Close()
	}
	found := Verification{ControlPlane: VerifiedControlPlane{Type: client.Type(), Prefix: b.Prefix}}
	if client.Type() == embedded.Type {
		b.MaxEvents = embedded.MaxEvents
		b.Inject = func(conformance.Fault) (func(), error) {
			return nil, &conformance.AbsentError{Why: "there is no server: it is in the agent itself"}
		}
		found.Note = "the state that it keeps is the agent's alone: another one in memory is verified, which begins empty"
	}
	found.Checks, err = conformance.Verify(ctx, &b, checks, report)
	forbidden := slices.ContainsFunc(found.Checks, func(r conformance.Result) bool { return r.Forbidden })
	if forbidden && client.Type() == kubernetes.Type && v.Kubeconfig == "" {
		found.Hint = "a node may touch its own Node only: --kubeconfig with credentials that may create, change and delete Nodes has all of them tried"
	}
	found.ControlPlane.Endpoint = b.Client.Endpoint() // some clients know their endpoint only after a request
	if err != nil {
		err = fmt.Errorf("verify control plane %s at %s: %w", client.Type(), found.ControlPlane.Endpoint, err)
	}
	return found, errors.Join(err, b.Client.Close())
}

// Remove deletes the objects that verifications left under these names.
func (v Verifier) Remove(ctx context.Context, names []string) error {
	client, err := v.open(statefile.NewMemory())
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		errs = append(errs, conformance.Remove(ctx, client, name))
	}
	return errors.Join(append(errs, client.Close())...)
}

// open opens the control plane. The embedded one uses memory as its state.
func (v Verifier) open(memory *statefile.Folder) (controlplane.Client, error) {
	if kind := v.Config.ControlPlane.Type; v.Kubeconfig != "" && kind != kubernetes.Type {
		return nil, fmt.Errorf("kubeconfig %s does not apply to control plane %s: omit --kubeconfig, or use --config with controlPlane.type: kubernetes", v.Kubeconfig, kind)
	}
	log := slog.New(slog.DiscardHandler)
	if v.Config.ControlPlane.Type == kubernetes.Type {
		return v.openKubernetes(log)
	}
	opened, err := open.NewControlPlane(v.Config.ControlPlane, open.ControlPlaneOptions{Version: v.Version, State: memory, Endpoint: "memory", Log: log})
	if err != nil {
		return nil, err
	}
	return opened.Client, nil
}

// openKubernetes opens the cluster with the kubeconfig of the command line, or with this host's
// credentials. If the host joined by bootstrap, they are the stored client certificate.
func (v Verifier) openKubernetes(log *slog.Logger) (*kubernetes.Client, error) {
	kubernetes.LogTo(log)
	k := v.Config.ControlPlane.Kubernetes
	o := kubernetes.Options{Kubeconfig: cmp.Or(v.Kubeconfig, k.Kubeconfig, k.BootstrapKubeconfig), Version: v.Version, PluginUser: k.ExecPluginUser, Log: log}
	if v.Kubeconfig != "" { // the user who runs the command has chosen it
		o.PluginUser = config.UserRoot
	}
	if v.Kubeconfig == "" && k.BootstrapKubeconfig != "" {
		name, err := open.NodeName(v.Config)
		if err != nil {
			return nil, err
		}
		current, err := certificate.Stored(k.CertificateDirectory, name)
		if err != nil {
			return nil, err
		}
		if current == nil {
			return nil, fmt.Errorf("no certificate of node %q in %s yet: start the agent to request one, or use --kubeconfig", name, k.CertificateDirectory)
		}
		o.Certificate = func() (*tls.Certificate, error) { return current, nil }
	}
	return kubernetes.New(o)
}
