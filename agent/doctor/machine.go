package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/status"
	"hostler.io/hostler/systemd"
)

// Machine is the host itself, as it is now.
type Machine struct {
	CgroupVersion       int // as probe.Machine has it
	SwapTotal, SwapFree uint64
	ImageFilesystems    []gc.FilesystemStatus
	ImagesUntold        string // why they are not known; empty where they are
	HighPercent         int    // of image collection; 0 where it is not hostler's
	LowPercent          int
	Headrooms           []status.Headroom
}

// imageFilesystem looks where images are, and whether that can be measured.
func imageFilesystem(f Facts) Check {
	m := f.Machine
	switch {
	case !f.Agent.Answers:
		return untold(f)
	case !slices.ContainsFunc(f.Runtimes.List, func(r Runtime) bool { return !r.bare() }):
		return Check{} // nobody keeps images here; where nobody is there at all, check runtimes says so
	case m.ImagesUntold != "":
		return warn("see check runtimes", "it is not known where images are: %s", m.ImagesUntold)
	case len(m.ImageFilesystems) == 0:
		return warn("see that the folder of the runtime's images is there: `hostler status`, condition Ready", "no runtime has named a filesystem of its images: they cannot be collected")
	}
	var found faults
	var fine []string
	for _, fs := range m.ImageFilesystems {
		if fs.Message != "" {
			found.add(warn("see that it is mounted, and that its disk or network mount answers: `stat "+fs.Filesystem+"`", "%s cannot be measured, and so not collected: %s", fs.Filesystem, fs.Message))
			continue
		}
		fine = append(fine, fmt.Sprintf("%s (%s) has those of %s and %s of %s free", fs.Filesystem, fs.Device, strings.Join(fs.Runtimes, " and "), gc.Size(fs.AvailableBytes), gc.Size(fs.CapacityBytes)))
	}
	return found.or(ok("%s", strings.Join(fine, "; ")))
}

// thresholds compares what is used now with what begins a collection, or turns a
// condition of pressure True.
func thresholds(f Facts) Check {
	m := f.Machine
	var found faults
	var fine []string
	for _, h := range m.Headrooms {
		text := fmt.Sprintf("%s, pressure below %s", h.Now, h.Threshold)
		switch {
		case h.Problem != "":
			found.add(warn("see whether what it names is mounted and answers", "%s", h.Problem))
		case h.Below:
			found.add(warn("hostler status says what to do", "%s", text))
		default:
			fine = append(fine, text)
		}
	}
	for _, fs := range m.ImageFilesystems {
		used := max(fs.UsedPercent, fs.InodesUsedPercent)
		text := fmt.Sprintf("%s is %d%% full, collected from %d%% down to %d%%", fs.Filesystem, used, m.HighPercent, m.LowPercent)
		switch {
		case m.HighPercent == 0 || m.HighPercent >= 100 || fs.Message != "":
		case used >= m.HighPercent:
			found.add(warn("`hostler gc plan` shows what would go and what keeps the rest; raise imageGC.highThresholdPercent, or give the filesystem more room", "%s", text))
		default:
			fine = append(fine, text)
		}
	}
	if len(found) == 0 && len(fine) == 0 {
		return Check{} // nothing was measured yet
	}
	return found.or(ok("%s", strings.Join(fine, "; ")))
}

// timeServices keep a host's clock right, each under its own name.
func timeServices() []string {
	return []string{"systemd-timesyncd.service", "chrony.service", "chronyd.service", "ntpsec.service", "ntp.service", "ntpd.service", "openntpd.service"}
}

