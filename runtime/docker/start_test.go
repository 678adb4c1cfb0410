package docker_test

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker"
)

// ended is a container with a restart policy that ran for a minute, an hour ago.
func ended(policy string) object {
	end := time.Now().Add(-time.Hour)
	return object{
		"Created": "2026-11-20T10:00:00Z", "Config": object{}, "HostConfig": object{"RestartPolicy": object{"Name": policy}},
		"State": object{"ExitCode": 3, "StartedAt": end.Add(-time.Minute).Format(time.RFC3339Nano), "FinishedAt": end.Format(time.RFC3339Nano)},
	}
}

// exited is listed as ended an hour ago.
func exited(id string) object {
	c := listed(id, "exited", nil)
	c["Status"] = "Exited (3) About an hour ago"
	return c
}

// Docker 19.03 and later versions have different folders.
func TestContainersThatRunAreSeenByTheirShims(t *testing.T) {
	for _, folder := range []string{
		"/run/containerd/io.containerd.runtime.v1.linux/moby/30d09f47dfb5",
		"/run/docker/containerd/daemon/io.containerd.runtime.v1.linux/moby/30d09f47dfb5",
		"/run/containerd/io.containerd.runtime.v2.task/moby/30d09f47dfb5",
		"/run/snap.docker/containerd/daemon/io.containerd.runtime.v2.task/moby/30d09f47dfb5",
	} {
		if !slices.ContainsFunc(docker.Running(), func(pattern string) bool { fits, err := filepath.Match(pattern, folder); return fits && err == nil }) {
			t.Errorf("Running() = %q, want %s seen", docker.Running(), folder)
		}
	}
}

func TestRestartOfAContainer(t *testing.T) {
	for policy, want := range map[string]runtime.Restart{
		"": runtime.RestartNever, "no": runtime.RestartNever, "always": runtime.RestartByRuntime,
		"on-failure": runtime.RestartByRuntime, "unless-stopped": runtime.RestartUnlessStopped,
	} {
		s := newServer(t, "1.45", object{"/containers/json": []any{exited("a")}, "/containers/a/json": ended(policy)})
		pods, err := s.client(t).Pods(t.Context())
		if err != nil || len(pods) != 1 {
			t.Fatalf("Pods() = %v, %v, want one", pods, err)
		}
		if c := pods[0].Containers[0]; c.Restart != want || c.FinishedAt.Sub(c.StartedAt) != time.Minute {
			t.Errorf("policy %q: Restart %v, from %v to %v; want %v, and a minute", policy, c.Restart, c.StartedAt, c.FinishedAt, want)
		}
	}
}

func TestAContainerBetweenTwoAttemptsIsReported(t *testing.T) {
	s := newServer(t, "1.45", object{"/containers/json": []any{listed("a", "restarting", nil), listed("b", "running", nil)}, "/containers/a/json": ended("always"), "/containers/b/json": ended("always")})
	pods, err := s.client(t).Pods(t.Context())
	if err != nil || len(pods) != 2 {
		t.Fatalf("Pods() = %v, %v, want two", pods, err)
	}
	for _, p := range pods {
		if c := p.Containers[0]; c.State != runtime.Running || c.Restarting != (c.ID == "a") {
			t.Errorf("container %s is %v, restarting: %t; want both running, and a restarting", c.ID, c.State, c.Restarting)
		}
	}
}

