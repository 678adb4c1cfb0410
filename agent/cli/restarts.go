package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// restarts prints the progress of restarts after a shutdown, until all have succeeded.
func restarts(out *output, s api.Status) string {
	counts := map[journal.RestartOutcome]int{}
	var failed []string
	waiting := map[string][]string{} // container names, by what they wait for
	for _, r := range s.Shutdown.Restarts {
		if ofSystemd(r) {
			continue
		}
		counts[r.Outcome]++
		if r.Outcome == journal.RestartFailed {
			failed = append(failed, nameOf(r)+": "+r.Reason)
		}
		if r.Outcome == "" && r.Reason != "" {
			waiting[r.Reason] = append(waiting[r.Reason], nameOf(r))
		}
	}
	pending := counts[""]
	if pending+len(failed) == 0 {
		return ""
	}
	parts := []string{fmt.Sprintf("%d of %s that a %s stopped", counts[journal.Restarted], count(counts[journal.Restarted]+pending+len(failed), "container"), stoppedBy(s.Shutdown.Restarts))}
	if pending > 0 {
		text := fmt.Sprintf("%d pending", pending)
		var reasons []string
		for _, reason := range slices.Sorted(maps.Keys(waiting)) {
			slices.Sort(waiting[reason])
			reasons = append(reasons, strings.Join(waiting[reason], ", ")+" ("+reason+")")
		}
		if len(reasons) > 0 {
			text += ": " + strings.Join(reasons, ", ")
		}
		parts = append(parts, text)
	}
	if len(failed) > 0 {
		parts = append(parts, out.red(fmt.Sprintf("%d FAILED", len(failed)))+": "+strings.Join(failed, "; "))
	}
	return strings.Join(parts, "; ")
}

// stoppedBy returns what stopped all of these containers.
func stoppedBy(restarts []journal.Restart) string {
	if slices.ContainsFunc(restarts, func(r journal.Restart) bool { return !r.Drained }) {
		return "shutdown"
	}
	return "drain"
}

// notStarted names the containers that should run and were not started after the boot.
func notStarted(out *output, s api.Status) string {
	if len(s.NotStarted) == 0 {
		return ""
	}
	return out.red(count(len(s.NotStarted), "container")) + " since boot, despite their restart policy: " + strings.Join(s.NotStarted, ", ")
}

// nameOf returns the name of a container, or the start of its ID.
func nameOf(r journal.Restart) string {
	if r.Name == "" {
		return short(r.ID)
	}
	return r.Name
}

// ofSystemd reports whether systemd, and not hostler, is about to start a container again.
func ofSystemd(r journal.Restart) bool { return r.ByUnit && r.Outcome == "" }

// restartNote returns what happened to a pod's containers after a shutdown, and why hostler does
// not start them.
func restartNote(p journal.PodRecord, all []journal.Restart) string {
	var parts []string
	if p.Once && !p.StartedAt.IsZero() {
		parts = append(parts, "not started by hostler: its runtime cannot start it again")
	}
	for _, o := range []struct {
		outcome journal.RestartOutcome
		what    string
	}{
		{journal.Restarted, "restarted"},
		{journal.RestartFailed, "cannot restart"},
		{"", "restart pending"},
		{journal.LeftStopped, "not started by hostler"},
	} {
		var names []string
		for _, r := range all {
			if r.Runtime == p.Runtime && r.Pod == p.ID && r.Outcome == o.outcome && !ofSystemd(r) {
				name := nameOf(r)
				if r.Reason != "" {
					name += " (" + r.Reason + ")"
				}
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			parts = append(parts, o.what+": "+strings.Join(names, ", "))
		}
	}
	return strings.Join(parts, "; ")
}

// notRestarted names the pods that ran before a reboot, do not run, and are not hostler's to start.
func notRestarted(out *output, s api.Status) string {
	if len(s.NotRestarted) == 0 {
		return ""
	}
	return fmt.Sprintf("%s that ran before the boot; hostler does not start them: %s", out.yellow(count(len(s.NotRestarted), "pod")), strings.Join(s.NotRestarted, ", "))
}

// printAfterBoot prints who starts the containers of pods after a boot. restart is `shutdown.restartAfterBoot`.
func printAfterBoot(t *table, pods []plan.PlannedPod, restart string) {
	by, ofOrchestrator := map[runtime.Restart][]string{}, []string{}
	for _, pod := range pods {
		for _, c := range pod.Containers {
			by[c.Restart] = append(by[c.Restart], c.Name)
		}
		if pod.Sandbox {
			ofOrchestrator = append(ofOrchestrator, strings.TrimPrefix(pod.Namespace+"/"+pod.Name, "/"))
		}
	}
	hostler := "started after boot by hostler"
	if restart == config.RestartNever {
		hostler = "not started after boot (shutdown.restartAfterBoot: never)"
	}
	by[runtime.RestartNever] = append(by[runtime.RestartNever], by[runtime.RestartNotAtBoot]...)
	first := true
	for _, who := range []struct {
		noun  string
		names []string
		text  string
	}{
		{"container", by[runtime.RestartUnlessStopped], hostler},
		{"container", by[runtime.RestartByRuntime], "started after boot by their runtime, if their restart policy says so"},
		{"container", by[runtime.RestartByUnit], "started after boot by systemd, if their units are enabled"},
		{"pod", ofOrchestrator, "started after boot only by their orchestrator"},
		{"container", by[runtime.RestartElsewhere], "started after boot only by the tool that created them"},
		{"container", by[runtime.RestartNever], "not started after boot, because of their restart policy"},
	} {
		if len(who.names) == 0 {
			continue
		}
		if first {
			t.line("")
			first = false
		}
		slices.Sort(who.names)
		for _, line := range wrap(fmt.Sprintf("%s: %s (%s)", who.text, count(len(who.names), who.noun), strings.Join(who.names, ", ")), screenWidth) {
			t.line("%s", line)
		}
	}
}
