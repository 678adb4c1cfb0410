//go:build integration

package machine_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
)

// TestAnAgentThatEndsTouchesNoContainer ends the agent in every way that is not a shutdown. The
// runtime itself creates the containers' cgroups here: systemd does not know them, so any signal
// would be hostler's. That also applies at the end, in a shutdown without logind notification.
func TestAnAgentThatEndsTouchesNoContainer(t *testing.T) {
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		m.Deploy(workload()...)
		for _, pod := range workload() {
			expectGroup(t, m, pod.Name, "kubepods/", "")
		}
		for _, way := range []struct {
			name string
			end  func(m *machine.Machine)
		}{
			{"systemctl restart hostler", func(m *machine.Machine) { m.Run("systemctl restart hostler") }},
			{"systemctl stop hostler", func(m *machine.Machine) { m.Run("systemctl stop hostler && systemctl start hostler") }},
			{"kill -9", killed},
			{"an upgrade of the package", upgraded},
			{"systemctl isolate rescue.target", rescued},
		} {
			t.Run(way.name, func(t *testing.T) {
				before := agentPID(m)
				way.end(m)
				m.AwaitArmed()
				if pid := agentPID(m); pid == before || pid == "0" {
					t.Errorf("the agent has process ID %s, and had %s: it did not end", pid, before)
				}
				stillOpen(t, m, way.name+" is over")
				if log := m.Journal(0, "-u hostler"); strings.Contains(log, "shutdown phase started") || strings.Contains(log, "systemStopping=true") {
					t.Errorf("hostler took it for a shutdown:\n%s", log)
				}
			})
		}
		t.Run("systemctl start reboot.target", func(t *testing.T) {
			bypass(t, m, shutdownKind{name: "systemctl start reboot.target, without scopes", down: by("systemctl start reboot.target")}, workload())
		})
	})
}

func agentPID(m *machine.Machine) string {
	return strings.TrimSpace(m.Run("systemctl show -P MainPID hostler"))
}

func killed(m *machine.Machine) {
	before := agentPID(m)
	m.Run("kill -9 " + before)
	m.Eventually("systemd has started the agent again", func() bool { pid := agentPID(m); return pid != before && pid != "0" })
}

// stopped sends SIGSTOP to the main process of a service, and returns its ID. That process may be a
// new one, because the watchdog of a busy machine may end one that does not hang.
func stopped(m *machine.Machine, service string) (pid string) {
	return strings.TrimSpace(m.Run("until pid=$(systemctl show -P MainPID " + service + "); [ $pid != 0 ] && kill -STOP $pid 2>/dev/null; do sleep 0.2; done; echo $pid"))
}

// upgraded installs a package while the agent runs, and then a newer one over both. They have the
// program, and the maintainer script that Debian's tools generate for a service.
func upgraded(m *machine.Machine) {
	m.Run(`set -e
		dir=$(mktemp -d)
		mkdir -p $dir/DEBIAN $dir/usr/bin $dir/usr/lib/systemd/system
		cp /usr/lib/systemd/system/hostler.service $dir/usr/lib/systemd/system/
		cat >$dir/DEBIAN/postinst <<-'END'
			#!/bin/sh
			set -e
			systemctl --system daemon-reload
			if [ -n "$2" ]; then systemctl try-restart hostler; fi
		END
		chmod 755 $dir $dir/DEBIAN/postinst
		for version in 1 2; do
			printf 'Package: hostler\nVersion: %s\nArchitecture: all\nMaintainer: Nobody <nobody@example.com>\nDescription: a test\n' $version >$dir/DEBIAN/control
			[ $version = 1 ] || cp /usr/bin/hostler $dir/usr/bin/ # a program of this size takes a VM half a minute
			dpkg-deb --build -Znone $dir /root/hostler.deb >/dev/null
			dpkg --install /root/hostler.deb
		done
		rm -r $dir /root/hostler.deb`)
}

// rescued switches to single-user mode, where neither hostler nor containerd nor logind runs, and
// back.
func rescued(m *machine.Machine) {
	m.Run("systemctl isolate --no-block rescue.target")
	m.Eventually("hostler and the runtime are stopped", func() bool {
		return strings.TrimSpace(m.Run("systemctl show -P ActiveState hostler containerd | sort -u | tr '\\n' ' '")) == "inactive"
	})
	m.Run("systemctl isolate --no-block multi-user.target")
	m.Eventually("hostler runs again", func() bool { return agentPID(m) != "0" })
}
