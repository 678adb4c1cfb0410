package podman_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
)

func TestRestartOfAContainer(t *testing.T) {
	unit := func(name string) object { return object{"PODMAN_SYSTEMD_UNIT": name} }
	const service = "podman-restart.service"
	enabled := &manager{units: map[string]int{service: 0, "web.service": 0}, boots: []string{service}}
	disabled := &manager{units: map[string]int{service: 0}}
	unresponsive := &manager{fails: errors.New("systemd does not answer")}
	for name, c := range map[string]struct {
		policy  string
		labels  object
		infra   object
		systemd *manager
		want    runtime.Restart
	}{
		"nobody has said any":                    {systemd: enabled, want: runtime.RestartNever},
		"no":                                     {policy: "no", systemd: enabled, want: runtime.RestartNever},
		"on-failure":                             {policy: "on-failure", systemd: enabled, want: runtime.RestartNotAtBoot},
		"unless-stopped":                         {policy: "unless-stopped", systemd: enabled, want: runtime.RestartUnlessStopped},
		"always, and Podman's service starts it": {policy: "always", systemd: enabled, want: runtime.RestartByRuntime},
		"always, and Podman's service is disabled": {policy: "always", systemd: disabled, want: runtime.RestartUnlessStopped},
		"always, and there is no such service":     {policy: "always", systemd: &manager{}, want: runtime.RestartUnlessStopped},
		"always, and there is no systemd":          {policy: "always", want: runtime.RestartUnlessStopped},
		"always, and systemd does not answer":      {policy: "always", systemd: unresponsive, want: runtime.RestartUnknown},
		"unless-stopped, which systemd is not for": {policy: "unless-stopped", systemd: unresponsive, want: runtime.RestartUnlessStopped},
		"it is a unit's":                           {policy: "always", labels: unit("web.service"), systemd: enabled, want: runtime.RestartByUnit},
		"its pod is a unit's":                      {policy: "unless-stopped", infra: unit("web.service"), systemd: enabled, want: runtime.RestartByUnit},
		"it is a unit's, if systemd answers":       {policy: "no", labels: unit("web.service"), systemd: unresponsive, want: runtime.RestartUnknown},
		"it claims a unit that is none":            {policy: "unless-stopped", labels: unit("podman-compose@shop.service"), systemd: enabled, want: runtime.RestartUnlessStopped},
	} {
		t.Run(name, func(t *testing.T) {
			web := inspected("running", nil)
			if c.policy != "" {
				web["HostConfig"] = object{"RestartPolicy": object{"Name": c.policy}}
			}
			list := []any{listed("web", "running", 1, object{"Labels": c.labels})}
			if c.infra != nil {
				list[0].(object)["Pod"] = "p"
				list = append(list, listed("infra", "running", 1, object{"Labels": c.infra, "IsInfra": true, "Pod": "p"}))
			}
			s := newServer(t, map[string]any{"/libpod/containers/json": list, "/libpod/containers/web/json": web})
			r := s.open(t, nil)
			if c.systemd != nil {
				r = s.open(t, c.systemd)
			}
			pods, err := r.Pods(t.Context())
			check(t, err)
			if got := pods[0].Containers[0].Restart; got != c.want {
				t.Errorf("Restart = %v, want %v", got, c.want)
			}
		})
	}
	// Unknown facts are not reported.
	s := newServer(t, map[string]any{"/libpod/containers/json": []any{listed("web", "running", 1, nil)}, "/libpod/containers/web/json": 500})
	pods, err := s.open(t, enabled).Pods(t.Context())
	check(t, err)
	if !pods[0].Containers[0].Incomplete {
		t.Error("Incomplete = false of a container that cannot be inspected, want true")
	}
	if got := pods[0].Containers[0].Restart; got != runtime.RestartUnknown {
		t.Errorf("Restart of a container that cannot be inspected = %v, want %v", got, runtime.RestartUnknown)
	}
}