// `docker update --restart` changes only the policy.
func TestAChangedContainerIsInspectedAgain(t *testing.T) {
	event := make(chan any)
	s := newServer(t, "1.45", object{
		"/containers/json": []any{exited("a")}, "/containers/a/json": ended("no"),
		"/events": streamOf(event),
	})
	r := s.client(t)
	policy := func() runtime.Restart {
		t.Helper()
		pods, err := r.Pods(t.Context())
		if err != nil || len(pods) != 1 {
			t.Fatalf("Pods() = %v, %v, want one", pods, err)
		}
		return pods[0].Containers[0].Restart
	}
	if got := policy(); got != runtime.RestartNever {
		t.Errorf("Restart = %v, want %v", got, runtime.RestartNever)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := make(chan runtime.Event)
	go func() { _ = r.Watch(ctx, events) }()
	event <- object{"Type": "container", "Action": "update", "Actor": object{"ID": "a"}}
	if e := <-events; e.Type != runtime.Changed || e.ContainerID != "a" {
		t.Errorf("event = %+v, want that a has changed", e)
	}
	// If Docker closes the connection, the fact stays unknown, and the next list requests it again.
	s.set("/containers/a/json", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_ = conn.Close()
		}
	}))
	if got := policy(); got != runtime.RestartNever {
		t.Errorf("Restart = %v without an answer, want what was known, %v", got, runtime.RestartNever)
	}
	s.set("/containers/a/json", ended("unless-stopped"))
	if got := policy(); got != runtime.RestartUnlessStopped {
		t.Errorf("Restart = %v after an update, want %v", got, runtime.RestartUnlessStopped)
	}
	// Somebody starts it, and it ends in the same way: an hour later, the list has the same text.
	s.set("/containers/a/json", ended("always"))
	event <- object{"Type": "container", "Action": "start", "Actor": object{"ID": "a"}}
	if e := <-events; e.Type != runtime.ContainerStarted {
		t.Errorf("event = %+v, want that a was started", e)
	}
	if got := policy(); got != runtime.RestartByRuntime {
		t.Errorf("Restart = %v after a start, want it asked again: %v", got, runtime.RestartByRuntime)
	}
	// It is started twice between two lists: the start of its latest run must be reported.
	s.set("/containers/json", []any{listed("a", "running", nil)})
	for _, began := range []string{"2026-11-21T10:00:00.000000001Z", "2026-11-21T11:00:00.000000002Z"} {
		running := ended("always")
		running["State"] = object{"Running": true, "StartedAt": began}
		s.set("/containers/a/json", running)
		event <- object{"Type": "container", "Action": "start", "Actor": object{"ID": "a"}}
		<-events
		pods, err := r.Pods(t.Context())
		if err != nil || len(pods) != 1 {
			t.Fatalf("Pods() = %v, %v, want one", pods, err)
		}
		if got := pods[0].Containers[0].StartedAt.UTC().Format(time.RFC3339Nano); got != began {
			t.Errorf("StartedAt = %s, want %s", got, began)
		}
	}
}

func TestStartContainer(t *testing.T) {
	s := newServer(t, "1.45", object{
		"/containers/a/start":    http.HandlerFunc(done),
		"/containers/runs/start": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }),
		"/containers/bad/start":  fails(500, "no such device"),
	})
	r := s.client(t)
	for id, says := range map[string]string{"a": "", "runs": "", "bad": "no such device", "gone": "No such object", "": "no ID"} {
		err := r.StartContainer(t.Context(), runtime.Container{ID: id, Name: "web"})
		if (err == nil) != (says == "") || err != nil && (!strings.Contains(err.Error(), says) || !strings.HasPrefix(err.Error(), `start container "web": `)) {
			t.Errorf("StartContainer(%q) = %v, want %q", id, err, says)
		}
	}
	if calls := s.asked(); !slices.Contains(calls, "POST /containers/a/start") {
		t.Errorf("asked %v, want a start of a", calls)
	}
}

// Facts are outdated if events may have been missed: while no stream is open, and after a stream
// was opened again.
func TestContainersAreInspectedAgainAfterAGapInEvents(t *testing.T) {
	event := make(chan any)
	s := newServer(t, "1.45", object{
		"/containers/json": []any{exited("a")}, "/containers/a/json": ended("no"),
		"/events": streamOf(event),
	})
	r := s.client(t)
	lists := func(when string, want runtime.Restart) {
		t.Helper()
		pods, err := r.Pods(t.Context())
		if err != nil || len(pods) != 1 {
			t.Fatalf("Pods() = %v, %v, want one", pods, err)
		}
		if got := pods[0].Containers[0].Restart; got != want {
			t.Errorf("Restart = %v %s, want %v", got, when, want)
		}
	}
	lists("at first", runtime.RestartNever)
	s.set("/containers/a/json", ended("always"))
	lists("before anybody watches", runtime.RestartByRuntime)
	over := watch(t, r, event)
	s.set("/containers/a/json", ended("unless-stopped"))
	lists("as the stream opens", runtime.RestartUnlessStopped)
	s.set("/containers/a/json", ended("no"))
	lists("without an event", runtime.RestartUnlessStopped)
	event <- nil
	if err := <-over; err == nil {
		t.Error("Watch() of a stream that broke = nil, want why")
	}
	lists("after the stream broke", runtime.RestartNever)
	s.set("/containers/a/json", ended("always"))
	watch(t, r, event)
	lists("after a change in between", runtime.RestartByRuntime)
}

