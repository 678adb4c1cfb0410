package restart_test

import (
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/restart"
)

func TestNotStarted(t *testing.T) {
	booted := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	before, after := booted.Add(-time.Hour), booted.Add(time.Minute)
	for name, c := range map[string]struct {
		is   runtime.Container
		want bool
	}{
		"always, ended before the boot":                 {runtime.Container{Restart: runtime.RestartByRuntime, State: runtime.Exited, StartedAt: before, FinishedAt: before.Add(time.Minute)}, true},
		"always, its start failed":                      {runtime.Container{Restart: runtime.RestartByRuntime, State: runtime.Created, StartedAt: before}, true},
		"always, runs":                                  {runtime.Container{Restart: runtime.RestartByRuntime, State: runtime.Running, StartedAt: before}, false},
		"always, ended since the boot":                  {runtime.Container{Restart: runtime.RestartByRuntime, State: runtime.Exited, StartedAt: after, FinishedAt: after}, false},
		"always, never ran":                             {runtime.Container{Restart: runtime.RestartByRuntime, State: runtime.Created}, false},
		"unless-stopped, stopped":                       {runtime.Container{Restart: runtime.RestartUnlessStopped, State: runtime.Exited, StartedAt: before, FinishedAt: before.Add(time.Minute)}, false},
		"unless-stopped, power cut under Podman":        {runtime.Container{Restart: runtime.RestartUnlessStopped, State: runtime.Exited, StartedAt: before}, true},
		"unless-stopped, power cut, earlier run's end":  {runtime.Container{Restart: runtime.RestartUnlessStopped, State: runtime.Exited, StartedAt: before, FinishedAt: before.Add(-time.Hour)}, true},
		"unless-stopped, power cut under Docker":        {runtime.Container{Restart: runtime.RestartUnlessStopped, State: runtime.Exited, StartedAt: before, FinishedAt: booted.Add(5 * time.Second)}, true},
		"no policy":                                     {runtime.Container{Restart: runtime.RestartNever, State: runtime.Exited, StartedAt: before}, false},
		"of a systemd unit":                             {runtime.Container{Restart: runtime.RestartByUnit, State: runtime.Exited, StartedAt: before}, false},
		"of an orchestrator, which returns no policy":   {runtime.Container{State: runtime.Exited, StartedAt: before}, false},
		"always, whose last start is not known (yet)":   {runtime.Container{Restart: runtime.RestartByRuntime, State: runtime.Exited}, false},
		"always, in a state that nobody can judge":      {runtime.Container{Restart: runtime.RestartByRuntime, StartedAt: before}, false},
		"not at a boot, as on-failure under Podman is":  {runtime.Container{Restart: runtime.RestartNotAtBoot, State: runtime.Exited, StartedAt: before}, false},
		"run once by whoever made it, as ctr run does":  {runtime.Container{Restart: runtime.RestartElsewhere, State: runtime.Exited, StartedAt: before}, false},
		"unless-stopped, ended by itself after a start": {runtime.Container{Restart: runtime.RestartUnlessStopped, State: runtime.Exited, StartedAt: after, FinishedAt: after}, false},
	} {
		pods := []runtime.Pod{{Containers: []runtime.Container{c.is}}}
		if got := len(restart.NotStarted(pods, nil, booted, booted.Add(time.Hour))) == 1; got != c.want {
			t.Errorf("NotStarted() of a container (%s): %v, want %v", name, got, c.want)
		}
		if got := restart.NotStarted(pods, nil, booted, booted.Add(time.Minute)); len(got) > 0 {
			t.Errorf("NotStarted() a minute after the boot = %v, want none", got)
		}
	}
}

// After a reboot, Docker and Podman do not start containers that a drain stopped before, unless the
// policy is always.
func TestWhatADrainStoppedBeforeTheBootIsNotStarted(t *testing.T) {
	booted := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	began := booted.Add(-10 * time.Minute)
	is := runtime.Container{Restart: runtime.RestartUnlessStopped, State: runtime.Exited, StartedAt: booted.Add(-time.Hour), FinishedAt: began.Add(time.Second)}
	drain := &journal.Record{StartedAt: began, Pods: []journal.PodRecord{
		{Runtime: "docker", ID: "app", StartedAt: began}, {Runtime: "docker", ID: "critical"},
	}, Earlier: []journal.PodRecord{
		{Runtime: "docker", ID: "web", StartedAt: began.Add(-time.Minute), FinishedAt: began.Add(-time.Minute)},
		{Runtime: "docker", ID: "started", StartedAt: is.StartedAt.Add(-time.Minute), FinishedAt: is.StartedAt.Add(-time.Minute)},
	}}
	for name, c := range map[string]struct {
		id    string
		ended time.Time
		want  bool
	}{
		"stopped by the drain":               {"app", is.FinishedAt, true},
		"stopped by a user before the drain": {"app", began.Add(-time.Second), false},
		"stopped by an earlier drain":        {"web", began.Add(-time.Minute), true},
		"stopped before the earlier drain":   {"web", began.Add(-2 * time.Minute), false},
		"started since the earlier drain":    {"started", is.FinishedAt, false},
		"not in the drain":                   {"other", is.FinishedAt, false},
		"skipped by the drain":               {"critical", is.FinishedAt, false},
	} {
		is := is
		is.FinishedAt = c.ended
		pods := []runtime.Pod{{Runtime: "docker", ID: c.id, Containers: []runtime.Container{is}}}
		if got := len(restart.NotStarted(pods, drain, booted, booted.Add(time.Hour))) == 1; got != c.want {
			t.Errorf("NotStarted() of a container (%s): %v, want %v", name, got, c.want)
		}
	}
}
