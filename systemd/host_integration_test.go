//go:build integration

package systemd_test

import (
	"reflect"
	"testing"
	"time"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/test/lab"
)

// execution is a command in systemd's format: path, arguments, whether failures are ignored, and
// the last run.
type execution struct {
	Path                                string
	Arguments                           []string
	Ignored                             bool
	Started, StartedMono, Ended, EndedM uint64
	PID                                 uint32
	Code, Status                        int32
}

func TestManagerReportsHowServicesAreRun(t *testing.T) {
	bed := newRealBed(t)
	bed.login.Manager.SetUnit("hostler.service", map[string]any{
		"ExecStart":     []execution{{Path: "/usr/bin/hostler", Arguments: []string{"/usr/bin/hostler", "agent", "--config", "/srv/a.yaml"}}},
		"ExecStartPost": []execution{{Path: "/bin/true", Arguments: []string{"/bin/true"}}},
		"Environment":   []string{"A=b c"}, "WatchdogUSec": uint64(60_000_000),
	})
	manager := systemd.NewManager(lab.PrivateSocket)
	want := systemd.Run{Commands: [][]string{{"/usr/bin/hostler", "agent", "--config", "/srv/a.yaml"}}, Environment: []string{"A=b c"}, Watchdog: time.Minute}
	if got, err := manager.Run(t.Context(), "hostler.service"); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Run() = %+v, %v, want %+v", got, err, want)
	}
	if got, err := manager.Run(t.Context(), "none.service"); err != nil || !reflect.DeepEqual(got, systemd.Run{}) {
		t.Errorf("Run() of none = %+v, %v, want nothing", got, err)
	}
}
