package systemd_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
)

// Units that this boot will still start have a start job, or are mounts that it should have
// mounted.
func TestPendingUnits(t *testing.T) {
	type units = map[string]systemdtest.UnitState
	state := func(active string, more ...any) systemdtest.UnitState {
		u := systemdtest.UnitState{"ActiveState": active}
		for i := 0; i < len(more); i += 2 {
			u[more[i].(string)] = more[i+1]
		}
		return u
	}
	const job = systemdtest.ListedJob
	remote := []string{"remote-fs.target"}
	for name, tt := range map[string]struct {
		units units
		want  string
	}{
		"all is up":                              {units{"network-online.target": state("active"), "mnt-nas.mount": state("active", "WantedBy", remote)}, ""},
		"the network is awaited":                 {units{"network-online.target": state("inactive", job, "start")}, "network-online.target  true"},
		"nobody wants the network":               {units{"network-online.target": state("inactive")}, ""},
		"a mount has a job":                      {units{"mnt-nas.mount": state("inactive", job, "start", "WantedBy", remote)}, "mnt-nas.mount /mnt/nas true"},
		"a mount is being made":                  {units{"mnt-nas.mount": state("activating", job, "start")}, "mnt-nas.mount /mnt/nas true"},
		"a mount is about to be unmounted":       {units{"mnt-nas.mount": state("inactive", job, "stop")}, ""},
		"a mount has failed":                     {units{"mnt-nas.mount": state("failed", "RequiredBy", remote)}, "mnt-nas.mount /mnt/nas false"},
		"its device did not come":                {units{"srv.mount": state("inactive", "WantedBy", []string{"local-fs.target"})}, "srv.mount /srv false"},
		"a person mounts it if need be (noauto)": {units{"mnt-usb.mount": state("inactive")}, ""},
		"a service that runs wants it":           {units{"mnt-db.mount": state("failed", "WantedBy", []string{"db.service"}), "db.service": state("active")}, "mnt-db.mount /mnt/db false"},
		"a service that does not run wants it":   {units{"mnt-db.mount": state("inactive", "RequiredBy", []string{"db.service"}), "db.service": state("inactive")}, ""},
		"it is masked":                           {units{"mnt-nas.mount": state("inactive", "LoadState", "masked", "WantedBy", remote)}, ""},
		"its condition is not met":               {units{"sys-kernel-debug.mount": state("inactive", "ConditionTimestamp", uint64(1), "ConditionResult", false, "WantedBy", []string{"sysinit.target"}), "sysinit.target": state("active")}, ""},
		"its condition is met, and it failed":    {units{"sys-kernel-debug.mount": state("failed", "ConditionTimestamp", uint64(1), "ConditionResult", true, "WantedBy", []string{"sysinit.target"}), "sysinit.target": state("active")}, "sys-kernel-debug.mount /sys/kernel/debug false"},
		"whoever opens it mounts it":             {units{"mnt-nas.mount": state("inactive", "WantedBy", remote), "mnt-nas.automount": state("active", "WantedBy", remote)}, ""},
		"its automount is not there yet":         {units{"mnt-nas.mount": state("inactive"), "mnt-nas.automount": state("inactive", job, "start", "WantedBy", remote)}, "mnt-nas.automount /mnt/nas true"},
		"a name that is escaped":                 {units{`mnt-my\x2dnas\x20a.mount`: state("activating")}, `mnt-my\x2dnas\x20a.mount /mnt/my-nas a true`},
		"the root":                               {units{"-.mount": state("activating")}, "-.mount / true"},
		"a service that is named":                {units{"podman-restart.service": state("activating"), "other.service": state("activating")}, "podman-restart.service  true"},
		"a service that is named, and is over":   {units{"podman-restart.service": state("inactive", "WantedBy", []string{"default.target"})}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
			fake.SetManager(systemdtest.ManagerState{SystemState: "starting", Units: tt.units})
			list, err := systemd.NewManager(fake.ManagerSocket()).PendingUnits(t.Context(), "podman-restart.service")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, c := range list {
				got = append(got, fmt.Sprint(c.Unit, " ", c.Path, " ", c.Queued))
			}
			slices.Sort(got)
			if strings.Join(got, ", ") != tt.want {
				t.Errorf("PendingUnits() = %q, want %q", got, tt.want)
			}
		})
	}
	if got, err := systemd.NewManager(filepath.Join(t.TempDir(), "none")).PendingUnits(t.Context()); got != nil || err != nil {
		t.Errorf("PendingUnits() without systemd = %v, %v, want none", got, err)
	}
}
