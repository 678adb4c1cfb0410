package doctor

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"hostler.io/hostler/systemd"
)

// Collector is somebody else who removes images or containers, or restarts them, of
// which hostler hears afterwards.
type Collector struct {
	Where string // "docker-prune.timer", "/etc/cron.daily/docker", "process watchtower, pid 812"
	Does  string // the command; empty where that is the program itself
	Mend  string
	// Asked tells that it takes only what is labelled for it, and images without a name.
	Asked bool
}

// removal finds in a command line the tools that remove images and containers behind a
// runtime's back.
func removal() *regexp.Regexp {
	return regexp.MustCompile(`\b(?:docker|podman|nerdctl)\s+(?:[^;&|\n]*\s)?(?:(?:system|image|container|builder)\s+prune|image\s+rm|rmi|auto-update)\b|\bcrictl\s+(?:[^;&|\n]*\s)?(?:rmi|rmp?)\b|\b(?:docker-gc|docker_gc|docuum|watchtower)\b`)
}

// programs run for good, often in a container of their own. A process' name has 15
// characters at the most.
func programs() []string { return []string{"watchtower", "docuum", "docker-gc", "docker-gc-cron"} }

// cronFiles are where cron(8) and anacron(8) are told what to run.
func cronFiles() []string {
	return []string{"/etc/crontab", "/etc/anacrontab", "/etc/cron.d/*", "/etc/cron.hourly/*", "/etc/cron.daily/*", "/etc/cron.weekly/*", "/etc/cron.monthly/*", "/var/spool/cron/*", "/var/spool/cron/crontabs/*"}
}

// timedCollectors are those that an active timer starts. A script is looked into.
func timedCollectors(root string, timers []systemd.Timer) []Collector {
	var found []Collector
	for _, t := range timers {
		var its Collector
		for _, arguments := range allCommands(t.Runs) {
			does := removal().FindString(strings.Join(arguments, " "))
			if does == "" && len(arguments) > 0 {
				does = removes(filepath.Join(root, arguments[0]))
			}
			asked := autoUpdates(t.Name, arguments)
			if does != "" && (its.Does == "" || its.Asked && !asked) {
				its = Collector{Where: t.Name, Does: does, Mend: "systemctl disable --now " + t.Name, Asked: asked}
			}
		}
		if its.Does != "" {
			found = append(found, its)
		}
	}
	return found
}

// autoUpdates tells that a timer's command is as Podman comes with it, which Debian enables
// on each host with Podman; see podman-auto-update(1).
func autoUpdates(timer string, arguments []string) bool {
	return timer == "podman-auto-update.timer" && len(arguments) > 1 &&
		slices.Contains([]string{"auto-update", "image prune -f"}, strings.Join(arguments[1:], " "))
}

func allCommands(runs []systemd.Run) (all [][]string) {
	for _, r := range runs {
		all = append(all, r.Commands...)
	}
	return all
}

// longestScript is how much is read of a file that may be a script.
const longestScript = 64 << 10

// removes is what a script removes; empty where it removes nothing, or is none.
func removes(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > longestScript {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil || bytes.HasPrefix(text, []byte("\x7fELF")) {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if does := removal().FindString(line); does != "" && !strings.HasPrefix(line, "#") {
			return does
		}
	}
	return ""
}

// cronCollectors are those that cron starts, below root.
func cronCollectors(root string) []Collector {
	var found []Collector
	for _, pattern := range cronFiles() {
		paths, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are sound
		for _, path := range paths {
			if does := removes(path); does != "" {
				path = "/" + strings.TrimLeft(strings.TrimPrefix(path, root), "/")
				found = append(found, Collector{Where: path, Does: does, Mend: "take the line out of " + path})
			}
		}
	}
	return found
}

// runningCollectors are programs that run, by the names in proc.
func runningCollectors(root string) []Collector {
	var found []Collector
	paths, _ := filepath.Glob(filepath.Join(root, "proc/[0-9]*/comm"))
	for _, path := range paths {
		comm, err := os.ReadFile(path)
		name := strings.TrimSpace(string(comm))
		if err == nil && slices.Contains(programs(), name) {
			found = append(found, Collector{Where: fmt.Sprintf("process %s, pid %s", name, filepath.Base(filepath.Dir(path))), Mend: "stop " + name + ", or the container that it runs in"})
		}
	}
	return found
}

// collectors tells who else removes what hostler looks after.
func collectors(f Facts) Check {
	if f.CollectorsUntold {
		return warn("see that the mounts answer on which scripts of timers and of cron lie: `systemctl list-timers`, `ls /etc/cron.*`",
			"it is not known who else removes images or containers: a file that a timer or cron runs was not read within %v", bound)
	}
	fine := ok("nobody else was found who removes images or containers: no timer, no cron job, no program")
	const rest = "; no cron job and no program was found that removes images or containers"
	switch err := f.Systemd.TimersUntold; {
	case f.Systemd.Problem != "" && !f.Systemd.Missing:
		fine = Check{Status: Unknown, Hint: "see check unit", Message: "cannot tell what timers run" + rest}
	case err != nil:
		fine = unsaid("what all timers run", err)
		fine.Message += rest
	}
	var found faults
	for _, c := range f.Collectors {
		if c.Asked {
			if fine.Status == OK {
				fine = ok("%s runs `%s`, which restarts only containers labelled for it, and removes images without a name; where that is not wanted: %s", c.Where, c.Does, c.Mend)
			}
			continue
		}
		what := c.Where
		if c.Does != "" {
			what += " runs `" + c.Does + "`"
		}
		found.add(warn(c.Mend, "%s", what))
	}
	if len(found) == 0 {
		return fine
	}
	all := found.or(Check{})
	all.Message = "others remove images or containers, whatever hostler.io/keep and hostler's own rules say: " + all.Message
	all.Hint += "; or leave it the job: imageGC: {enabled: false}, containerGC: {enabled: false}"
	return all
}
