package status_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/status"
)

// TestNextStepsAreThoseOfTheDocs looks up each step in the column "What to do" of
// docs/conditions.md: its commands, or where it has none its words.
func TestNextStepsAreThoseOfTheDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	sections := strings.Split(string(doc), "\n## ")
	for _, section := range sections {
		kind := corev1.NodeConditionType(strings.FieldsFunc(section, func(r rune) bool { return r == ',' || r == '\n' })[0])
		if strings.HasPrefix(section, "#") {
			kind = corev1.NodeMemoryPressure // of the reason that every condition has
		}
		for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (True|False|Unknown) \\| .+ \\| (.+) \\|$").FindAllStringSubmatch(section, -1) {
			c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionStatus(row[2]), Reason: row[1], Message: "/mountpoint (ext4 on /dev/sda2) has 3% free"}
			step, good := status.NextStep(c, ""), (status.Transition{New: c}).Good()
			if (step == "") != good {
				t.Errorf("%s: the next step is %q, want one for each reason that is not good, and none for others", row[1], step)
			}
			if good {
				continue
			}
			seen++
			cell := strings.ReplaceAll(strings.ToLower(row[3]), "mountpoint", "/mountpoint")
			commands := regexp.MustCompile("`[^`]+`").FindAllString(step, -1)
			if len(commands) == 0 {
				commands = []string{step}
			}
			for _, command := range commands {
				if !strings.Contains(cell, strings.ToLower(command)) {
					t.Errorf("%s: docs/conditions.md says to do %q, want %s in it", row[1], row[3], command)
				}
			}
		}
	}
	if seen < 18 {
		t.Errorf("%d reasons that are not good found in the docs, want all", seen)
	}
}

func TestNextStepNamesWhatItIsAbout(t *testing.T) {
	for name, c := range map[string]struct {
		kind    corev1.NodeConditionType
		status  corev1.ConditionStatus
		reason  string
		message string
		unit    string
		want    string
	}{
		"a filesystem":                 {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", "/var (ext4 on /dev/sda2) has 3% free, threshold 10%", "", "`du -xh --max-depth=2 /var` shows what fills it"},
		"the second word":              {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", "no pressure seen since 2026-11-20T11:57:00Z; lowered at 2026-11-20T12:02:00Z unless it comes back; now /var/lib (ext4 on /dev/sda2) has 30% free", "", "`du -xh --max-depth=2 /var/lib` shows what fills it"},
		"a mount point with a blank":   {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", "/mnt/two words (ext4 on /dev/sda2) has 3% free", "", "`du -xh --max-depth=2 '/mnt/two words'` shows what fills it"},
		"a folder without a mount":     {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", "/var/lib/hostler has 3% free", "", "`du -xh --max-depth=2 /var/lib/hostler` shows what fills it"},
		"no filesystem in the message": {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", "", "", "`du -xh --max-depth=2 /` shows what fills it"},
		"a runtime":                    {corev1.NodeReady, "False", "RuntimeDown", "runtime cri-o is not ready", "crio", "`systemctl status crio`"},
		"a problem of somebody's own":  {"example.com/Full", "True", "NodeFilesystemSpace", "/x;reboot (as nobody says) has 3% free", "", ""},
		"a check of theirs that hangs": {"example.com/Full", "Unknown", "CheckNotRun", "", "", "`hostler doctor`"},
		"nothing is wrong":             {corev1.NodeReady, "True", "HostReady", "", "", ""},
		"a reason of somebody else's":  {corev1.NodeReady, "Unknown", "NodeStatusUnknown", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			condition := corev1.NodeCondition{Type: c.kind, Status: c.status, Reason: c.reason, Message: c.message}
			if got := status.NextStep(condition, c.unit); got != c.want {
				t.Errorf("NextStep() = %q, want %q", got, c.want)
			}
		})
	}
}