// clock looks whether somebody sets this host's clock, and has.
func clock(f Facts) Check {
	if f.Systemd.Missing || f.Systemd.Problem != "" || f.Systemd.Container {
		return Check{}
	}
	i := slices.IndexFunc(f.Systemd.TimeServices, func(u systemd.Unit) bool { return u.ActiveState == "active" })
	untold := slices.IndexFunc(f.Systemd.TimeServices, func(u systemd.Unit) bool { return u.Untold != nil })
	if i < 0 && untold >= 0 {
		return unsaid("whether anybody sets this host's clock", f.Systemd.TimeServices[untold].Untold)
	}
	if i < 0 {
		return warn("apt-get install chrony, or dnf install chrony; where one is there: systemctl enable --now chrony",
			"nobody sets this host's clock: of %s none runs; leases and certificates are judged by it", strings.Join(timeServices(), ", "))
	}
	name := f.Systemd.TimeServices[i].Name
	switch {
	case f.Clock.Untold != "":
		return ok("%s runs; whether it has set the clock is not known: %s", name, f.Clock.Untold)
	case !f.Clock.Set:
		return warn("`timedatectl timesync-status`, `chronyc tracking` or `ntpq -p`; see that its servers can be reached (UDP port 123)",
			"%s runs, and nobody has set the clock since the boot, or for hours; leases and certificates are judged by it", name)
	}
	return ok("%s runs, and the clock has been set", name)
}

// cgroups tells which version of them containers live in.
func cgroups(f Facts) Check {
	switch f.Machine.CgroupVersion {
	case 2:
		return ok("cgroup v2")
	case 1:
		return ok("cgroup v1, with which hostler works; newer systemd and kubelet do not: systemd.unified_cgroup_hierarchy=1 on the kernel's command line has v2 from the next boot on")
	}
	return warn("mount -t cgroup2 cgroup2 /sys/fs/cgroup", "no cgroup file system is mounted at /sys/fs/cgroup: runtimes cannot limit containers")
}

// crammed is from which part of swap on little is left of it, in percent.
const crammed = 90

// swap tells how much of it is used: MemoryPressure goes by memory alone.
func swap(f Facts) Check {
	m := f.Machine
	if m.SwapTotal == 0 {
		return ok("there is none")
	}
	used := m.SwapTotal - min(m.SwapFree, m.SwapTotal)
	text := fmt.Sprintf("%s of %s is used", gc.Size(used), gc.Size(m.SwapTotal))
	if float64(used) >= float64(m.SwapTotal)*crammed/100 {
		return warn("`systemd-cgtop -m` shows who holds memory; stop or limit that, or add some", "%s: when it is full the kernel kills", text)
	}
	return ok("%s", text)
}

// watchdog looks whether a hang would be noticed: of the agent by systemd, and of systemd
// by the hardware.
func watchdog(f Facts) Check {
	if f.Systemd.Missing || f.Systemd.Problem != "" || f.Systemd.Service.LoadState != "loaded" {
		return Check{}
	}
	hardware := "the hardware's is off"
	if d := f.Systemd.Host.Watchdog; d > 0 {
		hardware = fmt.Sprintf("the hardware resets the host when systemd hangs for %v", d)
	}
	if f.Systemd.HostUntold != nil {
		hardware = "of the hardware's systemd did not say"
	}
	if err := f.Systemd.RunUntold; err != nil {
		return unsaid("whether anybody starts an agent again that hangs", err)
	}
	if f.Systemd.Run.Watchdog == 0 {
		return warn(set(f.Systemd.Service, "[Service]", "WatchdogSec=60")+" && systemctl restart hostler", "%s has no watchdog: nobody starts an agent again that hangs; %s", Service, hardware)
	}
	return ok("systemd starts an agent again that hangs for %v; %s", f.Systemd.Run.Watchdog, hardware)
}

// bypasses tells which ways down do not pass logind here, and what becomes of pods then.
func bypasses(f Facts) Check {
	if f.Systemd.Missing || f.Systemd.Problem != "" || !f.Agent.Answers || len(f.Phases) == 0 || f.delegated() {
		return Check{}
	}
	past := "`systemctl start reboot.target`"
	switch u := f.Systemd.CtrlAltDel; {
	case u.Untold != nil:
		past += " and, unless it is masked, Ctrl-Alt-Del"
	case u.LoadState != masked:
		past += " and Ctrl-Alt-Del"
	}
	return ok("with systemd %s %s go past logind: pods are stopped in order then, too, where checks unit-order, scopes and job-timeouts are ok; `reboot -f` and a reset ask nobody",
		cmp.Or(f.Systemd.Host.Version, "of an unknown version"), past)
}
