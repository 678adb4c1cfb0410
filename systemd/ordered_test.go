package systemd_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

func TestOrderedAfter(t *testing.T) {
	service := func(more systemdtest.UnitState) systemdtest.UnitState {
		state := systemdtest.UnitState{"ActiveState": "active", "MainPID": uint32(20)}
		maps.Copy(state, more)
		return state
	}
	ended := func(more systemdtest.UnitState) systemdtest.UnitState { // Type=oneshot with RemainAfterExit=yes
		state := service(systemdtest.UnitState{"SubState": "exited", "MainPID": uint32(0)})
		maps.Copy(state, more)
		return state
	}
	command := []systemdtest.Command{{Path: "/bin/true", Arguments: []string{"true"}}}
	before := func(names ...string) systemdtest.UnitState { return systemdtest.UnitState{"Before": names} }
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	fake.SetManager(systemdtest.ManagerState{
		Service: systemdtest.ServiceState{Name: "hostler.service", ActiveState: "active", MainPID: uint32(os.Getpid()), Members: []uint32{uint32(os.Getpid())}},
		Units: map[string]systemdtest.UnitState{
			"hostler.service":    service(systemdtest.UnitState{"Id": "hostler.service", "After": []string{"containerd.service", "docker.service", "network.target"}, "Before": []string{"late.service"}}),
			"db.service":         service(before("app.service", "multi-user.target", "shutdown.target", "hostler.service")),
			"app.service":        service(before("web.service")),
			"web.service":        service(nil),
			"multi-user.target":  {"ActiveState": "active", "Before": []string{"last.service", "oneshot.service", "dump.service", "wipe.service", "forks.service", "gone.service"}},
			"last.service":       service(nil),
			"oneshot.service":    ended(nil),
			"dump.service":       ended(systemdtest.UnitState{"ExecStop": command}),
			"wipe.service":       ended(systemdtest.UnitState{"ExecStopPost": command}),
			"forks.service":      service(systemdtest.UnitState{"SubState": "running", "MainPID": uint32(0)}),
			"gone.service":       service(systemdtest.UnitState{"ActiveState": "inactive", "Before": []string{"behind.service"}}),
			"behind.service":     service(nil),
			"shutdown.target":    {"ActiveState": "inactive", "Before": []string{"reboot.service"}},
			"reboot.service":     service(nil),
			"docker.service":     service(before("proxy.service", "compose.service")),
			"compose.service":    ended(systemdtest.UnitState{"ExecStop": command}), // docker compose down
			"proxy.service":      service(nil),
			"late.service":       service(nil),
			"containerd.service": service(before("docker.service")),
		},
	})
	m := systemd.NewManager(fake.ManagerSocket())
	for name, want := range map[string]string{
		"db.service": "map[app.service:[web.service] db.service:[app.service dump.service forks.service last.service late.service web.service wipe.service] " +
			"dump.service:[] forks.service:[] last.service:[] late.service:[] web.service:[] wipe.service:[]]",
		"web.service":        "map[web.service:[]]",
		"containerd.service": "map[compose.service:[] containerd.service:[proxy.service] proxy.service:[]]",
		"unknown.service":    "map[unknown.service:[]]",
	} {
		if got, err := m.OrderedAfter(t.Context(), name); err != nil || fmt.Sprint(got) != want {
			t.Errorf("OrderedAfter(%s) = %v, %v, want %s", name, got, err, want)
		}
	}
	if got, err := systemd.NewManager(filepath.Join(t.TempDir(), "none")).OrderedAfter(t.Context(), "db.service"); len(got) > 0 || err != nil {
		t.Errorf("OrderedAfter() without systemd = %v, %v, want none", got, err)
	}
}
