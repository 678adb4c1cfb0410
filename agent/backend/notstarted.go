package backend

import (
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/restart"
)

// notStarted names the containers that should run but were not started after the boot. Containers
// that a shutdown stopped and whose start is pending or failed are reported elsewhere.
func notStarted(pods []runtime.Pod, booted time.Time, history journal.History) (names []string) {
	for _, c := range restart.NotStarted(pods, history.Drained, booted, time.Now()) {
		if !slices.ContainsFunc(history.Restarts, func(r journal.Restart) bool {
			return r.Runtime == c.Runtime && r.ID == c.ID && (r.Outcome == "" || r.Outcome == journal.RestartFailed)
		}) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}
