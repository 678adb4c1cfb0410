package status

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
)

// nextSteps returns the first step for each bad reason of a condition. docs/reference/conditions.md
// has more steps; a test compares the two. NextSteps replaces the words in capitals.
func nextSteps() map[string]string {
	return map[string]string{
		ReasonNotMeasured: "check that the file or mount in the message exists and answers; just after the start, wait for the next check",

		ReasonStarting:               "wait a few seconds",
		ReasonDraining:               "run `hostler ps` to follow the progress",
		ReasonNoRuntime:              "run `systemctl start UNIT`, or add its socket to `runtimes` in the configuration; if it runs already, " + stepDoctor,
		ReasonRuntimeDown:            stepRuntime,
		ReasonImageFilesystemUnknown: "check that the folder in the message exists and that its disk or network mount answers; if so, check the drop-ins in `systemctl cat hostler`",

		ReasonInsufficientMemory:    "run `systemd-cgtop -m` to see what uses the memory",
		ReasonNodeFilesystemSpace:   stepSpace,
		ReasonNodeFilesystemInodes:  stepInodes,
		ReasonStartFilesystemSpace:  stepSpace,
		ReasonStartFilesystemInodes: stepInodes,
		ReasonImageFilesystemSpace:  stepImages,
		ReasonImageFilesystemInodes: stepImages,
		ReasonInsufficientPIDs:      "run `ps -eo nlwp,pid,args --sort=-nlwp` to see which processes have the most threads",

		ReasonStallsAboveThreshold: "run `cat /proc/pressure/*` to see which resource is stalled",
		ReasonPSIUnavailable:       "add `psi=1` to the kernel command line and reboot, or remove the section",

		ReasonNoAddress:      "configure the network; run `ip address` to list the addresses",
		ReasonAddressMissing: stepAddressMissing,
		ReasonNoCarrier:      "run `ip link`; set the interface up, or check the cable, the switch port or the bond",

		ReasonCheckUnknown:  "run the check manually; `hostler doctor` prints the command",
		ReasonCheckTimedOut: "raise its `timeout`, or set a timeout in the check itself",
		ReasonCheckNotRun:   "run `hostler doctor`",

		ReasonDelayTooShort:  "run `hostler doctor`, which names what to change",
		ReasonPodsOutOfReach: stepRuntime,
		ReasonSwitchedOff:    "if this is not intended, enable it (`hostler doctor` names the file), then run `systemctl restart hostler`",
		ReasonNoBus:          stepDoctor,
		ReasonNoLogind:       "run `systemctl unmask systemd-logind.service && systemctl restart systemd-logind`",
		ReasonNoLock:         "run `hostler doctor`",
		ReasonDisarmed:       "wait a few seconds",
	}
}

// stepDoctor is the step if either the host or a setting of hostler.service may be the cause: only
// `hostler doctor`, as root, compares the two.
const stepDoctor = "run `hostler doctor` as root"

const stepRuntime = "run `systemctl status UNIT`; if it runs, " + stepDoctor

const (
	stepSpace  = "run `du -xah MOUNTPOINT | sort -h | tail -20` to see what fills MOUNTPOINT"
	stepInodes = "run `du -x --inodes --max-depth=2 MOUNTPOINT` to find the folder with the most files"
)

// onOverlay returns the step for an overlay filesystem. Its files may have another device number
// than its folders, so `du -x` leaves them out.
func onOverlay(step string) string {
	switch step {
	case stepSpace:
		return "run `find MOUNTPOINT -xdev -type f -printf '%k KiB %p\\n' | sort -n | tail -20` to see the largest files on MOUNTPOINT"
	case stepInodes:
		return "run `find MOUNTPOINT -xdev -printf '%h\\n' | sort | uniq -c | sort -n | tail -20` to find the folder with the most files"
	}
	return step
}

const stepImages = "run `hostler gc plan` to see what would be removed and why the rest is kept"

// stepOver is the next step for a pressure that has ended.
const stepOver = "wait until the condition is lifted"

