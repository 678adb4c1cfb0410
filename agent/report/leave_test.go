package report

import (
	"errors"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/controlplane/controlplanetest"
)

func TestANodeThatHasLeftIsNotRegisteredAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		rest bool
		says string
	}{
		"it is gone":                        {nil, true, "alice took the Node off the control plane"},
		"somebody with the right has to":    {controlplane.ErrForbidden, true, "which somebody with the right has to do"},
		"the control plane does not answer": {controlplane.ErrUnavailable, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, d *desk) {
				d.start(t)
				d.watch(t)
				if c.err != nil {
					d.client.Inject(controlplanetest.Leave, controlplanetest.Fault{Err: c.err})
				}
				if err := d.Leave(t.Context(), "alice"); !errors.Is(err, c.err) {
					t.Errorf("Leave() = %v, want %v", err, c.err)
				}
				written := d.client.Calls(controlplanetest.UpdateStatus)
				if c.err == controlplane.ErrForbidden { // who has the right does so
					d.client.Heal()
					if err := d.client.Leave(t.Context(), nodeName); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Hour)
				if got := d.client.Calls(controlplanetest.UpdateStatus) == written && d.client.Calls(controlplanetest.Register) == 1; got != c.rest {
					t.Errorf("nothing written after it: %v, want %v", got, c.rest)
				}
				if got := d.stored(t) == nil; got != c.rest {
					t.Errorf("the Node is gone: %v, want %v", got, c.rest)
				}
				if s := d.Standing(); !strings.Contains(s.Waits, c.says) || (s.Waits == "") == c.rest {
					t.Errorf("Standing() = %+v, want that it says %q", s, c.says)
				}
				if n, _, _, err := d.Current(); n == nil || err != nil {
					t.Errorf("Current() = %v, %v, want the host known all the same", n, err)
				}
				next := d.again(t, "one")
				if err := next.once(t.Context(), nil); err != nil || d.stored(t) == nil {
					t.Errorf("a round of the next start = %v, want the Node registered", err)
				}
			})
		})
	}
}

func TestAKubeletsNodeIsNotTakenAway(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		d.beside()
		d.client.Create(d.kubelets())
		if err := d.Leave(t.Context(), "alice"); !errors.Is(err, ErrNotOurs) || d.stored(t) == nil {
			t.Errorf("Leave() = %v, want it refused", err)
		}
	})
}