// No folder of Podman shows `podman update --restart`.
func TestAPolicyIsQueriedAgainAfterAWhile(t *testing.T) {
	web := func(policy string) object {
		w := inspected("running", nil)
		w["HostConfig"] = object{"RestartPolicy": object{"Name": policy}}
		return w
	}
	s := newServer(t, map[string]any{"/libpod/containers/json": []any{listed("web", "running", 1, nil)}, "/libpod/containers/web/json": web("no")})
	r := s.open(t, nil)
	policy := func() runtime.Restart {
		pods, err := r.Pods(t.Context())
		check(t, err)
		return pods[0].Containers[0].Restart
	}
	if got := policy(); got != runtime.RestartNever {
		t.Fatalf("Restart = %v, want %v", got, runtime.RestartNever)
	}
	s.set("/libpod/containers/web/json", web("unless-stopped"))
	r.Age(5 * time.Minute)
	if got := policy(); got != runtime.RestartUnlessStopped {
		t.Errorf("Restart five minutes later = %v, want %v", got, runtime.RestartUnlessStopped)
	}
	s.set("/libpod/containers/web/json", 500)
	r.Age(5 * time.Minute)
	if got := policy(); got != runtime.RestartUnlessStopped {
		t.Errorf("Restart if Podman does not answer = %v, want %v as before", got, runtime.RestartUnlessStopped)
	}
}

// A list has whole seconds. Each run is inspected once.
func TestRunsOfPodmansContainersAreReportedExactly(t *testing.T) {
	began := time.Date(2026, 11, 22, 10, 0, 0, 700, time.UTC)
	ended := began.Add(time.Minute)
	second := ended.Truncate(time.Second)
	answer := func(status string, began, ended time.Time) object {
		return object{"State": object{"Status": status, "StartedAt": began, "FinishedAt": ended}}
	}
	steps := []struct {
		what          string
		state         string
		pid           int
		began, ended  time.Time
		answer        any
		listed        runtime.ContainerState
		reported, end time.Time
		asked         bool
	}{
		{"it was made", "created", 0, time.Time{}, time.Time{}, answer("created", time.Time{}, time.Time{}), runtime.Created, time.Time{}, time.Time{}, true},
		{"it runs", "running", 7, began, time.Time{}, answer("running", began, time.Time{}), runtime.Running, began, time.Time{}, true},
		{"it runs still", "running", 7, began, time.Time{}, nil, runtime.Running, began, time.Time{}, false},
		{"it is to end", "stopping", 7, began, time.Time{}, nil, runtime.Running, began, time.Time{}, false},
		{"it ended", "exited", 0, began, ended, answer("exited", began, ended), runtime.Exited, began, ended, true},
		{"it is dead still", "exited", 0, began, ended, nil, runtime.Exited, began, ended, false},
		{"a start failed", "created", 0, began, ended, nil, runtime.Exited, began, ended, false},
		{"it runs again, in the same second", "running", 8, began, ended, answer("running", began.Add(1), ended), runtime.Running, began.Add(1), time.Time{}, true},
		{"and again", "running", 9, began, ended, answer("running", began.Add(2), ended), runtime.Running, began.Add(2), time.Time{}, true},
		{"it ended, without an end time", "exited", 0, began, ended.Add(time.Second), 500, runtime.Exited, time.Time{}, second.Add(time.Second), true},
		{"it was started as the list was made", "exited", 0, began, ended, answer("running", ended, ended), runtime.Exited, time.Time{}, second, true},
		{"the host lost its power", "exited", 0, ended.Add(time.Hour), ended, answer("exited", ended.Add(time.Hour), ended), runtime.Exited, ended.Add(time.Hour), time.Time{}, true},
		{"it ended before Podman had noted its start", "exited", 0, ended.Add(time.Second), ended, answer("exited", ended.Add(time.Second), ended), runtime.Exited, ended.Add(time.Second), ended, true},
	}
	s := newServer(t, nil)
	r := s.open(t, nil)
	for _, step := range steps {
		s.set("/libpod/containers/json", []any{listed("a", step.state, 1, object{"Pid": step.pid, "StartedAt": step.began.Unix(), "ExitedAt": step.ended.Unix()})})
		if step.answer != nil {
			s.set("/libpod/containers/a/json", step.answer)
		}
		pods, err := r.Pods(t.Context())
		check(t, err)
		c := pods[0].Containers[0]
		if c.State != step.listed || !c.StartedAt.Equal(step.reported) || !c.FinishedAt.Equal(step.end) {
			t.Errorf("%s: container is %v, its run from %v to %v, want %v, from %v to %v", step.what, c.State, c.StartedAt, c.FinishedAt, step.listed, step.reported, step.end)
		}
		if asked := slices.Contains(s.asked(), "GET /libpod/containers/a/json"); asked != step.asked {
			t.Errorf("%s: asked of it: %t, want %t", step.what, asked, step.asked)
		}
	}
}

