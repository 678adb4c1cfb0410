package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/shutdown/journal"
)

// The reboot was disabled while the host drained for it.
func TestADrainForARebootIsUndoneWhereRebootsAreDisabled(t *testing.T) {
	rig := newRig(t)
	path := open.JournalFile(rig.cfg)
	data, err := json.Marshal(map[string]any{"version": 1, "bootID": "one", "held": []journal.Held{
		{Drain: time.Now(), Trigger: journal.TriggerReboot, Restarts: []journal.Restart{{Runtime: "docker", ID: "web"}}},
	}})
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := rig.build(t).kept.journal.Restarts(); len(got) != 1 || got[0].ID != "web" || got[0].Outcome != "" {
		t.Errorf("Restarts() = %+v, want what the drain has stopped pending", got)
	}
}

// The reboot was disabled while the host had a slot of a lock server.
func TestASlotIsGivenBackWhereRebootsAreDisabled(t *testing.T) {
	slot := &reboot.Request{ID: "a", Step: controlplane.RebootDraining, Attempt: reboot.Attempt{Locked: true, Lock: reboot.LockID{FleetLock: "https://locks.example", Group: "default"}}}
	for name, tt := range map[string]struct {
		request    *reboot.Request
		unreadable bool // the file is a loop of links
		ends       bool
	}{
		"the host has a slot":                     {request: slot, ends: true},
		"nothing has begun":                       {},
		"it cannot be read whether one has begun": {request: slot, unreadable: true, ends: true},
	} {
		rig := newRig(t)
		folder, err := statefile.Open(rig.cfg.State.Directory, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		folder.File("reboot").SaveNow(func() any { return reboot.Memory{Request: tt.request} })
		if err := folder.Close(); err != nil {
			t.Fatal(err)
		}
		if file := filepath.Join(rig.cfg.State.Directory, "reboot.state"); tt.unreadable {
			if err := errors.Join(os.Remove(file), os.Symlink(file, file)); err != nil {
				t.Fatal(err)
			}
		}
		a := rig.build(t)
		ends := slices.ContainsFunc(a.loops, func(l *loop.Loop) bool { return l.Name() == "reboot" })
		if ends != tt.ends || a.shutdown.rebooter != nil {
			t.Errorf("%s: the loop that ends a reboot runs: %t, reboots are enabled: %t", name, ends, a.shutdown.rebooter != nil)
		}
	}
}

// A Node that nobody may write yet is not a Node that the host does not need.
func TestANodeThatIsBlockedIsNotTakenForNone(t *testing.T) {
	for switched, want := range map[config.Switch]string{config.On: "no name", config.Off: ""} {
		rig := newRig(t)
		rig.cfg.Node.Enabled = switched
		a := rig.build(t)
		scan := func(context.Context, map[owner.Job]owner.Owner) map[owner.Job]owner.Owner {
			return map[owner.Job]owner.Owner{}
		}
		a.owners = owner.New(switches(rig.cfg), owner.BlockNode(func() string { return want }, scan), discard())
		a.owners.Refresh(t.Context())
		if host := (rebootHost{a: a}); host.NodeBlocked() != want || host.HasNode() {
			t.Errorf("node.enabled: %s: NodeBlocked() = %q, HasNode() = %t, want %q and no Node", switched, host.NodeBlocked(), host.HasNode(), want)
		}
	}
}

// Beside a kubelet, the shutdown stops its pods. A guard that has just started is no reason to give a slot back.
func TestAGuardThatHasJustStartedIsNoVerdict(t *testing.T) {
	rig := newRig(t)
	rig.cfg.Node.Enabled, rig.cfg.Shutdown.Enabled = config.Auto, config.On
	a := rig.build(t)
	scan := func(context.Context, map[owner.Job]owner.Owner) map[owner.Job]owner.Owner {
		return map[owner.Job]owner.Owner{owner.Node: {Name: owner.Kubelet}}
	}
	a.owners = owner.New(switches(rig.cfg), scan, discard())
	a.owners.Refresh(t.Context())
	held := rebootHost{a: a}.Held()
	i := slices.IndexFunc(held, func(f reboot.Finding) bool { return f.Source == "protection" })
	if i < 0 || !held[i].Pending {
		t.Errorf("Held() = %+v, want the protection pending", held)
	}
}

// A drain that a restart of the agent has interrupted fails if it continues before there is a list of pods.
func TestADrainWaitsForTheRuntimes(t *testing.T) {
	rig := newRig(t)
	rig.cfg.Reboot.Command = "/bin/true"
	a := rig.build(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, unqueried := range []bool{true, false} {
		_, err := rebootHost{a: a}.Drain(ctx, "reboot", time.Now(), false, func(time.Time) error { return nil })
		if err == nil || errors.Is(err, errUnqueried) != unqueried {
			t.Errorf("Drain() = %v, want that it waits for the runtimes: %t", err, unqueried)
		}
		_ = a.host.runtimes.Refresh(t.Context()) // no runtime answers
	}
}

// A journal that cannot be read yet does not say that no shutdown or drain has stopped anything.
func TestAJournalThatIsUnreadIsNotTakenForAnEmptyOne(t *testing.T) {
	rig := newRig(t)
	path := open.JournalFile(rig.cfg)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.Symlink(path, path)); err != nil { // root can read every other file
		t.Fatal(err)
	}
	a := rig.build(t)
	host := rebootHost{a: a}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // no guard runs
	if err := host.Undo(ctx, time.Now()); err == nil || errors.Is(err, context.Canceled) || host.Unknown() == "" || len(host.NotStarted()) > 0 {
		t.Errorf("Undo() = %v, Unknown() = %q, NotStarted() = %q, want that neither is known", err, host.Unknown(), host.NotStarted())
	}
	if a.gc.survey.Unseen() == "" || len(a.gc.dead.ExcludedRuntimes(&runs.Report{})) != 1 {
		t.Errorf("Unseen() = %q, ExcludedRuntimes() = %q, want that nothing is collected", a.gc.survey.Unseen(), a.gc.dead.ExcludedRuntimes(&runs.Report{}))
	}
}
