package cli

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
)

// stoppedNow is the current state of the containers and pods of a drain; nil right after the drain.
type stoppedNow struct {
	exited map[container]bool
	runs   map[string]bool // pods by NAMESPACE/NAME
}

// container identifies a container of this host.
type container struct{ runtime, id string }

// stillStopped returns the record of the last drain, and the current state of its pods. It adds the
// pods that ran before the last boot and that hostler does not start. The record is empty without
// both, or if the agent does not report all pods.
func stillStopped(ctx context.Context, c *api.Client) (journal.Record, *stoppedNow) {
	s, err := c.Status(ctx)
	if err != nil || s.Shutdown.Drained == nil && len(s.NotRestarted) == 0 {
		return journal.Record{}, nil
	}
	list, err := c.Pods(ctx)
	if err != nil || list.Message != "" {
		return journal.Record{}, nil
	}
	now := &stoppedNow{exited: map[container]bool{}, runs: map[string]bool{}}
	for _, p := range list.Pods {
		for _, of := range p.Containers {
			switch of.State {
			case runtime.Running.String():
				now.runs[p.Namespace+"/"+p.Name] = true
			case runtime.Exited.String():
				now.exited[container{p.Runtime, of.ID}] = true
			}
		}
	}
	var stopped journal.Record
	if s.Shutdown.Drained != nil {
		stopped = *s.Shutdown.Drained
	}
	stopped.Pods = append(stopped.Pods, recordsOf(s.NotRestarted, list.Pods)...)
	return stopped, now
}

// recordsOf returns records of stopped pods with these names. A pod that is not listed has only its
// name.
func recordsOf(names []string, pods []api.Pod) (records []journal.PodRecord) {
	for _, name := range names {
		listed := false
		for _, p := range pods {
			if strings.TrimPrefix(p.Namespace+"/"+p.Name, "/") != name {
				continue
			}
			listed = true
			r := journal.PodRecord{Runtime: p.Runtime, ID: p.ID, Namespace: p.Namespace, Name: p.Name, Outcome: journal.Stopped}
			r.Asked, r.Names = map[string]time.Time{}, map[string]string{}
			for _, c := range p.Containers {
				r.Asked[c.ID], r.Names[c.ID] = p.CreatedAt, c.Name
			}
			records = append(records, r)
		}
		if !listed {
			records = append(records, journal.PodRecord{Name: name, Outcome: journal.Stopped})
		}
	}
	return records
}

// podRuns reports whether a pod with this name runs. Its orchestrator or unit may have created it
// again.
func (n *stoppedNow) podRuns(p journal.PodRecord) bool {
	return n != nil && n.runs[p.Namespace+"/"+p.Name]
}

// changed reports whether a container runs again, or was removed.
func (n *stoppedNow) changed(p journal.PodRecord, id string) bool {
	return n != nil && !n.exited[container{p.Runtime, id}]
}

// stoppedPods returns the pods that a drain, and earlier drains of the same maintenance period,
// stopped. A pod that did not stop in time may have stopped later, which only the current state
// shows. A pod that the last drain skipped was running again.
func stoppedPods(r journal.Record, now *stoppedNow) (pods []journal.PodRecord) {
	skipped := map[container]bool{}
	for _, p := range r.Pods {
		skipped[container{p.Runtime, p.ID}] = p.Outcome == journal.Skipped
	}
	for _, p := range slices.Concat(r.Earlier, r.Pods) {
		late := p.Outcome != journal.Skipped && !p.StartedAt.IsZero() && now != nil
		over := p.Outcome == journal.Stopped || p.Outcome == journal.Killed
		if (over || late) && (now != nil || !skipped[container{p.Runtime, p.ID}]) {
			pods = append(pods, p)
		}
	}
	return pods
}

// printStopped lists the pods that a drain, and earlier drains of the same maintenance period,
// stopped and that do not run now. It also prints how to start each.
func printStopped(t *table, r journal.Record, now *stoppedNow) {
	start := map[string][]string{} // names by command
	var units, others []string
	for _, p := range stoppedPods(r, now) {
		name := strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")
		command := ""
		for _, program := range []string{"docker", "podman"} {
			if strings.HasPrefix(p.Runtime, program) {
				command = program + " start"
			}
		}
		if command == "" {
			if !now.podRuns(p) {
				others = append(others, name)
			}
			continue
		}
		for _, c := range p.Containers() {
			switch {
			case c.ByUnit && !now.podRuns(p):
				units = append(units, name)
			case !c.ByUnit && !now.changed(p, c.ID):
				start[command] = append(start[command], cmp.Or(c.Name, short(c.ID)))
			}
		}
	}
	if len(start)+len(units)+len(others) == 0 {
		return
	}
	t.line("hostler does not start the stopped pods. To start them again:")
	for _, command := range []string{"docker start", "podman start"} {
		if ids := start[command]; len(ids) > 0 {
			slices.Sort(ids)
			t.line("  %s %s", command, strings.Join(slices.Compact(ids), " "))
		}
	}
	for _, by := range []struct {
		names []string
		how   string
	}{
		{units, "run `systemctl start UNIT` for the units of "},
		{others, "the program that created them, such as an orchestrator, must start "},
	} {
		if len(by.names) > 0 {
			slices.Sort(by.names)
			for _, line := range wrap(by.how+strings.Join(slices.Compact(by.names), ", "), screenWidth-2) {
				t.line("  %s", line)
			}
		}
	}
}