func TestStartContainer(t *testing.T) {
	answers := map[string]int{"a": http.StatusNoContent, "runs": http.StatusNotModified, "bad": http.StatusInternalServerError}
	s := newServer(t, nil)
	for id, status := range answers {
		s.set("/libpod/containers/"+id+"/start", status)
	}
	r := s.open(t, nil)
	for id, says := range map[string]string{"a": "", "runs": "", "bad": "so it is", "gone": "so it is", "": "no ID"} {
		err := r.StartContainer(t.Context(), runtime.Container{ID: id, Name: "web"})
		if (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), `start container "web": `)) {
			t.Errorf("StartContainer(%q) = %v, want %q", id, err, says)
		}
	}
	calls := s.asked()
	for _, id := range slices.Sorted(maps.Keys(answers)) {
		if want := fmt.Sprintf("POST /libpod/containers/%s/start", id); !slices.Contains(calls, want) {
			t.Errorf("asked %v, want %s", calls, want)
		}
	}
}

func TestStartNeedsOfAContainer(t *testing.T) {
	about := inspected("exited", nil)
	mounts := []any{
		object{"Type": "bind", "Source": "/mnt/nas/db"},
		object{"Type": "volume", "Name": "disk", "Source": "/var/lib/containers/storage/volumes/disk/_data"},
		object{"Type": "volume", "Name": "share"},
		object{"Type": "volume", "Name": "cloud", "Driver": "plugin"}, // a plugin, which does not answer
	}
	for i := range 101 { // an image declares any number of volumes; not all are inspected
		mounts = append(mounts, object{"Type": "volume", "Name": fmt.Sprintf("%064x", i)})
	}
	about["Mounts"] = mounts
	about["HostConfig"] = object{"Devices": []any{object{"PathOnHost": "/dev/ttyUSB0"}}}
	answers := map[string]any{
		"/libpod/containers/web/json": about,
		"/libpod/volumes/disk/json":   object{"Driver": "local", "Options": object{"o": "bind", "device": "/mnt/disk/db"}},
		"/libpod/volumes/share/json":  object{"Driver": "local", "Options": object{"type": "nfs", "device": "nas:/share"}},
	}
	for i := range 100 {
		answers[fmt.Sprintf("/libpod/volumes/%064x/json", i)] = object{"Driver": "local"}
	}
	s := newServer(t, answers)
	for restart, units := range map[runtime.Restart][]string{runtime.RestartUnlessStopped: nil, runtime.RestartByRuntime: {"podman-restart.service"}} {
		got, err := s.open(t, nil).StartNeeds(t.Context(), runtime.Container{ID: "web", Restart: restart})
		want := []string{"/mnt/nas/db", "/mnt/disk/db", "/dev/ttyUSB0"}
		if err != nil || !slices.Equal(got.Paths, want) || !slices.Equal(got.Units, units) {
			t.Errorf("StartNeeds() = %+v, %v, want the paths %q and the units %q", got, err, want, units)
		}
	}
}

// An infra container stops with its pod's containers, and volumes do not need a running container.
func TestDependenciesOfAContainer(t *testing.T) {
	web := inspected("running", object{}, "infra", "db")
	web["HostConfig"] = object{"VolumesFrom": []string{"name-files:ro,gone"}}
	s := newServer(t, map[string]any{
		"/libpod/containers/json": []any{
			listed("web", "running", 1, nil), listed("db", "running", 1, nil), listed("files", "running", 1, nil),
			listed("infra", "running", 1, object{"IsInfra": true, "Pod": "p"}), listed("member", "running", 1, object{"Pod": "p"}),
		},
		"/libpod/pods/json":              []any{object{"Id": "p", "Name": "shop"}},
		"/libpod/containers/web/json":    web,
		"/libpod/containers/db/json":     inspected("running", object{}),
		"/libpod/containers/files/json":  inspected("running", object{}),
		"/libpod/containers/member/json": inspected("running", object{}, "infra"),
	})
	pods, err := s.open(t, nil).Pods(t.Context())
	check(t, err)
	got := map[string]string{}
	for _, p := range pods {
		for _, c := range p.Containers {
			got[c.ID] = fmt.Sprint(c.StopsBefore, c.Joins)
		}
	}
	if want := map[string]string{"web": "[member db files] [db]", "db": "[] []", "files": "[] []", "member": "[] []"}; !maps.Equal(got, want) {
		t.Errorf("containers stop before and join %v, want %v", got, want)
	}
}
