package doctor

import (
	"fmt"
	"slices"
	"strings"

	"hostler.io/hostler/gc"
)

// Machine is where the host keeps images, and what it lacks.
type Machine struct {
	Pressures        []Mend // of memory, disks and PIDs
	ImageFilesystems []gc.FilesystemStatus
	ImagesUntold     string // why they are not known; empty where they are
	HighPercent      int    // of image collection; 0 where it is not hostler's
	LowPercent       int
}

// imageFilesystem looks where images are, whether that can be measured, and how full it is
// beside what begins a collection.
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
		text := fmt.Sprintf("%s (%s) has those of %s and %s of %s free", fs.Filesystem, fs.Device, strings.Join(fs.Runtimes, " and "), gc.Size(fs.AvailableBytes), gc.Size(fs.CapacityBytes))
		if m.HighPercent > 0 && m.HighPercent < 100 {
			used := max(fs.UsedPercent, fs.InodesUsedPercent)
			text += fmt.Sprintf(": it is %d%% full, collected from %d%% down to %d%%", used, m.HighPercent, m.LowPercent)
			if used >= m.HighPercent {
				found.add(warn("`hostler gc plan` shows what would go and what keeps the rest; raise imageGC.highThresholdPercent, or give the filesystem more room", "%s", text))
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
		return Check{} // check agent says so
	}
	var found faults
	for _, p := range f.Machine.Pressures {
		found.add(warn(p.Command, "%s", p.Message))
	}
	return found.or(ok("none of memory, disks and PIDs"))
}

// watchdog looks whether systemd would notice an agent that hangs.
func watchdog(f Facts) Check {
	if f.Systemd.Missing || f.Systemd.Problem != "" || f.Systemd.Service.LoadState != "loaded" {
		return Check{}
	}
	if err := f.Systemd.RunUntold; err != nil {
		return unsaid("whether anybody starts an agent again that hangs", err)
	}
	if f.Systemd.Run.Watchdog == 0 {
		return warn(set(f.Systemd.Service, "[Service]", "WatchdogSec=60")+" && systemctl restart hostler", "%s has no watchdog: nobody starts an agent again that hangs", Service)
	}
	return ok("systemd starts an agent again that hangs for %v", f.Systemd.Run.Watchdog)
}

// bypasses tells which ways down do not pass logind here, and what becomes of pods then.
func bypasses(f Facts) Check {
	if f.Systemd.Missing || f.Systemd.Problem != "" || !f.Agent.Answers || len(f.Phases) == 0 || f.delegated() {
		return Check{}
	}
	past := "`systemctl start reboot.target`, SIGRTMIN+3 to +6 to PID 1 as container managers send them"
	switch u := f.Systemd.CtrlAltDel; {
	case u.Err != nil:
		past += " and, unless it is masked, Ctrl-Alt-Del"
	case u.LoadState != masked:
		past += " and Ctrl-Alt-Del"
	}
	podman := ""
	if slices.ContainsFunc(f.Runtimes.List, func(r Runtime) bool { return r.Name == "podman" }) {
		podman = ", but for containers of Podman that have no unit: they are left while podman.service does not run, because its start would cancel the shutdown (docs/reference/runtimes.md says how to keep it running)"
	}
	return ok("without logind notification: %s; pods are stopped in order then, too, where checks unit-order, scopes and job-timeouts are ok%s; `reboot -f` and a reset ask nobody", past, podman)
}
