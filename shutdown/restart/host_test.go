package restart_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/restart"
)

func TestAContainerWaitsForItsMounts(t *testing.T) {
	nas := restart.PendingUnit{Unit: "mnt-nas.mount", Path: "/mnt/nas"}
	queued := func(c restart.PendingUnit) restart.PendingUnit { c.Queued = true; return c }
	network, others := restart.PendingUnit{Unit: "network-online.target", Queued: true}, restart.PendingUnit{Unit: "podman-restart.service", Queued: true}
	day := func(journal.Restart) time.Duration { return 24 * time.Hour }
	minutes := func(n time.Duration) func(journal.Restart) time.Duration {
		return func(journal.Restart) time.Duration { return n * time.Minute }
	}
	for name, tt := range map[string]struct {
		paths  string
		units  []string
		silent bool // the runtime did not report the dependencies
		hangs  bool // systemd did not report its queued units
		coming restart.PendingUnit
		waited func(journal.Restart) time.Duration
		want   string
	}{
		"nothing is awaited":                         {paths: "/srv", want: "start"},
		"its folder is below a mount that has a job": {paths: "/mnt/nas/web", coming: queued(nas), want: "wait waits for mnt-nas.mount (/mnt/nas)"},
		"its folder is the mount":                    {paths: "/etc /mnt/nas", coming: queued(nas), want: "wait waits for mnt-nas.mount"},
		"its folder has a longer name":               {paths: "/mnt/nas2", coming: queued(nas), want: "start"},
		"the mount has failed":                       {paths: "/mnt/nas/web", coming: nas, waited: minutes(60), want: "wait waits for mnt-nas.mount"},
		"the mount has failed, a day ago":            {paths: "/mnt/nas/web", coming: nas, waited: day, want: "settle after a day it still waits for mnt-nas.mount"},
		"the mount is below its folder":              {paths: "/mnt", coming: queued(nas), want: "wait waits for mnt-nas.mount"},
		"the mount below its folder has failed":      {paths: "/mnt", coming: nas, want: "start"},
		"the mount below its folder takes long":      {paths: "/mnt", coming: queued(nas), waited: minutes(10), want: "start"},
		"all of the host, and a mount has a job":     {paths: "/", coming: queued(nas), want: "wait waits for mnt-nas.mount"},
		"the network":                                {coming: network, want: "wait waits for network-online.target"},
		"the network takes long":                     {coming: network, waited: minutes(10), want: "start"},
		"who starts others":                          {coming: others, want: "start"},
		"who may start it":                           {coming: others, units: []string{"podman-restart.service"}, want: "wait waits for podman-restart.service"},
		"its runtime is slow":                        {silent: true, want: "wait waits until its dependencies"},
		"systemd hangs":                              {hangs: true, want: "wait waits for systemd"},
		"systemd hangs for long":                     {hangs: true, waited: minutes(2), want: "start"},
		"its runtime is slow for long":               {silent: true, waited: minutes(2), want: "start"},
	} {
		t.Run(name, func(t *testing.T) {
			f := restart.Facts{
				Restarts: []journal.Restart{pending()}, Pods: []runtime.Pod{{Runtime: "docker", ID: "web", Containers: []runtime.Container{stopped()}}},
				Unreachable: func(string) bool { return false }, Waited: tt.waited,
				Host: &restart.HostFacts{PendingUnits: []restart.PendingUnit{tt.coming}, NoAnswer: tt.hangs, Needs: func(journal.Restart) (runtime.StartNeeds, bool) {
					return runtime.StartNeeds{Paths: strings.Fields(tt.paths), Units: tt.units}, !tt.silent
				}},
			}
			d := restart.Plan(f, asked.Add(time.Minute))[0]
			if got := strings.TrimSpace(string(d.Action) + " " + d.Restart.Reason); !strings.HasPrefix(got, tt.want) || len(got) > len(tt.want) && tt.want == "start" {
				t.Errorf("Plan() = %s, want %s", got, tt.want)
			}
		})
	}
}

// needing is a runtime that reports dependencies of containers on the host.
type needing struct {
	*runtimetest.Fake
	paths map[string][]string // by container
}

func (n needing) StartNeeds(ctx context.Context, c runtime.Container) (runtime.StartNeeds, error) {
	if strings.HasPrefix(c.ID, "a-hangs") {
		<-ctx.Done()
		return runtime.StartNeeds{}, ctx.Err()
	}
	return runtime.StartNeeds{Paths: n.paths[c.ID]}, ctx.Err()
}

// files creates a proc filesystem in which process 1 has files. Containers of h depend on paths.
func (h *host) files(paths map[string][]string) (root string, mount func(where string)) {
	h.t.Helper()
	set, err := runtime.NewSet(needing{h.fake, paths})
	if err != nil {
		h.t.Fatal(err)
	}
	proc := h.t.TempDir()
	h.options.Set, h.options.Proc = set, proc
	root = filepath.Join(proc, "1", "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		h.t.Fatal(err)
	}
	mounts := "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
	write := func() {
		if err := os.WriteFile(filepath.Join(proc, "1", "mountinfo"), []byte(mounts), 0o600); err != nil {
			h.t.Error(err)
		}
	}
	write()
	return root, func(where string) {
		mounts += "22 21 0:40 / " + where + " rw - nfs4 nas:/ rw\n"
		write()
	}
}

