//go:build integration

package machine_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestAFilesystemThatPodsNeedIsFull fills a filesystem that the start of a pod writes to. It checks
// that the report names the node filesystem as people know it, although the unit mounts it
// separately for the agent.
func TestAFilesystemThatPodsNeedIsFull(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig() + "pressure: {transitionPeriod: 0s}\nstatus: {updateInterval: 1s}\n"
		m := machine.Boot(t, o)
		pressure := func(s api.Status) *corev1.NodeCondition {
			for i := range s.Node.Status.Conditions {
				if c := &s.Node.Status.Conditions[i]; c.Type == corev1.NodeDiskPressure {
					return c
				}
			}
			return nil
		}
		reports := func(reason string, parts ...string) {
			t.Helper()
			m.Eventually("DiskPressure has reason "+reason, func() bool {
				s, err := m.TryStatus()
				return err == nil && s.Node != nil && pressure(s) != nil && pressure(s).Reason == reason
			})
			s := m.Status()
			for _, part := range parts {
				if text := pressure(s).Message + s.NextSteps[corev1.NodeDiskPressure]; !strings.Contains(text, part) {
					t.Errorf("DiskPressure says %q, want %q in it", text, part)
				}
				if text := doctorSays(m); !strings.Contains(text, part) {
					t.Errorf("hostler doctor does not say %q:\n%s", part, text)
				}
			}
		}
		reports(status.ReasonSufficientDisk)
		for _, folder := range []string{"/run/containerd", "/var/log/pods"} {
			m.Run("mkdir -p " + folder + " && mount -t tmpfs -o size=40M,nr_inodes=5000 full " + folder)
			reports(status.ReasonSufficientDisk)
			m.Run("dd if=/dev/zero of=" + folder + "/fill bs=1M 2>/dev/null; test -s " + folder + "/fill")
			reports(status.ReasonStartFilesystemSpace, folder+" (tmpfs on full) has 0% free", "du -xah "+folder+" | sort -h | tail -20")
			m.Run("rm " + folder + "/fill && mkdir " + folder + "/many && cd " + folder + "/many && { seq 6000 | xargs touch 2>/dev/null; test -e 1; }")
			reports(status.ReasonStartFilesystemInodes, folder+" (tmpfs on full) has 0% of its inodes free", "du -x --inodes --max-depth=2 "+folder)
			m.Run("umount " + folder)
			reports(status.ReasonSufficientDisk)
		}

		m.Write("/etc/hostler/conf.d/full.yaml", "pressure: {nodefsAvailable: 99.999%}\n")
		m.Hostler("reload")
		mountpoint := strings.TrimSpace(m.Run("findmnt -no TARGET -T /var/lib/hostler | tail -n 1"))
		if mountpoint == "/var/lib/hostler" {
			t.Fatal("the state folder is a mount of its own on the host")
		}
		m.Run("dd if=/dev/zero of=/var/log/fill bs=1M count=200 2>/dev/null")
		reports(status.ReasonNodeFilesystemSpace, mountpoint+" (", mountpoint+" ", "| tail -20`")
		step := m.Status().NextSteps[corev1.NodeDiskPressure]
		_, command, _ := strings.Cut(step, "`")
		command, _, _ = strings.Cut(command, "`")
		if shown := m.Run(command); !strings.Contains(shown, "/var/log/fill") {
			t.Errorf("`%s` shows %s, want the file that fills %s", command, shown, mountpoint)
		}
	})
}

// TestWhatFillsTheFilesystemIsNamedAlsoIfTheUnitHidesIt fills folders of the filesystem on which
// Docker keeps its images: the unit has /var/tmp of its own (PrivateTmp=), and writes to few folders.
func TestWhatFillsTheFilesystemIsNamedAlsoIfTheUnitHidesIt(t *testing.T) {
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		o.Files = machine.DockerFiles(o)
		m := machine.Boot(t, o)
		m.Run("systemctl enable --now docker.socket docker.service && docker load --quiet --input " + job.ImageArchive)
		m.Eventually("Docker's image is listed", func() bool { return strings.Contains(m.Run("hostler images || true"), job.Image) })
		// A walk through the folders is bounded, and finds less on a busy machine.
		says := func(what, part string) {
			t.Helper()
			m.Eventually("hostler gc run says "+what, func() bool {
				return strings.Contains(flat(m.Run("hostler gc run --images --target-percent 1 || true")), part)
			})
		}
		for _, folder := range []string{"/var/tmp", "/root", "/var/log/app"} {
			m.Run("mkdir -p " + folder + "/many && dd if=/dev/zero of=" + folder + "/many/fill bs=1M count=100 2>/dev/null")
			says("what "+folder+" holds", folder+"/many (100.0 MiB, ")
			m.Run("rm -r " + folder + "/many")
		}
		m.Run("docker run --detach --name writer --network none --security-opt apparmor=unconfined " + job.Image + ` sh -c "head -c 104857600 /dev/zero >/fill && touch /done; sleep 1000"`)
		m.Eventually("the container has written", func() bool { return m.Run("docker exec writer ls /done 2>/dev/null || true") != "" })
		says("what writer has written", "written by container writer/writer)")
	})
}
