package agent

import (
	"context"
	"errors"
	"testing"

	"hostler.io/hostler/agent/owner"
)

// ownedBy are owners of whom these are seen; the Node is switched as said.
func ownedBy(node owner.Switch, seen map[owner.Job]owner.Owner) *owner.Owners {
	o := owner.New(map[owner.Job]owner.Switch{owner.Node: node}, func(context.Context) map[owner.Job]owner.Owner { return seen }, silent())
	o.Refresh(context.Background())
	return o
}

// What failed before the job was lost is not tried again, and so would never be
// found to work.
func TestTroubleWithALostJobIsForgotten(t *testing.T) {
	a := newRig(t).build(t)
	a.reporter.lastError = errors.New("disk full")
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
		s, err := a.Status(t.Context())
		if err != nil || s.ControlPlane.LastError != step.want {
			t.Errorf("%s: Status() has control plane error %q, %v, want %q", step.what, s.ControlPlane.LastError, err, step.want)
		}
	}
}
