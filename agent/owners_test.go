package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// A failed operation is not repeated after the job is lost, so its error would never be cleared.
func TestTheErrorOfALostJobIsCleared(t *testing.T) {
	a := newRig(t).build(t)
	full := controlplanetest.NewFake(nil)
	full.Inject(controlplanetest.Any, controlplanetest.Fault{Err: errors.New("disk full")})
	seen := map[owner.Job]owner.Owner{}
	scan := func(context.Context, map[owner.Job]owner.Owner) map[owner.Job]owner.Owner { return seen }
	a.joinAs(t, struct{ controlplane.Client }{full}, owner.New(nil, scan, discard()), nil) // a client that cannot add conditions
	for _, step := range []struct {
		what, want string
		seen       map[owner.Job]owner.Owner
	}{
		{"alone on the host", "disk full", map[owner.Job]owner.Owner{}},
		{"beside a kubelet", "", map[owner.Job]owner.Owner{owner.Node: {Name: owner.Kubelet}}},
	} {
		seen = step.seen
		a.owners.Refresh(t.Context())
		if err := a.reports.reporter.ReportShutdown(t.Context(), a.shutdown.guard.Status()); (err != nil) != (step.want != "") {
			t.Errorf("%s: ReportShutdown() = %v, want an error only while the Node is ours", step.what, err)
		}
		s, err := a.serving.backend.Status(t.Context())
		if err != nil || !strings.HasSuffix(s.ControlPlane.LastError, step.want) || step.want == "" && s.ControlPlane.LastError != "" {
			t.Errorf("%s: Status() has control plane error %q, %v, want %q", step.what, s.ControlPlane.LastError, err, step.want)
		}
	}
}

// A renewed Lease would keep a Node Ready that nobody updates.
func TestTheLeaseIsSwitchedOffWithTheNode(t *testing.T) {
	for _, c := range []struct{ node, lease, want config.Switch }{
		{config.Off, config.Auto, config.Off},
		{config.Off, config.On, config.On},
		{config.Auto, config.Auto, config.Auto},
		{config.Auto, config.Off, config.Off},
		{config.On, config.Auto, config.Auto},
	} {
		cfg := config.Default()
		cfg.Node.Enabled, cfg.Lease.Enabled = c.node, c.lease
		if got := switches(cfg); got[owner.Lease] != owner.Switch(c.want) || got[owner.Node] != owner.Switch(c.node) {
			t.Errorf("node.enabled: %s, lease.enabled: %s: the lease is switched %s, want %s", c.node, c.lease, got[owner.Lease], c.want)
		}
	}
}
