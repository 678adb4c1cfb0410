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
	"hostler.io/hostler/internal/statefile"
)

// What failed before the job was lost is not tried again, and so would never be
// found to work.
func TestTroubleWithALostJobIsForgotten(t *testing.T) {
	a := newRig(t).build(t)
	full := controlplanetest.NewFake(nil)
	full.Inject(controlplanetest.Any, controlplanetest.Fault{Err: errors.New("disk full")})
	a.join(t, struct{ controlplane.Client }{full}) // to which nobody adds conditions
	seen := map[owner.Job]owner.Owner{}
	a.jobs.Owners = owner.New(nil, func(context.Context) map[owner.Job]owner.Owner { return seen }, silent())
	a.serving.backend.Registers.Owners = a.jobs.Owners
	for _, step := range []struct {
		what, want string
		seen       map[owner.Job]owner.Owner
	}{
		{"alone on the host", "disk full", map[owner.Job]owner.Owner{}},
		{"beside a kubelet", "", map[owner.Job]owner.Owner{owner.Node: {Name: owner.Kubelet}}},
	} {
		seen = step.seen
		a.jobs.Refresh(t.Context())
		if err := a.reports.reporter.ReportShutdown(t.Context(), a.shutdown.guard.Status()); (err != nil) != (step.want != "") {
			t.Errorf("%s: ReportShutdown() = %v, want an error only while the Node is ours", step.what, err)
		}
		s, err := a.serving.backend.Status(t.Context())
		if err != nil || !strings.HasSuffix(s.ControlPlane.LastError, step.want) || step.want == "" && s.ControlPlane.LastError != "" {
			t.Errorf("%s: Status() has control plane error %q, %v, want %q", step.what, s.ControlPlane.LastError, err, step.want)
		}
	}
}

// Else the cluster would take a host for one that starts pods, while the kubelet is
// being upgraded, or before it runs after a boot.
func TestANodeInAClusterStaysTheKubeletsThatDoesNotRun(t *testing.T) {
	notes := statefile.NewMemory().Notes("node")
	open := func(node string) *jobs {
		return &jobs{kubelets: owner.OpenKubeletsNode(notes, node, silent())}
	}
	j := open(nodeName)
	if got := j.reserved(); len(got) != 0 {
		t.Errorf("reserved() before there was a kubelet = %v, want nothing", got)
	}
	j.kubelets.Note(true, false)
	j.kubelets.Note(false, false)
	got := open(nodeName).reserved() // as after a restart
	if len(got) != 2 || got[owner.Node].Name != owner.Kubelet || got[owner.Lease].Name != owner.Kubelet || !strings.Contains(got[owner.Node].Evidence, "node.enabled: true") {
		t.Errorf("reserved() after there was a kubelet = %v, want node and lease the kubelet's, and how to change that", got)
	}
	if got := open("other").reserved(); len(got) != 0 {
		t.Errorf("reserved() of another Node = %v, want nothing", got)
	}
	j.kubelets.Note(false, true)
	if got := open(nodeName).reserved(); len(got) != 0 {
		t.Errorf("reserved() once a person has switched the job on = %v, want nothing", got)
	}
}

// A Lease that is renewed would keep a Node Ready of which nobody tells any more.
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
