package status

import (
	"cmp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// nextSteps says by reason what to do first about a condition that is not as on a
// healthy host. docs/conditions.md says more; a test keeps the two alike. What stands
// in capitals is put in by NextStep.
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

// NextStep is the one thing for a person to do next about a condition; empty where
// it is as it should be, or its reason is none of hostler's. That of a problem which a
// check of the administrator's own found is theirs, also where hostler has one of that
// name: what the check printed must not end up in a command for root. The service of the
// runtime that it may be about is unit, containerd's if that is empty.
func NextStep(c corev1.NodeCondition, unit string) string {
	if (Transition{New: c}).Good() || IsCustom(c.Type) && c.Status == corev1.ConditionTrue {
		return ""
	}
	place := "/"
	if at := strings.Index(" "+c.Message, " /"); at >= 0 { // as describe writes it
		place, _, _ = strings.Cut(c.Message[at:], " (")
	}
	if strings.ContainsAny(place, "\t\n;,:") || strings.Contains(place, " has ") {
		place, _, _ = strings.Cut(place, " ")
	}
	if strings.Contains(place, " ") {
		place = "'" + place + "'"
	}
	return strings.NewReplacer("UNIT", cmp.Or(unit, "containerd"), "MOUNTPOINT", place).Replace(nextSteps()[c.Reason])
}
