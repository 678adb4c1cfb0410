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

// Registration is what the control plane has of this host.
type Registration struct {
	ControlPlane *open.ControlPlane
	Reporter     *report.Reporter
	Keeper       *controlplane.LeaseKeeper
	Pacing       *controlplane.Pacing
	Member       *loop.Gate // shut once a person took the Node off the control plane
	Owners       *owner.Owners
	Settings     *settings.Settings
}

// left reports whether a person took the Node off the control plane.
func (r *Registration) left() bool { return r.Member.Reason() != "" }

// status fills in what the control plane has, and whether it gets it.
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
		add   bool // also where the job is a kubelet's
	}{{owner.Node, written, api.CauseNode, adds && r.Owners.Beside()}, {owner.Lease, lease.LastError, api.CauseLease, false}} {
		if !r.Owners.Has(last.job) && !last.add || r.left() { // nothing is tried any more
			continue
		}
		if cause := r.cause(last.err, last.cause); last.err != nil && !slices.Contains(s.ControlPlane.Causes, cause) {
			s.ControlPlane.LastError = strings.TrimPrefix(s.ControlPlane.LastError+"; "+last.err.Error(), "; ")
			s.ControlPlane.Causes = append(s.ControlPlane.Causes, cause)
		}
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

// cause is what an error of the control plane is about, by its type and by how the certificate
// stands; otherwise, if neither tells.
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

// certificateCause is what a client certificate waits for.
func certificateCause(waits error) api.Cause {
	if _, approval := errors.AsType[*certificate.WaitingError](waits); approval {
		return api.CauseApproval
	}
	return api.CauseCertificate
}

// leasePace is nil where nobody requests another pace than is configured.
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

// expired says that the Lease has expired; empty if it has not.
func (r *Registration) expired() string {
	if err := r.Keeper.Stats().Expired(time.Duration(r.Settings.Config().Lease.Duration)); err != nil {
		return err.Error()
	}
	return ""
}

// certificate is the client certificate in use, and why one that is due does not come; nil
// where the control plane takes none from hostler.
func (r *Registration) certificate() (current *tls.Certificate, waits error) {
	keeper := r.ControlPlane.Certificate
	if keeper == nil {
		return nil, nil
	}
	_, waits = keeper.Status()
	current, _ = keeper.Certificate() // waits says why not
	return current, waits
}

// facts fill in what doctor judges of the Node: whether it is this agent's, what keeps it
// from being written, and what of it is not as it is wanted.
func (r *Registration) facts(s *doctor.StoreState) {
	s.Mine = r.Owners.Has(owner.Node)
	if s.Mine && !r.left() {
		_, _, _, s.Writing = r.Reporter.Current()
	}
	standing := r.Reporter.NodeState()
	s.NotWritten, s.Drift, s.LeaseExpired = standing.Waits, nil, r.expired()
	for _, d := range standing.Drift {
		s.Drift = append(s.Drift, doctor.Fix{Message: d.Message, Command: d.Fix})
	}
}
