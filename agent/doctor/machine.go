package doctor

import (
	"fmt"
	"slices"
	"strings"

	"hostler.io/hostler/gc"
)

// Machine has the filesystems of images, and the host's resources under pressure.
type Machine struct {
	Pressures        []Fix // on memory, disks and PIDs, and from tasks that wait for them
	Network          []Fix // why other hosts do not reach this one
	ImageFilesystems []gc.FilesystemStatus
	ImagesUnknown    string // why the filesystems are not known; empty if they are
	HighPercent      int    // threshold of image collection; 0 if hostler does not own this job
	LowPercent       int
}

// imageFilesystem checks the filesystems of images: whether they are known and measured, and how full
// they are compared to the high threshold.
func imageFilesystem(f Facts) Check {
	m := f.Machine
	switch {
	case !f.Agent.Answers:
		return unchecked(f)
	case !slices.ContainsFunc(f.Runtimes.List, func(r Runtime) bool { return !r.bare() }):
		return Check{} // no runtime here has images; if there is no runtime at all, check runtimes reports that
	case m.ImagesUnknown != "":
		fix := "see check runtimes"
		if runtimes(f).Status == OK { // the agent checks runtimes every 10 seconds
			fix = "run `hostler doctor` again in some seconds"
		}
		return warn(fix, "cannot find the filesystem of images: %s", m.ImagesUnknown)
	case len(m.ImageFilesystems) == 0:
		return warn("check that the image directory of the runtime exists: `hostler status`, condition Ready", "no runtime has reported a filesystem of images: images cannot be collected")
	}
	var found faults
	var fine []string
	for _, fs := range m.ImageFilesystems {
		if fs.Message != "" {
			found.add(warn("check that it is mounted and answers: `stat "+fs.Filesystem+"`; if so, check the drop-ins in `systemctl cat hostler`", "cannot measure %s, so nothing is collected there: %s", fs.Filesystem, fs.Message))
			continue
		}
		text := fmt.Sprintf("%s (%s) holds the images of %s and has %s of %s free", fs.Filesystem, fs.Device, strings.Join(fs.Runtimes, " and "), gc.Size(fs.AvailableBytes), gc.Size(fs.CapacityBytes))
		switch used := max(fs.UsedPercent, fs.InodesUsedPercent); {
		case f.Collection.Images.Covers(fs.Runtimes): // check collection reports that, and a full filesystem
			text += fmt.Sprintf(": it is %d%% full, collected on request only", used)
		case m.HighPercent > 0 && m.HighPercent < gc.ThresholdOff:
			text += fmt.Sprintf(": it is %d%% full, collected from %d%% down to %d%%", used, m.HighPercent, m.LowPercent)
			if used >= m.HighPercent {
				found.add(warn("run `hostler gc plan` to see what would be removed; enlarge the filesystem, or raise imageGC.highThresholdPercent", "%s", text))
				continue
			}
		}
		fine = append(fine, text)
	}
	return found.or(ok("%s", strings.Join(fine, "; ")))
}

// pressure lists the pressures that the Node's conditions report.
func pressure(f Facts) Check {
	if !f.Agent.Answers {
		return Check{} // check agent reports that
	}
	return warnings(f.Machine.Pressures).or(ok("no pressure on memory, disks or PIDs"))
}

// nodeNetwork reports whether other hosts reach this one at the Node's addresses.
func nodeNetwork(f Facts) Check {
	if !f.Agent.Answers {
		return Check{} // check agent reports that
	}
	return warnings(f.Machine.Network).or(ok("the Node's addresses are on live interfaces"))
}

// warnings returns a warning for each fault.
func warnings(fixes []Fix) (found faults) {
	for _, m := range fixes {
		found.add(warn(m.Command, "%s", m.Message))
	}
	return found
}

// watchdog checks whether systemd restarts an agent that hangs.
func watchdog(f Facts) Check {
	if f.Systemd.Missing || f.Systemd.Problem != "" || f.Systemd.Service.LoadState != "loaded" {
		return Check{}
	}
	if err := f.Systemd.RunErr; err != nil {
		return unknown("whether systemd restarts an agent that hangs", err)
	}
	if f.Systemd.Run.Watchdog == 0 {
		return warn(set(f.Systemd.Service, "[Service]", "WatchdogSec=60")+" && systemctl restart hostler", "%s has no watchdog: systemd does not restart an agent that hangs", Service)
	}
	return ok("systemd restarts an agent that hangs for %v", f.Systemd.Run.Watchdog)
}

// bypasses lists the shutdowns without logind notification on this host, and what happens to pods then.
func bypasses(f Facts) Check {
	if f.Systemd.Missing || f.Systemd.Problem != "" || !f.Agent.Answers || len(f.Phases) == 0 || f.delegated() {
		return Check{}
	}
	bypassing := "`systemctl start reboot.target`, SIGRTMIN+3 to +6 to PID 1 (from container managers)"
	switch u := f.Systemd.CtrlAltDel; {
	case u.Err != nil:
		bypassing += " and, unless it is masked, Ctrl-Alt-Del"
	case u.LoadState != masked:
		bypassing += " and Ctrl-Alt-Del"
	}
	podman := ""
	if slices.ContainsFunc(f.Runtimes.List, func(r Runtime) bool { return r.Name == "podman" }) {
		podman = ". Exception: Podman containers without a unit, if podman.service is not running (/usr/share/doc/hostler/docs/reference/runtimes.md)"
	}
	return ok("shutdowns without logind notification: %s. Pods are still stopped in order if checks unit-order, scopes and job-timeouts are ok%s. `reboot -f` and a reset stop nothing in order", bypassing, podman)
}
