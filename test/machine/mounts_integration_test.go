//go:build integration

package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// lateMounts makes the network of each boot online late. /mnt/nas is mounted after that, and
// /mnt/usb when its disk is plugged in, which /run/plugged simulates.
func lateMounts(m *machine.Machine) {
	m.Write("/etc/systemd/system/late-network.service", `[Unit]
DefaultDependencies=no
Before=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=sleep 8
[Install]
WantedBy=network-online.target
`)
	m.Write("/etc/systemd/system/mnt-nas.mount", `[Unit]
After=network-online.target
Wants=network-online.target
Before=remote-fs.target
[Mount]
What=/srv/nas
Where=/mnt/nas
Type=none
Options=bind,_netdev
[Install]
WantedBy=remote-fs.target
`)
	m.Write("/etc/systemd/system/mnt-usb.mount", `[Unit]
Requires=disk.target
After=disk.target
[Mount]
What=/srv/usb
Where=/mnt/usb
Type=none
Options=bind
[Install]
WantedBy=local-fs.target
`)
	m.Write("/etc/systemd/system/disk.target", "[Unit]\nAssertPathExists=/run/plugged\n")
	m.Run(`set -e
		mkdir -p /srv/nas/data /srv/usb/data /mnt/nas/data /mnt/usb/data
		echo right | tee /srv/nas/data/which >/srv/usb/data/which
		echo wrong | tee /mnt/nas/data/which >/mnt/usb/data/which
		ln -s /mnt/nas /data
		touch /run/plugged
		systemctl daemon-reload
		systemctl enable late-network mnt-nas.mount mnt-usb.mount remote-fs.target
		systemctl start remote-fs.target mnt-nas.mount mnt-usb.mount`)
}

// TestStartsWaitForMounts reboots hosts with containers that have folders below late mounts: over
// the network, and on a disk that is plugged in.
func TestStartsWaitForMounts(t *testing.T) {
	t.Parallel()
	for runtime, everyday := range map[string]machine.Release{"podman": machine.Debian13, "docker": machine.Debian12} {
		t.Run(runtime, func(t *testing.T) {
			onDebian(t, everyday, func(t *testing.T, o machine.Options) {
				o.Config = "shutdown: {gracePeriod: 2m, gracePeriodCriticalPods: 1m}\n"
				start, flags := "podman.socket", ""
				if o.Files = machine.PodmanFiles(); runtime == "docker" {
					o.Files = machine.DockerFiles(o)
					start, flags = "docker.socket docker.service", " --security-opt apparmor=unconfined"
				}
				m := machine.Boot(t, o)
				m.Run("systemctl enable --now " + start + " && " + runtime + " load --quiet --input " + job.ImageArchive)
				lateMounts(m)
				for name, folder := range map[string]string{"nas": "/mnt/nas/data", "linked": "/data/data", "usb": "/mnt/usb/data", "plain": "/srv"} {
					m.Run(fmt.Sprintf("%s run --detach --network none%s --name %s --restart unless-stopped --volume %s:/seen %s %s", runtime, flags, name, folder, job.Image, heeds))
				}
				m.Eventually("all are listed", func() bool { return strings.Count(m.Run("hostler ps || true"), "1 Running") == 4 })

				m.GoesDown("systemctl reboot")
				m.Eventually("hostler says what they wait for", func() bool {
					s := m.Hostler("status", "-o", "wide")
					return strings.Contains(s, "usb (waits for mnt-usb.mount (/mnt/usb))") && !strings.Contains(s, "nas (waits for")
				})
				seen := func(name string) string {
					return strings.TrimSpace(m.Run(runtime + " exec " + name + " cat /seen/which /seen/nas/data/which 2>/dev/null || true"))
				}
				for _, name := range []string{"nas", "linked", "plain"} {
					m.Eventually(name+" runs", func() bool { return seen(name) != "" })
					if got := seen(name); got != "right" {
						t.Errorf("%s sees %q in its folder, want what is mounted there", name, got)
					}
				}
				if out := doctorSays(m); !strings.Contains(out, "usb (waits for mnt-usb.mount (/mnt/usb))") {
					t.Errorf("hostler doctor says\n%s\nwant that usb waits for its mount", out)
				}
				m.Run("touch /run/plugged && systemctl start mnt-usb.mount")
				m.Eventually("all is settled", func() bool {
					restarts := m.Status().Shutdown.Restarts
					return len(restarts) == 4 && !slices.ContainsFunc(restarts, func(r journal.Restart) bool { return r.Outcome != journal.Restarted })
				})
				if got := seen("usb"); got != "right" {
					t.Errorf("usb sees %q in its folder, want what is mounted there", got)
				}
			})
		})
	}
}
