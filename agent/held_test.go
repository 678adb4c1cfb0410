package agent

import (
	"context"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/reboot"
)

// TestAHostThatIsNotProtected has a shutdown that does not wait for pods. Beside a kubelet, that holds a reboot in turn.
// Without one, hostler stops all pods before the command, and says so.
func TestAHostThatIsNotProtected(t *testing.T) {
	for name, c := range map[string]struct {
		kubelet bool
		held    bool
	}{
		"beside a kubelet":               {true, true},
		"pods that hostler itself stops": {false, false},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t)
			rig.cfg.Node.Enabled, rig.cfg.Shutdown.Enabled = config.Auto, config.Off
			a := rig.build(t)
			scan := func(context.Context, map[owner.Job]owner.Owner) map[owner.Job]owner.Owner {
				if c.kubelet {
					return map[owner.Job]owner.Owner{owner.Node: {Name: owner.Kubelet}}
				}
				return map[owner.Job]owner.Owner{}
			}
			a.owners = owner.New(switches(rig.cfg), scan, discard())
			a.owners.Refresh(t.Context())
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- a.shutdown.guard.Run(ctx) }()
			_ = a.shutdown.guard.Refusal(ctx) // the guard has started
			held := rebootHost{a: a}.Held()
			unprotected := rebootHost{a: a}.unprotected()
			cancel()
			<-ended
			i := slices.IndexFunc(held, func(f reboot.Finding) bool { return f.Source == "protection" })
			if is := i >= 0 && !held[i].Pending && strings.Contains(held[i].Message, "will not wait"); is != c.held {
				t.Errorf("Held() = %+v, want protection among them: %t", held, c.held)
			}
			if (unprotected == "") != c.held {
				t.Errorf("unprotected() = %q, want the reason unless it holds a reboot", unprotected)
			}
		})
	}
}
