//go:build integration

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/test/etcd"
)

// TestAServerChoosesHowLongLeasesLast has three agents, and a server that allows one renewal every
// 10 s.
func TestAServerChoosesHowLongLeasesLast(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	const setting = "/hostler/settings/lease-duration"
	stored := func() string { return strings.TrimSpace(f.ctl("get", "--print-value-only", setting)) }
	becomes := func(seconds string, names ...string) {
		t.Helper()
		for _, name := range names {
			eventually(t, fmt.Sprintf("the Lease of %s is %s", name, seconds), func() bool { return f.good(name) == seconds })
		}
	}
	agents := map[string]*agent{}
	for _, name := range []string{"n1", "n2"} {
		agents[name] = startAgent(t, f.settings(name, "")+often)
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	const most = "heartbeats: {maxPerSecond: 0.1}"
	first := startServer(t, f.served(most))
	eventually(t, "the server leads", first.leads)
	becomes("80, etcd 80", "n1", "n2")
	mentions(t, "hostler status", onOneLine(agents["n1"].screen()), "the control plane's setting for all hosts requests 1m20s")
	mentions(t, "hostler fleet status", onOneLine(first.prints("status")), "2 hosts, Leases of 1m20s, 0.1 renewals a second: enough for heartbeats.maxPerSecond (0.1)", "heartbeats Leading")
	startAgent(t, f.settings("n3", "")+often)
	becomes("120, etcd 120", "n1", "n2", "n3")

	// Another server continues from the setting, and respects a person's value.
	second := startServer(t, f.served(most))
	check(t, first.cmd.Process.Kill())
	eventually(t, "the second server leads", second.leads)
	f.ctl("put", setting, "120s")
	eventually(t, "a person's value is named", func() bool {
		return strings.Contains(onOneLine(second.prints("status")), `a person has set lease-duration to "120s"`)
	})
	second.configure(f.served("heartbeats: {maxPerSecond: 1000}"))
	check(t, second.cmd.Process.Signal(syscall.SIGHUP))
	eventually(t, "the configuration is another", func() bool { h := second.status().Heartbeats; return h != nil && h.MaxPerSecond == 1000 })
	if got := stored(); got != "120s" {
		t.Errorf("setting = %q, want that of a person", got)
	}
	f.ctl("put", setting+".server", "2m") // of an earlier time
	f.ctl("put", setting, "2m")
	eventually(t, "the next one is a person's, too", func() bool {
		h := second.status().Heartbeats
		return h != nil && h.Setting == "2m" && strings.HasPrefix(h.Reason, "a person")
	})
	if got := stored(); got != "2m" {
		t.Errorf("setting = %q, want that of a person", got)
	}
	f.ctl("del", setting)
	becomes("10, etcd 10", "n1", "n2", "n3")
	second.configure(f.served(most))
	check(t, second.cmd.Process.Signal(syscall.SIGHUP))
	becomes("120, etcd 120", "n1", "n2", "n3")
	second.configure(f.served(""))
	check(t, second.cmd.Process.Signal(syscall.SIGHUP))
	becomes("10, etcd 10", "n1", "n2", "n3")
	if got := f.ctl("get", "--prefix", "--keys-only", "/hostler/settings/"); strings.TrimSpace(got) != "" {
		t.Errorf("settings = %q, want none any more", got)
	}
}

// anotherBoot gives the agent another boot ID than other agents here.
func (a *agent) anotherBoot(id string) {
	a.t.Helper()
	file := filepath.Join(a.folder, "boot_id")
	check(a.t, os.WriteFile(file, []byte(id+"\n"), 0o444))
	a.dropIn = append(a.dropIn, "ProtectKernelTunables=no", "BindReadOnlyPaths="+file+":/proc/sys/kernel/random/boot_id")
}

// TestAServerFindsClones has two agents on this machine, in two boots.
func TestAServerFindsClones(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	const pace = "lease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s, reportInterval: 5s}\n"
	first := startAgent(t, f.settings("n1", "")+strings.Replace(pace, "10s", "1h", 1)) // it lives all the time
	second := newAgent(t, f.settings("n2", "")+pace)
	second.anotherBoot("5f3c9f0e-7f0b-4c4e-9d53-000000000002")
	second.start()
	for _, name := range []string{"n1", "n2"} {
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	if a, b := f.node("n1").Status.NodeInfo, f.node("n2").Status.NodeInfo; a.BootID == b.BootID || a.MachineID != b.MachineID {
		t.Fatalf("boot IDs = %s and %s, machine IDs = %s and %s, want two boots of one machine", a.BootID, b.BootID, a.MachineID, b.MachineID)
	}
	s := startServer(t, f.served(""))
	eventually(t, "the server leads", s.leads)
	for a, other := range map[*agent]string{first: "n2", second: "n1"} {
		found := a.await("it reports the other", func(s api.Status) bool { return len(s.Drift) > 0 })
		mentions(t, "drift", found.Drift[0].Message+found.Drift[0].Fix, "running node "+other+" has the same machine ID", "systemd-machine-id-setup")
		eventuallyMentions(t, "hostler status", func() string { return onOneLine(a.screen()) }, "running node "+other)
	}
	eventuallyMentions(t, "hostler fleet status", func() string { return onOneLine(s.prints("status")) }, "nodes/n1 the running hosts n1, n2 have the same machine ID: one was cloned from the other: run on the copy: `rm -f /etc/machine-id")
	eventually(t, "it is an Event", func() bool {
		return strings.Contains(f.ctl("get", "--prefix", "/hostler/events/n1/"), `"MachineCloned"`)
	})
	eventually(t, "the annotation of n1 is n2", func() bool { return f.node("n1").Annotations[controlplane.AnnotationSameMachine] == "n2" })
	second.kill()
	first.await("nothing is reported once the other is dead", func(s api.Status) bool { return len(s.Drift) == 0 })
	for _, name := range []string{"n1", "n2"} {
		eventually(t, name+" names nobody any more", func() bool { return f.node(name).Annotations[controlplane.AnnotationSameMachine] == "" })
	}
	eventually(t, "hostler fleet status names them no more", func() bool { return !strings.Contains(s.prints("status"), "same machine ID") })
}
