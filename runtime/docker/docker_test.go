package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
)

type object = map[string]any

// fails returns an error with a status and Docker's format.
func fails(code int, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write([]byte(`{"message":"` + message + `"}`))
	}
}

// A container's dependencies have the names from its configuration, whatever their kind.
func TestDependenciesOfAContainer(t *testing.T) {
	const vpn = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for name, tt := range map[string]struct {
		host     object
		networks object
		before   string
		joins    string
	}{
		"nobody":                       {host: object{"NetworkMode": "bridge", "IpcMode": "private"}},
		"the network, by its ID":       {host: object{"NetworkMode": "container:" + vpn}, before: vpn, joins: vpn},
		"the network, by its short ID": {host: object{"NetworkMode": "container:" + vpn[:12]}, before: vpn, joins: vpn},
		"the network, by its name":     {host: object{"NetworkMode": "container:db"}, before: "db", joins: "db"},
		"processes and memory":         {host: object{"PidMode": "container:db", "IpcMode": "container:" + vpn}, before: "db " + vpn, joins: "db " + vpn},
		"all of one":                   {host: object{"NetworkMode": "container:db", "PidMode": "container:db", "VolumesFrom": []string{"db"}}, before: "db db", joins: "db"},
		"volumes":                      {host: object{"VolumesFrom": []string{"db:ro", "gone"}}, before: "db"},
		"a link":                       {host: object{"Links": []string{"/db:/web/base"}}, before: "db", joins: "db"},
		"a link in a network":          {host: object{}, networks: object{"shop": object{"Links": []string{"db:base"}}}, before: "db", joins: "db"},
		"one that is gone":             {host: object{"NetworkMode": "container:gone"}},
		"itself":                       {host: object{"PidMode": "container:web"}},
	} {
		t.Run(name, func(t *testing.T) {
			about := inspected("2026-11-20T10:00:02.5Z", time.Time{}, object{})
			about["HostConfig"], about["NetworkSettings"] = tt.host, object{"Networks": tt.networks}
			list := []any{listed("web", "running", nil), listed("db", "running", nil), listed(vpn, "running", nil)}
			for _, c := range list {
				c.(object)["Names"] = []string{"/" + c.(object)["Id"].(string)}
			}
			s := newServer(t, "1.45", object{"/containers/json": list, "/containers/web/json": about})
			pods, err := s.client(t).Pods(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range pods {
				for _, c := range p.Containers {
					if c.ID == "web" && (strings.Join(c.StopsBefore, " ") != tt.before || strings.Join(c.Joins, " ") != tt.joins) {
						t.Errorf("web stops before %q and joins %q, want %q and %q", c.StopsBefore, c.Joins, tt.before, tt.joins)
					}
				}
			}
		})
	}
}

func TestErrorsHaveAClassAndAHint(t *testing.T) {
	for name, tt := range map[string]struct {
		answer  http.HandlerFunc
		class   error
		message string
	}{
		"a refusal":          {fails(409, "container is running"), runtime.ErrInUse, "container is running"},
		"a fault of its own": {fails(500, "layer store is damaged"), nil, "layer store is damaged"},
		"not there for now":  {fails(503, "starting"), runtime.ErrUnavailable, "is a runtime running at"},
		"no JSON":            {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }, runtime.ErrInvalidAnswer, ""},
		"another type":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"a":1}`)) }, runtime.ErrInvalidAnswer, ""},
		"an answer that is cut off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`[{"Id":`))
		}, runtime.ErrUnavailable, ""},
		"too large": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("[" + strings.Repeat(" ", 17<<20) + "]"))
		}, runtime.ErrTooLarge, "docker system prune"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newServer(t, "1.45", object{"/containers/json": tt.answer}).client(t, func(o *docker.Options) { o.Timeouts.Query = 10 * time.Minute }) // reading 17 MB takes more than one on a busy machine
			_, err := r.Pods(t.Context())
			if err == nil || tt.class != nil && !errors.Is(err, tt.class) || !strings.HasPrefix(err.Error(), "list containers: ") || !strings.Contains(err.Error(), tt.message) {
				t.Errorf("Pods() = %v, want %v, saying %q", err, tt.class, tt.message)
			}
		})
	}
}

// dockerd is upgraded or downgraded while the agent runs.
func TestAnotherVersionIsNegotiated(t *testing.T) {
	s := newServer(t, "1.41", object{"/containers/json": []any{}, "/images/json": []any{}})
	r := s.client(t)
	for _, version := range []struct{ api, minimum string }{{"1.41", "1.24"}, {"1.52", "1.44"}, {"1.41", "1.24"}} {
		s.mu.Lock()
		s.api, s.minimum = version.api, version.minimum
		s.mu.Unlock()
		if _, err := r.Pods(t.Context()); err != nil {
			t.Errorf("Pods() of version %s = %v", version.api, err)
		}
	}
}

func TestARestartIsNoticed(t *testing.T) {
	s := newServer(t, "1.45", nil)
	r := s.client(t)
	version := func(want string) {
		t.Helper()
		if info, err := r.Info(t.Context()); err != nil || info.Version != want {
			t.Errorf("Info() = %+v, %v, want version %s", info, err, want)
		}
	}
	version("26.1.5")
	s.asked()
	version("26.1.5")
	if calls := s.asked(); len(calls) != 0 {
		t.Errorf("a second Info() asked %v, want nothing but a ping", calls)
	}
	s.set("/version", object{"Version": "27.0.1"})
	s.http.Close()
	s.serve(t)
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(time.Millisecond) {
		if info, err := r.Info(t.Context()); err == nil && info.Version == "27.0.1" {
			return
		} else if time.Now().After(deadline) {
			t.Fatalf("Info() = %+v, %v long after the restart, want version 27.0.1", info, err)
		}
	}
}

// A Docker that is too old or too new is reported as such, and does not count as one that is
// starting.
func TestAnUnsupportedDockerDoesNotCountAsStarting(t *testing.T) {
	for name, version := range map[string]struct{ api, minimum, message string }{
		"too old": {"1.39", "1.12", "API version 1.39 is not supported"},
		"too new": {"1.99", "1.98", "too old"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, version.api, nil)
			s.minimum = version.minimum
			found := new(local.Detector).Detect(t.Context(), []local.Candidate{{Type: docker.Type, Name: "docker", Path: s.socket}}, nil, docker.Ask)
			if len(found) != 1 || !errors.Is(found[0].Err, runtime.ErrUnsupported) || !strings.Contains(found[0].Err.Error(), version.message) || found[0].NoAnswer() {
				t.Errorf("Detect() = %+v, want %v, saying %q, and no runtime that is yet to answer", found, runtime.ErrUnsupported, version.message)
			}
		})
	}
}

func TestPodmanIsNotTakenForDocker(t *testing.T) {
	s := newServer(t, "1.41", object{"/version": object{"Version": "5.4.2", "Components": []any{object{"Name": "Podman Engine", "Version": "5.4.2"}}}})
	found := new(local.Detector).Detect(t.Context(), []local.Candidate{{Type: docker.Type, Name: "docker", Path: s.socket}}, nil, docker.Ask)
	if len(found) != 1 || !errors.Is(found[0].Err, runtime.ErrUnsupported) || !strings.Contains(found[0].Err.Error(), "Podman 5.4.2") || found[0].NoAnswer() {
		t.Errorf("Detect() = %+v, want that it is Podman, and no runtime that is yet to answer", found)
	}
}

// listed returns a container as in lists.
func listed(id string, state string, labels object) object {
	if labels == nil {
		labels = object{}
	}
	return object{"Id": id, "Names": []any{"/" + id}, "Image": "a:1", "ImageID": "sha256:a", "Created": 1700000000, "State": state, "Status": "Up 5 minutes", "Labels": labels}
}

func inspected(created string, finished time.Time, config object) object {
	return object{"Created": created, "State": object{"Running": finished.IsZero(), "FinishedAt": finished.Format(time.RFC3339Nano), "ExitCode": 3}, "Config": config}
}

func service(project, name, needs string) object {
	return object{"com.docker.compose.project": project, "com.docker.compose.service": name, "com.docker.compose.depends_on": needs, "common": "yes", "own": name}
}

func TestComposeProjectsArePods(t *testing.T) {
	oneOff := service("shop", "db", "")
	oneOff["com.docker.compose.oneoff"] = "True"
	cri := object{"io.kubernetes.docker.type": "container"} // an image may contain it
	s := newServer(t, "1.45", object{
		"/containers/json": []any{
			listed("web", "running", service("shop", "web", "api:service_started:false,ghost:service_healthy:true")),
			listed("api", "exited", service("shop", "api", "db:service_healthy:true")),
			listed("db-1", "running", service("shop", "db", "")), listed("db-2", "paused", service("shop", "db", "")), listed("once", "running", oneOff),
			listed("other-db", "running", service("other", "db", "")),
			listed("alone", "created", object{"hostler.io/priority": "7", "com.docker.compose.depends_on": "db"}),
			listed("k8s_web_web-0_shop_6b1f7c7e_0", "running", cri), listed("of-an-image", "running", cri),
		},
		"/containers/web/json":   inspected("2026-11-20T10:00:02.5Z", time.Time{}, object{"StopTimeout": 90, "StopSignal": "SIGQUIT"}),
		"/containers/alone/json": inspected("2026-11-20T10:00:03Z", time.Time{}, object{"StopTimeout": -1}),
	})
	pods, err := s.client(t).Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]runtime.Pod{}
	for _, p := range pods {
		byName[p.Name] = p
	}
	if len(pods) != 4 || byName["of-an-image"].ID == "" || byName["shop"].ID != "compose:shop" || !byName["shop"].Ready || byName["alone"].ID != "alone" || byName["alone"].Ready {
		t.Fatalf("Pods() = %+v, want shop, other, and the two lone containers, and none of cri-dockerd's", pods)
	}
	if l := byName["shop"].Labels; len(l) != 2 || l["common"] != "yes" || l["com.docker.compose.project"] != "shop" {
		t.Errorf("labels of shop = %v, want those that all its containers have", l)
	}
	if l := byName["alone"].Labels; l["hostler.io/priority"] != "7" {
		t.Errorf("labels of a lone container's pod = %v, want its own", l)
	}
	containers := map[string]runtime.Container{}
	for _, p := range pods {
		for _, c := range p.Containers {
			containers[c.ID] = c
		}
	}
	for id, want := range map[string]struct {
		before string
		state  runtime.ContainerState
	}{
		"web": {"api", runtime.Running}, "api": {"db-1 db-2", runtime.Exited}, "db-1": {"", runtime.Running}, "db-2": {"", runtime.Running},
		"once": {"", runtime.Running}, "other-db": {"", runtime.Running}, "alone": {"", runtime.Created},
	} {
		if c := containers[id]; strings.Join(c.StopsBefore, " ") != want.before || c.State != want.state {
			t.Errorf("container %s stops before %v and is %v, want %q and %v", id, c.StopsBefore, c.State, want.before, want.state)
		}
	}
	if c := containers["web"]; c.StopTimeout == nil || *c.StopTimeout != 90*time.Second || !c.CreatedAt.Equal(time.Date(2026, 11, 20, 10, 0, 2, 5e8, time.UTC)) {
		t.Errorf("web = %+v, want its stop timeout and the time of its creation", c)
	}
	if c := containers["alone"]; c.StopTimeout == nil || *c.StopTimeout < 24*time.Hour {
		t.Errorf("alone has a stop timeout of %v, want one without end", c.StopTimeout)
	}
	if containers["web"].Incomplete || !containers["db-1"].Incomplete {
		t.Error("web, which was asked, or db-1, which does not answer, is marked wrongly")
	}
	if c := containers["db-1"]; c.StopTimeout != nil || c.CreatedAt.Unix() != 1700000000 {
		t.Errorf("db-1 = %+v, whose inspection fails, want no stop timeout, and the time of the list", c)
	}
}

func TestAContainerThatEndedAgainIsInspectedAgain(t *testing.T) {
	ended := func(status string) []any {
		c := listed("a", "exited", nil)
		c["Status"] = status
		return []any{c}
	}
	finished := time.Now().Add(-10 * time.Minute)
	events := make(chan any)
	s := newServer(t, "1.45", object{
		"/containers/json": ended("Exited (3) 10 minutes ago"), "/containers/a/json": inspected("2026-11-20T10:00:00Z", finished, object{}),
		"/events": streamOf(events),
	})
	r := s.client(t)
	watch(t, r, events)
	end := func(want time.Time) {
		t.Helper()
		pods, err := r.Pods(t.Context())
		if err != nil || len(pods) != 1 || !pods[0].Containers[0].FinishedAt.Equal(want) || pods[0].Containers[0].ExitCode != 3 {
			t.Errorf("Pods() = %+v, %v, want an end at %v with code 3", pods, err, want)
		}
	}
	end(finished)
	s.asked()
	end(finished)
	if calls := s.asked(); !slices.Equal(calls, []string{"GET /containers/json?all=1"}) {
		t.Errorf("the second list asked %v, want one call", calls)
	}
	again := time.Now().Add(-2 * time.Second)
	s.set("/containers/json", ended("Exited (3) 2 seconds ago"))
	s.set("/containers/a/json", inspected("2026-11-20T10:00:00Z", again, object{}))
	end(again)
}

func TestInvalidAnswersAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		path   string
		answer any
	}{
		"a container without an ID": {"/containers/json", []any{listed("", "running", nil)}},
		"a container twice":         {"/containers/json", []any{listed("a", "running", nil), listed("a", "running", nil)}},
		"an image without an ID":    {"/images/json", []any{object{"Size": 1}}},
		"an image twice":            {"/images/json", []any{object{"Id": "a"}, object{"Id": "a"}}},
		"no version":                {"/version", object{}},
		"a folder that is none":     {"/info", object{"DockerRootDir": "docker"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newServer(t, "1.45", object{"/containers/json": []any{}, "/images/json": []any{}, tt.path: tt.answer}).client(t)
			_, pods := r.Pods(t.Context())
			_, images := r.Images(t.Context())
			if err := errors.Join(pods, images); !errors.Is(err, runtime.ErrInvalidAnswer) {
				t.Errorf("Pods(), Images() = %v, want %v", err, runtime.ErrInvalidAnswer)
			}
		})
	}
}

// Docker makes lists from a copy that is briefly outdated (seen in 26.1).
func TestAStopEndsWhenListsShowIt(t *testing.T) {
	lists := 0
	s := newServer(t, "1.45", object{
		"/containers/a/json": inspected("2026-11-20T10:00:00Z", time.Time{}, object{}),
		"/containers/a/kill": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		"/containers/a/wait": object{"StatusCode": 0},
	})
	s.set("/containers/json", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		state := "running"
		if lists++; lists > 3 {
			state = "exited"
		}
		_ = json.NewEncoder(w).Encode([]any{listed("a", state, nil)})
	}))
	if err := s.client(t).StopContainer(t.Context(), runtime.Container{ID: "a", Name: "a"}, time.Minute); err != nil || lists != 4 {
		t.Errorf("StopContainer() = %v after %d lists, want none after 4", err, lists)
	}
}

func TestCallsEndWithTheConnection(t *testing.T) {
	s := newServer(t, "1.45", nil)
	reached := make(chan struct{})
	s.set("/containers/json", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { close(reached); <-r.Context().Done() }))
	r := s.client(t, func(o *docker.Options) { o.Timeouts.Query = time.Hour })
	ended := make(chan error, 1)
	go func() {
		_, err := r.Pods(context.Background())
		ended <- err
	}()
	<-reached
	if err := r.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, runtime.ErrUnavailable) {
			t.Errorf("Pods() of a closed connection = %v, want %v", err, runtime.ErrUnavailable)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("Pods() continues after Close()")
	}
	if _, err := r.Info(t.Context()); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("Info() after Close() = %v, want %v", err, runtime.ErrUnavailable)
	}
}
