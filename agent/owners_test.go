package agent

import (
	"context"
	"errors"
	"strings"
	"testing"

	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/controlplane/controlplanetest"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/report"
)

// What failed before the job was lost is not tried again, and so would never be
// found to work.
func TestTroubleWithALostJobIsForgotten(t *testing.T) {
	a := newRig(t).build(t)
	full := controlplanetest.NewFake(nil)
	full.Inject(controlplanetest.Any, controlplanetest.Fault{Err: errors.New("disk full")})
	a.client = struct{ controlplane.Client }{full} // to which nobody adds conditions
	a.reporter = report.New(a.reports())
	seen := map[owner.Job]owner.Owner{}
	a.owners = owner.New(nil, func(context.Context) map[owner.Job]owner.Owner { return seen }, silent())
	for _, step := range []struct {
		what, want string
		seen       map[owner.Job]owner.Owner
	}{
		{"alone on the host", "disk full", map[owner.Job]owner.Owner{}},
		{"beside a kubelet", "", map[owner.Job]owner.Owner{owner.Node: {Name: owner.Kubelet}}},
	} {
		seen = step.seen
		a.owners.Refresh(t.Context())
		if err := a.reporter.ReportShutdown(t.Context(), a.guard.Status()); (err != nil) != (step.want != "") {
			t.Errorf("%s: ReportShutdown() = %v, want an error only while the Node is ours", step.what, err)
		}
		s, err := a.Status(t.Context())
		if err != nil || !strings.HasSuffix(s.ControlPlane.LastError, step.want) || step.want == "" && s.ControlPlane.LastError != "" {
			t.Errorf("%s: Status() has control plane error %q, %v, want %q", step.what, s.ControlPlane.LastError, err, step.want)
		}
	}
}