// brings adds a unit that systemd is starting, until come is called.
func (h *host) brings(unit restart.PendingUnit) (come func()) {
	var up atomic.Bool
	h.options.PendingUnits = func(context.Context, ...string) ([]restart.PendingUnit, error) {
		if up.Load() {
			return nil, nil
		}
		return []restart.PendingUnit{unit}, nil
	}
	return func() { up.Store(true) }
}

// The journal says that a container waits for a mount. Others are started in the meantime, and the
// container when the mount is there.
func TestAMountThatComesIsFollowed(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		root, mount := h.files(map[string][]string{"db": {"/data/db"}})
		if err := os.Symlink("/mnt/nas", filepath.Join(root, "data")); err != nil {
			t.Fatal(err)
		}
		come := h.brings(restart.PendingUnit{Unit: "mnt-nas.mount", Path: "/mnt/nas"})
		began := time.Now()
		var started time.Time
		h.options.Report = func(r journal.Restart) {
			if r.ID == "db" {
				started = time.Now()
			}
		}
		time.AfterFunc(20*time.Minute-time.Second, func() {
			for _, r := range h.journal.Restarts() {
				if r.ID == "db" && r.Reason != "waits for mnt-nas.mount (/mnt/nas)" {
					t.Errorf("the journal says %q of db, want that it waits for the mount", r.Reason)
				}
			}
			h.expectStarts("dns api web")
		})
		time.AfterFunc(20*time.Minute, func() { come(); mount("/mnt/nas") })
		h.run("two", time.Hour)
		h.expectOutcomes("api=started db=started dns=started web=started")
		if took := started.Sub(began); took < 20*time.Minute || took > 20*time.Minute+2*time.Second {
			t.Errorf("db was started after %v, want it when the mount came, after 20 minutes", took)
		}
	})
}

// The author of an image can make it take long to read what its container depends on.
func TestDependenciesThatAreReadSlowlyHideNoOthers(t *testing.T) {
	var slow []string
	for i := range 40 {
		slow = append(slow, fmt.Sprint("a-hangs-", i))
	}
	afterBoot(t, func(t *testing.T, h *host) {
		h.files(map[string][]string{"db": {"/mnt/nas/db"}, "dns": {"/mnt/nas"}, "api": {"/mnt/nas"}, "web": {"/mnt/nas"}})
		h.brings(restart.PendingUnit{Unit: "mnt-nas.mount", Path: "/mnt/nas"})
		h.run("two", 9*time.Minute)
		for _, c := range h.fake.Calls(runtimetest.StartContainer) {
			if !strings.HasPrefix(c.Subject, "a-hangs") {
				t.Errorf("%s was started, want it to wait for its mount", c.Subject)
			}
		}
	}, slow...)
}

func TestTheNetworkIsAwaited(t *testing.T) {
	afterBoot(t, func(t *testing.T, h *host) {
		h.files(nil)
		come := h.brings(restart.PendingUnit{Unit: "network-online.target", Queued: true})
		time.AfterFunc(8*time.Second, func() { h.expectStarts(""); come() })
		h.run("two", 11*time.Second)
		h.expectStarts("dns db api web")
	})
}

// Retries follow the documented schedule, unless the missing dependency appears before.
func TestRetriesFollowTheScheduleAndChangesOfTheHost(t *testing.T) {
	tries := func(h *host) (after []time.Duration) {
		began := time.Now()
		h.fake.Inject(runtimetest.StartContainer, runtimetest.Fault{Err: errors.New("no such device"), Subject: "db"})
		h.run("two", time.Hour)
		for _, c := range h.fake.Calls(runtimetest.StartContainer) {
			if c.Subject == "db" {
				after = append(after, c.Start.Sub(began))
			}
		}
		return after
	}
	afterBoot(t, func(t *testing.T, h *host) {
		h.files(map[string][]string{"db": {"/dev/ttyUSB0"}})
		got := tries(h)
		want := []time.Duration{0, 5 * time.Second, 20 * time.Second, 65 * time.Second, 200 * time.Second}
		if len(got) != len(want) {
			t.Fatalf("db was tried after %v, want %v", got, want)
		}
		for i := range want {
			if off := got[i] - want[i]; off < 0 || off > 100*time.Millisecond {
				t.Errorf("db was tried after %v, want %v", got, want)
			}
		}
	})
	afterBoot(t, func(t *testing.T, h *host) {
		root, _ := h.files(map[string][]string{"db": {"/ttyUSB0"}})
		time.AfterFunc(100*time.Second, func() {
			if err := os.WriteFile(filepath.Join(root, "ttyUSB0"), nil, 0o600); err != nil {
				t.Error(err)
			}
		})
		got := tries(h)
		if len(got) != 5 || got[4] < 100*time.Second || got[4] > 102*time.Second {
			t.Errorf("db was tried after %v, want it once more when its device came, after 100 s", got)
		}
	})
}
