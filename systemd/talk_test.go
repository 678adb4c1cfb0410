package systemd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

// The names have characters that object paths must escape; one unit does not exist.
func TestUnitsWithAnyNameAreReported(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{Units: map[string]systemdtest.UnitState{
		"9p@-dev-disk-by\\x2dlabel_1.service": {"ActiveState": "active"},
		"-.mount":                             {},
	}})
	names := []string{"9p@-dev-disk-by\\x2dlabel_1.service", "none.service", "-.mount"}
	err := systemd.NewManager(fake.ManagerSocket()).Ask(t.Context(), func(ctx context.Context, talk *systemd.Talk) {
		for i, u := range talk.Units(ctx, names...) {
			want := []string{"loaded active", "not-found inactive", "loaded inactive"}[i]
			if got := u.LoadState + " " + u.ActiveState; u.Name != names[i] || got != want || u.Err != nil {
				t.Errorf("Units() = %+v, want %s to be %s", u, names[i], want)
			}
		}
	})
	if err != nil {
		t.Errorf("Ask() = %v, want no error", err)
	}
}

func TestScopesAreDistinguished(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	active := func(more systemdtest.UnitState) systemdtest.UnitState {
		state := systemdtest.UnitState{"ActiveState": "active"}
		maps.Copy(state, more)
		return state
	}
	fake.SetManager(systemdtest.ManagerState{Units: map[string]systemdtest.UnitState{
		"hostler.service":   {"After": []string{"docker-a.scope", "docker-gone.scope"}},
		"docker-a.scope":    active(systemdtest.UnitState{"Before": []string{"hostler.service"}}),
		"docker-late.scope": active(systemdtest.UnitState{"Before": []string{"hostler.service"}}), // it is not in hostler.service's property After
		"docker-b.scope":    active(systemdtest.UnitState{"Before": []string{"shutdown.target"}}),
		"docker-end.scope":  {"ActiveState": "failed"},
		"session-1.scope":   active(nil),
	}})
	err := systemd.NewManager(fake.ManagerSocket()).Ask(t.Context(), func(ctx context.Context, talk *systemd.Talk) {
		want := map[string]bool{"docker-a.scope": true, "docker-late.scope": true, "docker-b.scope": false}
		if got, err := talk.Scopes(ctx, "hostler.service", "docker-*.scope", "libpod-*.scope"); err != nil || !maps.Equal(got, want) {
			t.Errorf("Scopes() = %v, %v, want %v", got, err, want)
		}
	})
	if err != nil {
		t.Errorf("Ask() = %v, want no error", err)
	}
}

func TestALateAnswerDoesNotAffectOthers(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	units, names := map[string]systemdtest.UnitState{}, []string{}
	for i := range 20 {
		name := fmt.Sprintf("%d.timer", i)
		units[name], names = systemdtest.UnitState{"ActiveState": "active", "Triggers": []string{"a.service"}}, append(names, name)
	}
	fake.SetManager(systemdtest.ManagerState{Units: units})
	for what, c := range map[string]struct {
		within time.Duration
		ask    func(context.Context, *systemd.Talk) (reported int, failed error)
	}{
		"Units": {1500 * time.Millisecond, func(ctx context.Context, talk *systemd.Talk) (reported int, failed error) {
			for _, u := range talk.Units(ctx, names...) {
				if u.Err != nil {
					failed = u.Err
				} else if reported++; u.LoadState != "loaded" {
					t.Errorf("Units() = %+v, want it as it is", u)
				}
			}
			return reported, failed
		}},
		"Scopes": {1500 * time.Millisecond, func(ctx context.Context, talk *systemd.Talk) (int, error) {
			reported, err := talk.Scopes(ctx, "hostler.service", "*.timer")
			return len(reported), err
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.within)
			defer cancel()
			err := fake.SlowManager(100*time.Millisecond).Ask(ctx, func(ctx context.Context, talk *systemd.Talk) {
				if reported, failed := c.ask(ctx, talk); reported == 0 || reported >= len(names) || !errors.Is(failed, context.DeadlineExceeded) {
					t.Errorf("%s() reported %d of %d, and then %v, want some, and that others were too late", what, reported, len(names), failed)
				}
			})
			if err != nil {
				t.Errorf("%s: Ask() = %v, want no error", what, err)
			}
		})
	}
}