// dockerd starts a container with on-failure if it failed, and has not failed too often.
func TestOnFailureIsJudgedByTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		code, most, restarts int
		want                 runtime.Restart
	}{
		"it ended well":           {want: runtime.RestartNotAtBoot},
		"it failed":               {code: 3, want: runtime.RestartByRuntime},
		"it has failed too often": {code: 3, most: 2, restarts: 2, want: runtime.RestartNotAtBoot},
		"it may fail once more":   {code: 3, most: 2, restarts: 1, want: runtime.RestartByRuntime},
	} {
		about := ended("on-failure")
		about["RestartCount"] = tt.restarts
		about["HostConfig"] = object{"RestartPolicy": object{"Name": "on-failure", "MaximumRetryCount": tt.most}}
		about["State"].(object)["ExitCode"] = tt.code
		s := newServer(t, "1.45", object{"/containers/json": []any{exited("a")}, "/containers/a/json": about})
		pods, err := s.client(t).Pods(t.Context())
		if err != nil || pods[0].Containers[0].Restart != tt.want {
			t.Errorf("%s: Pods() = %+v, %v, want %v", name, pods, err, tt.want)
		}
	}
}

func TestStartNeedsOfAContainer(t *testing.T) {
	about := ended("unless-stopped")
	about["Mounts"] = []any{
		object{"Type": "bind", "Source": "/mnt/nas/db"},
		object{"Type": "tmpfs"},
		object{"Type": "volume", "Name": "disk", "Source": "/var/lib/docker/volumes/disk/_data"},
		object{"Type": "volume", "Name": "share"},
		object{"Type": "volume", "Name": "cloud", "Driver": "plugin"}, // a plugin, which does not answer
	}
	about["HostConfig"] = object{"Devices": []any{object{"PathOnHost": "/dev/ttyUSB0"}}}
	s := newServer(t, "1.45", object{
		"/containers/a/json": about,
		"/volumes/disk":      object{"Name": "disk", "Driver": "local", "Options": object{"type": "none", "o": "bind", "device": "/mnt/disk/db"}},
		"/volumes/share":     object{"Name": "share", "Driver": "local", "Options": object{"type": "nfs", "o": "addr=nas", "device": ":/share"}},
	})
	got, err := s.client(t).StartNeeds(t.Context(), runtime.Container{ID: "a"})
	if want := []string{"/mnt/nas/db", "/mnt/disk/db", "/dev/ttyUSB0"}; err != nil || !slices.Equal(got.Paths, want) {
		t.Errorf("StartNeeds() = %q, %v, want %q", got.Paths, err, want)
	}
}

// An image declares any number of volumes. They have no name, and the options of the container may have one.
func TestTheVolumesOfAnImageAreInspectedUpToALimit(t *testing.T) {
	about := ended("unless-stopped")
	var mounts []any
	answers := object{"/volumes/disk": object{"Name": "disk", "Driver": "local", "Options": object{"o": "bind", "device": "/mnt/disk"}}}
	for i := range 200 {
		id := fmt.Sprintf("%064x", i)
		mounts = append(mounts, object{"Type": "volume", "Name": id, "Driver": "local"})
		answers["/volumes/"+id] = object{"Name": id, "Driver": "local"}
	}
	about["Mounts"] = append(mounts, object{"Type": "bind", "Source": "/mnt/nas"}, object{"Type": "volume", "Name": "disk"})
	answers["/containers/a/json"] = about
	s := newServer(t, "1.45", answers)
	got, err := s.client(t).StartNeeds(t.Context(), runtime.Container{ID: "a"})
	if want := []string{"/mnt/nas", "/mnt/disk"}; err != nil || !slices.Equal(got.Paths, want) {
		t.Errorf("StartNeeds() = %q, %v, want %q", got.Paths, err, want)
	}
	if calls := len(s.asked()); calls > 110 {
		t.Errorf("StartNeeds() made %d calls, want one for the container, one for the volume with a name, and 100 for others", calls)
	}
}