const stepAddressMissing = "compare it with `ip address`, and correct node.address.internal"

// StepAddressMissing returns the next step for an error of CheckAddresses. An address can be
// virtual, an interface cannot.
func StepAddressMissing(message string) string {
	_, missing, _ := strings.Cut(message, noAddressFor)
	for _, selector := range strings.FieldsFunc(missing, func(r rune) bool { return r == ',' || r == ' ' }) {
		if _, err := netip.ParseAddr(selector); err == nil {
			return stepAddressMissing + "; if it is a virtual address that another host has now, do nothing"
		}
	}
	return stepAddressMissing
}

// StepOfProblem is the next step for a problem that a custom check found.
const StepOfProblem = "fix what it reports; `hostler doctor` prints the command to run the check again"

// NextSteps returns the next step for each bad condition, with places from the facts from which the
// conditions were derived. Conditions that are good, or whose reason is not hostler's, have none.
// The problem of a custom check has its own reason, even if hostler uses the same reason.
func NextSteps(conditions []corev1.NodeCondition, facts Facts) map[corev1.NodeConditionType]string {
	known, steps := nextSteps(), map[corev1.NodeConditionType]string{}
	for _, c := range conditions {
		fs, _ := nodeFilesystem(facts)
		switch c.Reason {
		case ReasonStartFilesystemSpace:
			fs = fullest(facts, func(fs Filesystem) uint64 { return fs.AvailableBytes })
		case ReasonStartFilesystemInodes:
			fs = fullest(facts, func(fs Filesystem) uint64 {
				if fs.Inodes == 0 { // filesystem without an inode count
					return math.MaxUint64
				}
				return fs.InodesFree
			})
		}
		step, found := known[c.Reason]
		if fs.Type == "overlay" {
			step = onOverlay(step)
		}
		if IsCustom(c.Type) && c.Status == corev1.ConditionTrue {
			step, found = StepOfProblem, true
		}
		if c.Type == corev1.NodeDiskPressure && step != stepImages && shortOfImages(facts, c.Message) {
			step = stepImages + "; " + step
		}
		if strings.HasPrefix(c.Message, NoPressureSince) {
			step = stepOver
		}
		if found && !(Transition{New: c}).Good() {
			steps[c.Type] = strings.NewReplacer("UNIT", missingUnit(facts), "MOUNTPOINT", place(fs)).Replace(step)
		}
	}
	return steps
}

// shortOfImages reports whether a message about DiskPressure, whose reason is only that of the
// worst filesystem, also names one with images.
func shortOfImages(facts Facts, message string) bool {
	return slices.ContainsFunc(facts.Filesystems, func(fs Filesystem) bool {
		return fs.Role == RoleImage && fs.Problem == "" && strings.Contains(message, describe(fs)+" has ")
	})
}

// place returns the mount point of a filesystem, quoted for a shell.
func place(fs Filesystem) string {
	place := cmp.Or(fs.Mountpoint, fs.Path, "MOUNTPOINT")
	if strings.ContainsFunc(place, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-", r)
	}) {
		place = "'" + strings.ReplaceAll(place, "'", `'\''`) + "'"
	}
	return place
}

// fullest returns the filesystem with the least free space among those that are written when a pod
// starts.
func fullest(facts Facts, free func(Filesystem) uint64) (least Filesystem) {
	found := false
	for _, fs := range facts.Filesystems {
		if fs.Role == RoleStart && fs.Problem == "" && (!found || free(fs) < free(least)) {
			least, found = fs, true
		}
	}
	return least
}

// missingUnit returns the service of the first runtime that is not ready, or containerd's if there
// is none.
func missingUnit(facts Facts) string {
	for _, r := range slices.Concat(facts.Runtimes, facts.Unreachable) {
		switch {
		case r.Ready:
		case r.Name == "cri-o":
			return "crio"
		case r.Name == "podman": // its service is started by socket activation
			return "podman.socket"
		case !strings.Contains(r.Name, "/"):
			return r.Name
		}
	}
	return "containerd"
}
