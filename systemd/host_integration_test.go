//go:build integration

package systemd_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/test/lab"
)

// execution is a command as systemd tells it: path, arguments, whether its failure is
// ignored, and how it went.
type execution struct {
	Path                                string
	Arguments                           []string
	Ignored                             bool
	Started, StartedMono, Ended, EndedM uint64
	PID                                 uint32
	Code, Status                        int32
}

func TestManagerTellsHowServicesAreRun(t *testing.T) {
	bed := newRealBed(t)
	bed.login.Manager.SetUnit("hostler.service", map[string]any{
		"ExecStart":     []execution{{Path: "/usr/bin/hostler", Arguments: []string{"/usr/bin/hostler", "agent", "--config", "/srv/a.yaml"}}},
		"ExecStartPost": []execution{{Path: "/bin/true", Arguments: []string{"/bin/true"}}},
		"Environment":   []string{"A=b c"}, "WatchdogUSec": uint64(60_000_000),
	})
	bed.login.Manager.SetUnit("tidy.timer", map[string]any{"Triggers": []string{"hostler.service"}})
	bed.login.Manager.SetUnit("a.timer", map[string]any{"Triggers": []string{"none.service"}})
	bed.login.Manager.SetUnit("off.timer", map[string]any{"Triggers": []string{"hostler.service"}, "ActiveState": "inactive"})
	manager := systemd.NewManager(lab.PrivateSocket)
	want := systemd.Run{Commands: [][]string{{"/usr/bin/hostler", "agent", "--config", "/srv/a.yaml"}, {"/bin/true"}}, Environment: []string{"A=b c"}, Watchdog: time.Minute}
	if got, err := manager.Run(t.Context(), "hostler.service"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Run() = %+v, %v, want %+v", got, err, want)
	}
	if got, err := manager.Run(t.Context(), "none.service"); err != nil || !reflect.DeepEqual(got, systemd.Run{}) {
		t.Errorf("Run() of none = %+v, %v, want nothing", got, err)
	}
	timers := []systemd.Timer{{Name: "a.timer", Runs: []systemd.Run{{}}}, {Name: "tidy.timer", Runs: []systemd.Run{want}}}
	check(t, manager.Ask(t.Context(), func(ctx context.Context, talk *systemd.Talk) {
		if got, err := talk.Timers(ctx); err != nil || !reflect.DeepEqual(got, timers) {
			t.Errorf("Timers() = %+v, %v, want %+v", got, err, timers)
		}
	}))
}
