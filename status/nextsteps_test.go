package status_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// TestNextStepsAreThoseOfTheDocs looks up each step in the column "What to do" of
// docs/reference/conditions.md: its commands or, if it has none, its words.
func TestNextStepsAreThoseOfTheDocs(t *testing.T) {
	doc, err := os.ReadFile("../docs/reference/conditions.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	sections := strings.Split(string(doc), "\n## ")
	for _, section := range sections {
		kind := corev1.NodeConditionType(strings.FieldsFunc(section, func(r rune) bool { return r == ',' || r == '\n' })[0])
		if strings.HasPrefix(section, "#") {
			kind = corev1.NodeMemoryPressure // for reasons that all conditions have
		}
		for _, row := range regexp.MustCompile("(?m)^`(\\w+)` \\| (True|False|Unknown) \\| .+ \\| (.+)$").FindAllStringSubmatch(section, -1) {
			c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionStatus(row[2]), Reason: row[1]}
			step, good := status.NextSteps([]corev1.NodeCondition{c}, onNode("/mountpoint"))[kind], (status.Transition{New: c}).Good()
			if (step == "") != good {
				t.Errorf("%s: the next step is %q, want one for each reason that is not good, and none for others", row[1], step)
			}
			if good {
				continue
			}
			seen++
			cell := strings.NewReplacer("mountpoint", "/mountpoint", `\|`, "|").Replace(strings.ToLower(row[3])) // tables escape a pipe
			commands := regexp.MustCompile("`[^`]+`").FindAllString(step, -1)
			if len(commands) == 0 {
				commands = []string{step}
			}
			for _, command := range commands {
				if !strings.Contains(cell, strings.ToLower(command)) {
					t.Errorf("%s: docs/reference/conditions.md says to do %q, want %s in it", row[1], row[3], command)
				}
			}
		}
	}
	if seen < 18 {
		t.Errorf("%d reasons that are not good found in the docs, want all", seen)
	}
}

// onNode returns the facts of a host whose node filesystem has that mount point.
func onNode(mountpoint string) status.Facts {
	return status.Facts{Filesystems: []status.Filesystem{
		{Role: status.RoleNode, Filesystem: probe.Filesystem{Path: "/var/lib/hostler", Mountpoint: mountpoint, CapacityBytes: 1}},
		{Role: status.RoleImage, Filesystem: probe.Filesystem{Mountpoint: "/images", CapacityBytes: 1}},
		{Role: status.RoleStart, Filesystem: probe.Filesystem{Mountpoint: mountpoint, AvailableBytes: 9, Inodes: 9, InodesFree: 9}},
	}}
}

// started returns the facts of a host with these filesystems for the start of pods.
func started() status.Facts {
	facts := onNode("/var")
	for _, fs := range []probe.Filesystem{
		{Mountpoint: "/run", AvailableBytes: 1, Inodes: 9, InodesFree: 5},
		{Mountpoint: "/tmp", AvailableBytes: 2, Inodes: 9, InodesFree: 4},
		{Mountpoint: "/var/log", AvailableBytes: 3},
		{Path: "/gone", Absent: true, Problem: "gone"},
	} {
		facts.Filesystems = append(facts.Filesystems, status.Filesystem{Role: status.RoleStart, Filesystem: fs})
	}
	return facts
}

// The reason is about one filesystem, the message about all that are short of space.
func TestTheNextStepAboutDisksNamesThePlanIfImagesAreAmongThem(t *testing.T) {
	const du, plan = "run `du -xah /var | sort -h | tail -20` to see what fills /var", "run `hostler gc plan` to see what would be removed and why the rest is kept"
	for message, want := range map[string]string{
		"/var (ext4 on /dev/sda2) has 6% free, threshold 10%":                                                        du,
		"/var (ext4 on /dev/sda2) has 6% free, threshold 10%; /images (xfs on /dev/sdb1) has 6% free, threshold 15%": plan + "; " + du,
	} {
		facts := onNode("/var")
		facts.Filesystems[1].Type, facts.Filesystems[1].Device = "xfs", "/dev/sdb1"
		c := corev1.NodeCondition{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Reason: status.ReasonNodeFilesystemSpace, Message: message}
		if got := status.NextSteps([]corev1.NodeCondition{c}, facts)[c.Type]; got != want {
			t.Errorf("NextSteps() of %q = %q, want %q", message, got, want)
		}
	}
}

