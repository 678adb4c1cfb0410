package status

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
)

// nextSteps says by reason what to do first about a condition that is not as on a
// healthy host. docs/reference/conditions.md says more; a test keeps the two alike. What stands
// in capitals is put in by NextSteps.
func nextSteps() map[string]string {
	return map[string]string{
		ReasonNotMeasured: "see whether what the message names is mounted and answers; just after the start, wait for the next check",

		ReasonStarting:               "wait some seconds",
		ReasonDraining:               "`hostler ps` shows how far it is",
		ReasonNoRuntime:              "`systemctl start UNIT`, or name its socket under `runtimes` in the configuration",
		ReasonRuntimeDown:            "`systemctl status UNIT`",
		ReasonImageFilesystemUnknown: "check that the folder in the message exists and that its disk or network mount answers",

		ReasonInsufficientMemory:    "`systemd-cgtop -m` shows who holds it",
		ReasonNodeFilesystemSpace:   "`du -xh --max-depth=2 MOUNTPOINT` shows what fills it",
		ReasonNodeFilesystemInodes:  "`du -x --inodes --max-depth=2 MOUNTPOINT` shows the folder with the many files",
		ReasonStartFilesystemSpace:  "`du -xh --max-depth=2 MOUNTPOINT` shows what fills it",
		ReasonStartFilesystemInodes: "`du -x --inodes --max-depth=2 MOUNTPOINT` shows the folder with the many files",
		ReasonImageFilesystemSpace:  "`hostler gc plan` shows what would be collected and why the rest stays",
		ReasonImageFilesystemInodes: "`hostler gc plan` shows what would be collected and why the rest stays",
		ReasonInsufficientPIDs:      "`ps -eo nlwp,pid,args --sort=-nlwp` shows who has so many",

		ReasonStallsAboveThreshold: "`cat /proc/pressure/*` shows what is waited for",
		ReasonPSIUnavailable:       "add `psi=1` to the kernel command line and boot, or leave the section out",

		ReasonNoAddress:      "configure the network: `ip address` shows what there is",
		ReasonAddressMissing: "compare `node.address.internal` with `ip address`",
		ReasonNoCarrier:      "`ip link`; switch it on, or look at the cable, the switch port or the bond",

		ReasonCheckUnknown:  "run it by hand: `hostler doctor` has the line",
		ReasonCheckTimedOut: "give it more time with `timeout`, or a limit of its own to what it asks",
		ReasonCheckNotRun:   "`hostler doctor`",

		ReasonDelayTooShort:  "`hostler doctor` prints what to type",
		ReasonPodsOutOfReach: "`systemctl status UNIT`",
		ReasonSwitchedOff:    "nothing, if that is wanted; else change it in /etc/hostler, where `conf.d` counts over `hostler.yaml`, and `systemctl restart hostler`",
		ReasonNoBus:          "`systemctl start dbus.socket dbus.service && systemctl restart systemd-logind`",
		ReasonNoLogind:       "`systemctl unmask systemd-logind.service && systemctl restart systemd-logind`",
		ReasonNoLock:         "`hostler doctor`",
		ReasonDisarmed:       "wait some seconds",
	}
}

// NextSteps are the one thing for a person to do next about each of the conditions, as far as
// these facts, which they were found from, tell where. There is none where a condition is as it
// should be, or its reason is none of hostler's. That of a problem which a check of the
// administrator's own found is theirs, also where hostler has one of that name.
func NextSteps(conditions []corev1.NodeCondition, facts Facts) map[corev1.NodeConditionType]string {
	known, steps := nextSteps(), map[corev1.NodeConditionType]string{}
	for _, c := range conditions {
		fs, _ := nodeFilesystem(facts)
		switch c.Reason {
		case ReasonStartFilesystemSpace:
			fs = fullest(facts, func(fs Filesystem) uint64 { return fs.AvailableBytes })
		case ReasonStartFilesystemInodes:
			fs = fullest(facts, func(fs Filesystem) uint64 {
				if fs.Inodes == 0 { // it counts none
					return math.MaxUint64
				}
				return fs.InodesFree
			})
		}
		own := IsCustom(c.Type) && c.Status == corev1.ConditionTrue
		if step, found := known[c.Reason]; found && !own && !(Transition{New: c}).Good() {
			steps[c.Type] = strings.NewReplacer("UNIT", unitAway(facts), "MOUNTPOINT", place(fs)).Replace(step)
		}
	}
	return steps
}

// place is where a filesystem is, as a shell takes it.
func place(fs Filesystem) string {
	place := cmp.Or(fs.Mountpoint, fs.Path, "MOUNTPOINT")
	if strings.ContainsFunc(place, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("/._-", r)
	}) {
		place = "'" + strings.ReplaceAll(place, "'", `'\''`) + "'"
	}
	return place
}

// fullest is the filesystem that the start of a pod writes to with the least free.
func fullest(facts Facts, free func(Filesystem) uint64) (least Filesystem) {
	found := false
	for _, fs := range facts.Filesystems {
		if fs.Role == RoleStart && fs.Problem == "" && (!found || free(fs) < free(least)) {
			least, found = fs, true
		}
	}
	return least
}

// unitAway is the service of the first runtime that is not ready; containerd's if none is
// known.
func unitAway(facts Facts) string {
	for _, r := range slices.Concat(facts.Runtimes, facts.Unheard) {
		switch {
		case r.Ready:
		case r.Name == "cri-o":
			return "crio"
		case r.Name == "podman": // its service is started by who asks
			return "podman.socket"
		case !strings.Contains(r.Name, "/"):
			return r.Name
		}
	}
	return "containerd"
}
