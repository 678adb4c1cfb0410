//go:build integration

package machine_test

import (
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/reboots"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// runAlone runs a container with a program such as runc, in a scope that systemd would stop at once
// (see spread), from a new bundle.
func runAlone(m *machine.Machine, program, name string, critical bool) {
	annotations := "{}"
	if critical {
		annotations = `{"hostler.io/critical": "true"}`
	}
	m.Run(strings.NewReplacer(
		"BUNDLE", "/root/bundles/"+name, "PROGRAM", program, "NAME", name, "ANNOTATIONS", annotations, "BOOT", m.BootID(),
		"DIR", job.Dir, "SEEN", job.SeenDir, "GUEST", job.SeenProgram,
	).Replace(`set -e
		mkdir -p BUNDLE/rootfsSEEN DIR
		touch BUNDLE/rootfsGUEST
		PROGRAM spec --bundle BUNDLE
		jq '.process.terminal = false
			| .process.args = ["GUEST", "work", "-name", "default/NAME/main", "-boot", "BOOT"]
			| .mounts += [{destination: "SEEN", type: "bind", source: "DIR", options: ["bind", "rw"]}, {destination: "GUEST", type: "bind", source: "/usr/local/bin/guest", options: ["bind", "ro"]}]
			| .linux.cgroupsPath = "machine.slice:PROGRAM:NAME"
			| .annotations = ANNOTATIONS' BUNDLE/config.json >BUNDLE/new
		mv BUNDLE/new BUNDLE/config.json
		PROGRAM --systemd-cgroup run --detach --bundle BUNDLE NAME </dev/null >/dev/null 2>BUNDLE/complaint || { cat BUNDLE/complaint >&2; exit 1; }`))
}

// TestContainersOfRuncAndCrunAlone shuts a machine down without logind notification, with
// containers that only runc and crun run: systemd, which has a scope for each, leaves them to
// hostler. A machine that is a container has no cgroup controllers for them.
func TestContainersOfRuncAndCrunAlone(t *testing.T) {
	inVMs(t, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		runAlone(m, "runc", "web", false)
		runAlone(m, "crun", "api", false)
		runAlone(m, "runc", "db", true)
		names := []string{"api", "db", "web"}
		m.Eventually("all have written down that they run, and are listed", func() bool {
			var listed []string
			for _, p := range machine.Ask[api.PodList](m, "/v1/pods").Pods {
				listed = append(listed, p.Name)
			}
			slices.Sort(listed)
			return slices.Equal(listed, names) && len(m.Work()) == len(names)
		})
		for _, scope := range []string{"runc-web.scope", "crun-api.scope", "runc-db.scope"} {
			if order := m.Run("systemctl show -P Before " + scope); !strings.Contains(order, "hostler.service") {
				t.Errorf("systemd orders %s before %s, want hostler.service in it: it is stopped first", scope, order)
			}
		}
		before := m.BootID()

		m.GoesDown("systemctl start reboot.target")

		c := readBack(t, m, before)
		expectReboot(t, m, reboots.Expected)
		if c.last.Trigger != journal.TriggerServiceStop || !c.last.Graceful || len(c.last.Pods) != len(names) {
			t.Errorf("LastShutdown() = %+v, want a graceful one past logind, of %v", c.last, names)
		}
		for _, name := range names {
			if p := c.pod(name); p.Outcome != journal.Stopped {
				t.Errorf("LastShutdown() reports %s: %+v, want it stopped", name, p)
			}
		}
		expectOrder(t, m, before, "web", "db")
		expectOrder(t, m, before, "api", "db")
		t.Logf("seen: %s: all over after %v", strings.Join(strings.Fields(m.Run("runc --version | head -n 1; crun --version | head -n 1")), " "), c.last.FinishedAt.Sub(c.last.StartedAt))
	})
}