func TestNextStepsNameUnitsAndMountPoints(t *testing.T) {
	runtimes := func(list ...runtime.Health) status.Facts {
		return status.Facts{Runtimes: list[:1], Unreachable: list[1:]}
	}
	called := func(name string, ready bool) runtime.Health {
		return runtime.Health{Info: runtime.Info{Name: name, Ready: ready}}
	}
	overlay := onNode("/")
	overlay.Filesystems[0].Type = "overlay"
	for name, c := range map[string]struct {
		kind   corev1.NodeConditionType
		status corev1.ConditionStatus
		reason string
		facts  status.Facts
		want   string
	}{
		"a filesystem":                 {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", onNode("/var"), "run `du -xah /var | sort -h | tail -20` to see what fills /var"},
		"what a pod's start writes to": {corev1.NodeDiskPressure, "True", "StartFilesystemSpace", started(), "run `du -xah /run | sort -h | tail -20` to see what fills /run"},
		"its inodes":                   {corev1.NodeDiskPressure, "True", "StartFilesystemInodes", started(), "run `du -x --inodes --max-depth=2 /tmp` to find the folder with the most files"},
		"a mount point with a blank":   {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", onNode("/mnt/two words"), "run `du -xah '/mnt/two words' | sort -h | tail -20` to see what fills '/mnt/two words'"},
		"a mount point with a quote":   {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", onNode("/x';reboot"), "run `du -xah '/x'\\'';reboot' | sort -h | tail -20` to see what fills '/x'\\'';reboot'"},
		"an overlay":                   {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", overlay, "run `find / -xdev -type f -printf '%k KiB %p\\n' | sort -n | tail -20` to see the largest files on /"},
		"its inodes on an overlay":     {corev1.NodeDiskPressure, "True", "NodeFilesystemInodes", overlay, "run `find / -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail -20` to find the folder with the most files"},
		"a folder without a mount":     {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", onNode(""), "run `du -xah /var/lib/hostler | sort -h | tail -20` to see what fills /var/lib/hostler"},
		"no filesystem that is known":  {corev1.NodeDiskPressure, "True", "NodeFilesystemSpace", status.Facts{}, "run `du -xah MOUNTPOINT | sort -h | tail -20` to see what fills MOUNTPOINT"},
		"a runtime":                    {corev1.NodeReady, "False", "RuntimeDown", runtimes(called("docker", true), called("cri-o", false)), "run `systemctl status crio`; if it runs, run `hostler doctor` as root"},
		"Podman":                       {corev1.NodeReady, "False", "RuntimeDown", runtimes(called("podman", false)), "run `systemctl status podman.socket`; if it runs, run `hostler doctor` as root"},
		"a runtime by its socket":      {corev1.NodeReady, "False", "RuntimeDown", runtimes(called("/run/x.sock", false), called("docker", false)), "run `systemctl status docker`; if it runs, run `hostler doctor` as root"},
		"no runtime":                   {corev1.NodeReady, "False", "NoRuntime", status.Facts{}, "run `systemctl start containerd`, or add its socket to `runtimes` in the configuration; if it runs already, run `hostler doctor` as root"},
		"a problem of somebody's own":  {"example.com/Full", "True", "NodeFilesystemSpace", onNode("/"), status.StepOfProblem},
		"a check of theirs that hangs": {"example.com/Full", "Unknown", "CheckNotRun", status.Facts{}, "run `hostler doctor`"},
		"nothing is wrong":             {corev1.NodeReady, "True", "HostReady", status.Facts{}, ""},
		"a reason of somebody else's":  {corev1.NodeReady, "Unknown", "NodeStatusUnknown", status.Facts{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			condition := corev1.NodeCondition{Type: c.kind, Status: c.status, Reason: c.reason}
			if got := status.NextSteps([]corev1.NodeCondition{condition}, c.facts)[c.kind]; got != c.want {
				t.Errorf("NextSteps() = %q, want %q", got, c.want)
			}
		})
	}
}

// TestStepsAreRightIfOnlyTheServiceIsRestricted has reasons that a drop-in such as InaccessiblePaths=
// causes on a host that is in order: a step that only changes the host would change nothing.
func TestStepsAreRightIfOnlyTheServiceIsRestricted(t *testing.T) {
	for reason, kind := range map[string]corev1.NodeConditionType{
		status.ReasonNoBus: status.ShutdownProtected, status.ReasonPodsOutOfReach: status.ShutdownProtected,
		status.ReasonNoRuntime: corev1.NodeReady, status.ReasonRuntimeDown: corev1.NodeReady, status.ReasonImageFilesystemUnknown: corev1.NodeReady,
	} {
		c := corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, Reason: reason}
		step := status.NextSteps([]corev1.NodeCondition{c}, status.Facts{})[kind]
		if !strings.HasSuffix(step, "run `hostler doctor` as root") && !strings.HasSuffix(step, "`systemctl cat hostler`") {
			t.Errorf("%s: the next step is %q, want that it leads to the settings of the service", reason, step)
		}
	}
}

func TestTheNextStepOfAnEndedPressureIsToWait(t *testing.T) {
	c := corev1.NodeCondition{
		Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Reason: status.ReasonImageFilesystemSpace,
		Message: status.NoPressureSince + "2026-11-20T03:09:00Z; the condition is lifted at 2026-11-20T03:14:00Z unless pressure recurs; now /var/lib/containerd has 30Gi of 100Gi free",
	}
	if got, want := status.NextSteps([]corev1.NodeCondition{c}, status.Facts{})[c.Type], "wait until the condition is lifted"; got != want {
		t.Errorf("NextSteps() = %q, want %q", got, want)
	}
}
