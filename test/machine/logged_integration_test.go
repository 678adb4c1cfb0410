//go:build integration

package machine_test

import (
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestTheJournalFindsWhatALoopSaid checks that journald itself records the agent's entries, even
// the last one, which it may read after the process has ended.
func TestTheJournalFindsWhatALoopSaid(t *testing.T) {
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		m := machine.Boot(t, o)
		m.AwaitArmed()
		m.Run("systemctl restart hostler")
		m.AwaitArmed()
		for arguments, want := range map[string]string{
			"-u hostler -o cat HOSTLER_LOOP=status":                 `msg="node registered"`,
			"-u hostler -o cat HOSTLER_LOOP=shutdown-guard -p info": "state=Armed",
			"-u hostler -o cat":                                     `msg="agent stopped"`,
			"-u hostler -o cat SYSLOG_IDENTIFIER=hostler -n 50":     `level=INFO msg="agent started"`,
		} {
			m.Eventually("journalctl "+arguments+" has "+want, func() bool { return strings.Contains(m.Journal(0, arguments), want) })
		}
		if text := m.Journal(0, "-u hostler -o cat"); strings.Contains(text, "stays raised") {
			t.Errorf("a restart says\n%s\nwant nothing of a delay that is left raised", text)
		}
		if text := m.Journal(0, "-u hostler -o cat HOSTLER_LOOP=status"); strings.Contains(text, "agent started") {
			t.Errorf("journalctl HOSTLER_LOOP=status = %s, want what that loop said alone", text)
		}
	})
}

// TestTheJournalFindsWhatWasCollected has a real image and a dead pod that are removed, and finds
// them by the fields in docs/howto/metrics.md.
func TestTheJournalFindsWhatWasCollected(t *testing.T) {
	const image = "docker.io/library/nginx:1" // as on that page
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		o.Config = "imageGC: {minimumAge: 0s, includeLocal: true}\n"
		m := machine.Boot(t, o)
		m.Deploy(machine.Pod{Name: "web"})
		// Another image than that of the pods, with another name in its configuration.
		m.Run(`set -e
			mkdir /root/image && cd /root/image && tar -xf ` + job.ImageArchive + `
			for file in $(grep -lI '` + job.Image + `' *); do sed -i 's|` + job.Image + `|` + image + `|g' $file; done
			tar -cf ../image.tar * && ctr --namespace k8s.io images import ../image.tar`)
		m.Eventually("hostler knows the image", func() bool { return strings.Contains(m.Hostler("images -o json"), image) })
		m.AwaitArmed()
		// As if they ended by themselves: what a drain stops is kept.
		m.Run("for task in $(ctr --namespace k8s.io tasks list --quiet); do ctr --namespace k8s.io tasks kill --signal KILL $task; done")
		m.Eventually("the pod has been removed", func() bool { return strings.Contains(m.Hostler("gc run --all-unused"), "default/web") })
		if left := m.Run("ctr --namespace k8s.io images list --quiet"); strings.Contains(left, image) || !strings.Contains(left, job.Image) {
			t.Errorf("containerd has %q, want %s gone and %s there, which is that of sandboxes", left, image, job.Image)
		}
		journal := func(fields string) []string {
			return strings.Split(strings.TrimSpace(m.Journal(0, "-q -u hostler -o cat "+fields)), "\n")
		}
		for fields, want := range map[string][]string{ // of each line
			"HOSTLER_IMAGE=" + image:                            {`msg="image removed"`, "component=image-gc", "image=" + image, "reason=all-unused"},
			"HOSTLER_IMAGE=" + image + " HOSTLER_LOOP=image-gc": {`msg="image removed"`, "image=" + image},
			"HOSTLER_LOOP=image-gc":                             {"component=image-gc"},
			"HOSTLER_POD=default/web":                           {"component=container-gc", "removed", "pod=default/web"},
			"HOSTLER_LOOP=container-gc":                         {"component=container-gc"},
		} {
			var lines []string
			m.Eventually("journalctl "+fields+" finds something", func() bool { lines = journal(fields); return lines[0] != "" })
			for _, line := range lines {
				for _, part := range want {
					if !strings.Contains(line, part) {
						t.Errorf("journalctl %s finds %s, want nothing without %q", fields, line, part)
					}
				}
			}
		}
		for fields, want := range map[string]string{
			"HOSTLER_LOOP=image-gc":   "image=" + image,
			"HOSTLER_POD=default/web": `msg="container removed"`,
			"-F HOSTLER_LOOP":         "image-gc",
		} {
			if text := strings.Join(journal(fields), "\n"); !strings.Contains(text, want) {
				t.Errorf("journalctl %s finds\n%s\nwant %s in it", fields, text, want)
			}
		}
	})
}
