package backend

import (
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/status/report"
)

// Registration answers what the control plane stores about this host.
type Registration struct {
	ControlPlane *open.ControlPlane
	Reporter     *report.Reporter
	Keeper       *controlplane.LeaseKeeper
	Pacing       *controlplane.Pacing
	Member       *loop.Gate // closed after a user deregistered the host
	Owners       *owner.Owners
	Settings     *settings.Settings
}

// left reports whether a user deregistered the host.
func (r *Registration) left() bool { return r.Member.Reason() != "" }

// status fills in what the control plane stores, and whether the writes succeed.
func (r *Registration) status(s *api.Status, node *corev1.Node, connected bool, written error) {
	lease := r.Keeper.Stats()
	s.Node = node
	if !r.left() {
		s.Lease = lease.Lease
	}
	s.ControlPlane = api.ControlPlane{Type: r.ControlPlane.Type(), Endpoint: r.ControlPlane.Endpoint(), Connected: connected}
	_, adds := r.ControlPlane.Client.(controlplane.ConditionWriter)
	for _, last := range []struct {
		job   owner.Job
		err   error
		cause api.Cause
		add   bool // applies even if a kubelet does the job
	}{{owner.Node, written, api.CauseNode, adds && r.Owners.Beside()}, {owner.Lease, lease.LastError, api.CauseLease, false}} {
		if !r.Owners.Has(last.job) && !last.add || r.left() { // hostler no longer tries to write it
			continue
		}
		if cause := r.cause(last.err, last.cause); last.err != nil && !slices.Contains(s.ControlPlane.Causes, cause) {
			s.ControlPlane.LastError = strings.TrimPrefix(s.ControlPlane.LastError+"; "+last.err.Error(), "; ")
			s.ControlPlane.Causes = append(s.ControlPlane.Causes, cause)
		}
	}
	if slices.Contains(s.ControlPlane.Causes, api.CauseUnreachable) {
		s.ControlPlane.Connected = false // the last write of the Node may be older than the failure
	}
	standing := r.Reporter.NodeState()
	s.ControlPlane.Paused = standing.Waits
	for _, d := range standing.Drift {
		s.Drift = append(s.Drift, api.Drift(d))
	}
	if _, waits := r.certificate(); waits != nil {
		s.ControlPlane.Credentials, s.ControlPlane.CredentialsCause = waits.Error(), certificateCause(waits)
	}
	if s.ControlPlane.Overdue = r.expired(); s.ControlPlane.Overdue != "" {
		s.ControlPlane.OverdueCause = r.cause(lease.LastError, api.CauseLease)
	}
	s.LeasePace = leasePace(r.Pacing.Pace())
	if d := r.Reporter.Decided(); d != nil {
		s.Cordon = &maintenance.Cordon{Unschedulable: d.Unschedulable, By: d.By, At: d.At, Pending: !d.Delivered}
	}
}

// cause returns the cause of a control-plane error, from its type and the state of the certificate.
// If neither decides, it returns otherwise.
func (r *Registration) cause(err error, otherwise api.Cause) api.Cause {
	if r.ControlPlane.Certificate != nil {
		switch current, waits := r.certificate(); {
		case current == nil:
			return certificateCause(waits)
		case errors.Is(err, controlplane.ErrUnauthorized):
			return api.CauseRefused
		}
	}
	if _, taken := errors.AsType[*controlplane.IdentityError](err); taken {
		return api.CauseIdentity
	}
	if errors.Is(err, controlplane.ErrUnavailable) && !errors.Is(err, controlplane.ErrUnauthorized) && !errors.Is(err, controlplane.ErrUntrusted) {
		return api.CauseUnreachable
	}
	return otherwise
}

// certificateCause returns the cause why a client certificate is delayed.
func certificateCause(waits error) api.Cause {
	if _, approval := errors.AsType[*certificate.WaitingError](waits); approval {
		return api.CauseApproval
	}
	return api.CauseCertificate
}

// leasePace returns nil if the configured duration applies and no request is invalid.
func leasePace(p controlplane.Pace) *api.LeasePace {
	if p.By == "" && len(p.Faults) == 0 {
		return nil
	}
	pace := &api.LeasePace{Duration: metav1.Duration{Duration: p.Duration}, By: p.By}
	for _, f := range p.Faults {
		pace.Faults = append(pace.Faults, api.Drift(f))
	}
	return pace
}

// expired returns the error that the Lease has expired; empty if it has not.
func (r *Registration) expired() string {
	if err := r.Keeper.Stats().Expired(time.Duration(r.Settings.Config().Lease.Duration)); err != nil {
		return err.Error()
	}
	return ""
}

// certificate returns the client certificate in use, and why a new one is delayed. Both are nil if
// hostler does not manage a client certificate.
func (r *Registration) certificate() (current *tls.Certificate, waits error) {
	keeper := r.ControlPlane.Certificate
	if keeper == nil {
		return nil, nil
	}
	_, waits = keeper.Status()
	current, _ = keeper.Certificate() // if there is none, waits says why
	return current, waits
}

// facts fills in what doctor checks about the Node: whether hostler writes it, why a write fails,
// and where it differs from the configuration.
func (r *Registration) facts(s *doctor.StoreState) {
	s.Managed = r.Owners.Has(owner.Node)
	if s.Managed && !r.left() {
		_, _, _, s.WriteErr = r.Reporter.Current()
	}
	standing := r.Reporter.NodeState()
	s.NotWritten, s.Drift, s.LeaseExpired = standing.Waits, nil, r.expired()
	for _, d := range standing.Drift {
		s.Drift = append(s.Drift, doctor.Fix{Message: d.Message, Command: d.Fix})
	}
}
