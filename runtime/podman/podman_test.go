package podman_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/podman"
)

// never is the zero time in Podman's lists.
const never = -62135596800

// listed returns a container as in lists, created at that second.
func listed(id, state string, second int, more object) object {
	c := object{
		"Id": id, "Names": []string{"name-" + id}, "Image": "localhost/app:1", "ImageID": "image", "State": state,
		"Created": time.Date(2026, 1, 2, 3, 4, second, 5, time.UTC), "StartedAt": never, "ExitedAt": never,
	}
	for key, value := range more {
		c[key] = value
	}
	return c
}

// inspected returns a container as Podman's inspect does.
func inspected(status string, config object, needs ...string) object {
	return object{"State": object{"Status": status, "ConmonPid": 4711, "StartedAt": time.Now().Add(-time.Hour)}, "Config": config, "Dependencies": needs}
}

// fleet has a pod with two containers, an empty pod, two Compose projects, a single container, and
// a container of Buildah.
func fleet() map[string]any {
	ten := object{"StopTimeout": 10}
	return map[string]any{
		"/libpod/containers/json": []any{
			listed("infra", "running", 1, object{"Pod": "shop", "PodName": "store", "IsInfra": true, "ImageID": "pause"}),
			listed("db", "running", 2, object{"Pod": "shop", "PodName": "store", "Labels": object{"tier": "all", "own": "db"}}),
			listed("web", "exited", 3, object{"Pod": "shop", "PodName": "store", "Labels": object{"tier": "all"}, "ExitedAt": 1767323100, "ExitCode": 3}),
			listed("holds", "exited", 4, object{"Pod": "empty", "PodName": "nothing", "IsInfra": true, "ImageID": "pause"}),
			listed("one", "paused", 5, object{"Labels": object{"io.podman.compose.project": "old"}}),
			listed("two", "initialized", 6, object{"Labels": object{"com.docker.compose.project": "new", "io.podman.compose.project": "new"}}),
			listed("alone", "stopping", 7, nil),
			listed("build", "storage", 8, object{"ImageID": "base"}),
		},
		"/libpod/pods/json": []any{
			object{"Id": "shop", "Name": "store", "Created": time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC), "Labels": object{"hostler.io/critical": "true"}},
			object{"Id": "empty", "Name": "nothing", "Created": time.Date(2026, 1, 2, 3, 4, 4, 0, time.UTC)},
			object{"Id": "bare", "Name": "a name"},
		},
		"/libpod/containers/db/json":    inspected("running", ten, "infra"),
		"/libpod/containers/web/json":   inspected("exited", object{"StopTimeout": 60, "Annotations": object{"a": "b"}}, "infra", "db", "alone"),
		"/libpod/containers/one/json":   inspected("paused", ten),
		"/libpod/containers/two/json":   inspected("initialized", ten),
		"/libpod/containers/alone/json": inspected("stopping", ten),
	}
}

func TestPodsProjectsAndLoneContainersArePods(t *testing.T) {
	s := newServer(t, fleet())
	r := s.open(t, nil)
	pods, err := r.Pods(t.Context())
	check(t, err)
	var got []string
	for _, p := range pods {
		ready := "down"
		if p.Ready {
			ready = "ready"
		}
		var names []string
		for _, c := range p.Containers {
			names = append(names, c.ID+" "+c.State.String())
		}
		got = append(got, p.ID+" "+p.Name+" "+ready+": "+strings.Join(names, ", "))
		if p.Sandbox || p.Runtime != "podman" {
			t.Errorf("Pods() = %+v, want runtime podman and no sandbox", p)
		}
	}
	want := []string{
		"shop store ready: db Running, web Exited", "empty nothing down: ",
		"compose:old old ready: one Running", "compose:new new down: two Created", "alone name-alone ready: alone Running",
	}
	if !slices.Equal(got, want) {
		t.Errorf("Pods() = %q, want %q", got, want)
	}
	shop := pods[0]
	if l := shop.Labels; len(l) != 2 || l["tier"] != "all" || l["hostler.io/critical"] != "true" {
		t.Errorf("labels of the pod = %v, want its own and those of all its containers", l)
	}
	db, web := shop.Containers[0], shop.Containers[1]
	if db.StopTimeout != nil || web.StopTimeout == nil || *web.StopTimeout != time.Minute {
		t.Errorf("stop timeouts = %v, %v, want none for Podman's own, and a minute", db.StopTimeout, web.StopTimeout)
	}
	if len(db.StopsBefore) != 0 || !slices.Equal(web.StopsBefore, []string{"db", "alone"}) || !slices.Equal(web.Joins, web.StopsBefore) {
		t.Errorf("StopsBefore = %v, %v, want none, and containers, but not what holds its own pod together", db.StopsBefore, web.StopsBefore)
	}
	if web.ExitCode != 3 || !web.FinishedAt.Equal(time.Unix(1767323100, 0)) || !db.FinishedAt.IsZero() || web.Annotations["a"] != "b" {
		t.Errorf("container = %+v, want its end and its annotations", web)
	}
	users, err := r.OtherImageUsers(t.Context())
	check(t, err)
	if want := []runtime.ImageUser{{Image: "pause", By: "container name-infra"}, {Image: "pause", By: "container name-holds"}, {Image: "base", By: "container name-build"}}; !slices.Equal(users, want) {
		t.Errorf("OtherImageUsers() = %v, want %v", users, want)
	}
}

func TestContainersThatHangAreAskedLast(t *testing.T) {
	t.Parallel()
	var all []any
	answers := map[string]any{}
	for i := range 20 {
		id := fmt.Sprint("c", i)
		all = append(all, listed(id, "running", i, nil))
		answers["/libpod/containers/"+id+"/json"] = inspected("running", object{"StopTimeout": 60})
		if i < 8 {
			answers["/libpod/containers/"+id+"/json"] = http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
		}
	}
	answers["/libpod/containers/json"] = all
	r := newServer(t, answers).openWith(t, podman.Options{Timeouts: local.Timeouts{Query: time.Second}})
	known := 0
	for range 100 { // on a busy machine, a list completes less
		pods, _ := r.Pods(t.Context()) // none if the list is too late
		if known = len(slices.DeleteFunc(pods, func(p runtime.Pod) bool { return p.Containers[0].StopTimeout == nil })); known == 12 {
			return
		}
	}
	t.Errorf("%d containers could be inspected, want all 12 that do not hang", known)
}

// A container that waits for a free slot while others hang must not count as hung.
func TestAHangDuringInspectionCostsOneDeadline(t *testing.T) {
	t.Parallel()
	var all []any
	answers := map[string]any{}
	for i := range 20 {
		id := fmt.Sprint("c", i)
		all = append(all, listed(id, "running", i, nil))
		answers["/libpod/containers/"+id+"/json"] = http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	}
	answers["/libpod/containers/json"] = all
	var late atomic.Int32
	r := newServer(t, answers).openWith(t, podman.Options{Timeouts: local.Timeouts{Query: time.Second}, Observe: func(_ string, _ time.Duration, err error) {
		if err != nil {
			late.Add(1)
		}
	}})
	_, err := r.Pods(t.Context())
	for range 100 { // on a busy machine, the list may be too late
		if err == nil {
			break
		}
		late.Store(0)
		_, err = r.Pods(t.Context())
	}
	check(t, err)
	if got := late.Load(); got > 4 {
		t.Errorf("Pods() made %d calls to a runtime that hangs, want at most 4", got)
	}
}

// Podman has one for each `podman kube play` of a unit (Quadlet's .kube): when it ends, the unit
// stops.
func TestAServiceContainerIsNotAPod(t *testing.T) {
	service := inspected("running", nil)
	service["IsService"] = true
	s := newServer(t, map[string]any{
		"/libpod/containers/json":         []any{listed("service", "running", 1, object{"ImageID": "pause"}), listed("web", "running", 2, nil)},
		"/libpod/containers/service/json": service, "/libpod/containers/web/json": inspected("running", nil),
	})
	r := s.open(t, nil)
	users, err := r.OtherImageUsers(t.Context())
	check(t, err)
	if want := []runtime.ImageUser{{Image: "pause", By: "container name-service"}}; !slices.Equal(users, want) {
		t.Errorf("OtherImageUsers() = %v, want %v", users, want)
	}
	if pods, err := r.Pods(t.Context()); err != nil || len(pods) != 1 || pods[0].ID != "web" {
		t.Errorf("Pods() = %+v, %v, want web alone", pods, err)
	}
}

func TestInvalidAnswersAreRefused(t *testing.T) {
	for name, answers := range map[string]map[string]any{
		"a container without an ID":  {"/libpod/containers/json": []any{listed("", "running", 1, nil)}},
		"a container that is twice":  {"/libpod/containers/json": []any{listed("a", "running", 1, nil), listed("a", "exited", 1, nil)}},
		"a list that is none":        {"/libpod/containers/json": object{}},
		"a pod without an ID":        {"/libpod/containers/json": []any{listed("i", "running", 1, object{"IsInfra": true, "Pod": "p"})}, "/libpod/pods/json": []any{object{"Name": "p"}}},
		"folders that are not paths": {"/libpod/info": object{"store": object{"graphRoot": "root", "runRoot": "/run"}}},
		"an image without an ID":     {"/libpod/images/json": []any{object{"Size": 1}}},
		"an image that is twice":     {"/libpod/images/json": []any{object{"Id": "a"}, object{"Id": "a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newServer(t, answers).open(t, nil)
			_, pods := r.Pods(t.Context())
			_, images := r.Images(t.Context())
			if err := errors.Join(pods, images); !errors.Is(err, runtime.ErrInvalidAnswer) {
				t.Errorf("Pods(), Images() = %v, want %v", err, runtime.ErrInvalidAnswer)
			}
		})
	}
}

// Podman lists such an image once for each of its stores.
func TestAnImageThatOthersHaveAsWellIsReportedOnceAndKept(t *testing.T) {
	own, theirs := object{"Id": "a", "Size": 2, "RepoTags": []string{"a:1", "a:2"}}, object{"Id": "a", "Size": 1, "RepoTags": []string{"a:2", "a:3"}, "ReadOnly": true}
	for name, list := range map[string][]any{
		"its own first": {own, theirs, theirs, object{"Id": "b", "Size": 1}},
		"theirs first":  {theirs, own, theirs, object{"Id": "b", "Size": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			images, err := newServer(t, map[string]any{"/libpod/images/json": list}).open(t, nil).Images(t.Context())
			if err != nil || len(images) != 2 || images[0].ID != "a" || images[1].ID != "b" {
				t.Fatalf("Images() = %+v, %v, want a and b, once each", images, err)
			}
			if tags := slices.Sorted(slices.Values(images[0].Tags)); !images[0].Pinned || images[0].SizeBytes != 2 || !slices.Equal(tags, []string{"a:1", "a:2", "a:3"}) {
				t.Errorf("Images() = %+v, want it pinned, with all names, as large as the larger", images[0])
			}
			if images[1].Pinned {
				t.Errorf("Images() = %+v, want the other one not pinned", images[1])
			}
		})
	}
}

func TestOtherDaemonsAreRefused(t *testing.T) {
	s := newServer(t, map[string]any{"/version": object{"Version": "26.1.5", "Components": []any{object{"Name": "Engine", "Version": "26.1.5"}}}})
	if _, _, err := podman.Ask(t.Context(), local.Candidate{Path: s.socket}); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("Ask() of a Docker = %v, want %v", err, runtime.ErrUnsupported)
	}
}

func TestAnUpgradeIsReported(t *testing.T) {
	s := newServer(t, nil)
	r := s.open(t, nil)
	reported := func() string {
		t.Helper()
		info, err := r.Info(t.Context())
		check(t, err)
		return info.Version
	}
	if v := reported(); v != "4.3.1" {
		t.Errorf("Info() reports version %q, want 4.3.1", v)
	}
	s.set("/version", object{"Version": "5.4.2", "Components": []any{object{"Name": "Podman Engine", "Version": "5.4.2"}}})
	if v := reported(); v != "4.3.1" {
		t.Errorf("Info() reports version %q, want 4.3.1: it was asked again, although the socket has no other listener", v)
	}
	s.upgrade()
	if v := reported(); v != "5.4.2" {
		t.Errorf("Info() reports version %q after an upgrade, want 5.4.2", v)
	}
}

// While there is a Watch, Podman is queried again only after a change.
func TestNothingIsQueriedWhileNothingChanges(t *testing.T) {
	s := newServer(t, fleet())
	m := &manager{units: map[string]int{"container-web.service": 1}, starts: true}
	r := s.openIn(t, withMonitor(t, "conmon -c alone", inService), m)
	ask := func() {
		t.Helper()
		_, info := r.Info(t.Context())
		_, pods := r.Pods(t.Context())
		_, images := r.Images(t.Context())
		_, users := r.OtherImageUsers(t.Context())
		_, filesystems := r.ImageFilesystems(t.Context())
		check(t, errors.Join(info, pods, images, users, filesystems))
	}
	ask()
	s.asked()
	ask()
	if calls := s.asked(); len(calls) == 0 {
		t.Error("without a watch nothing was asked: what has happened since?")
	}

	ctx, cancel := context.WithCancel(t.Context())
	events, ended := make(chan runtime.Event), make(chan error, 1)
	go func() { ended <- r.Watch(ctx, events) }()
	next := func(what string) runtime.Event {
		t.Helper()
		select {
		case e := <-events:
			return e
		case err := <-ended:
			t.Fatalf("Watch() = %v, want it to continue", err)
		case <-time.After(patience):
			t.Fatalf("no event for %s", what)
		}
		return runtime.Event{}
	}
	// The first event shows that the Watch has started; the last one, that it has handled
	// everything.
	var id string
	for n, seen := 0, false; !seen; n++ {
		id = fmt.Sprintf("%064x", n)
		check(t, os.WriteFile(filepath.Join(s.exits, id), []byte("0"), 0o644))
		for soon := time.After(50 * time.Millisecond); !seen && soon != nil; {
			select {
			case e := <-events:
				seen = e.Type == runtime.ContainerExited && e.ContainerID == id && e.Runtime == "podman"
			case <-soon:
				soon = nil
			}
		}
	}
	// No file shows when a container that is ready to start has started.
	ask()
	s.asked()
	ask()
	if calls := s.asked(); !slices.Contains(calls, "GET /libpod/containers/json") {
		t.Errorf("while a container is ready to start, %v was asked, want a list", calls)
	}
	list := s.answers["/libpod/containers/json"].([]any)
	s.set("/libpod/containers/json", slices.DeleteFunc(slices.Clone(list), func(c any) bool { return c.(object)["State"] == "initialized" }))
	// Nor when systemd knows the main process of a unit that is starting.
	ask()
	s.asked()
	ask()
	if calls := s.asked(); !slices.Contains(calls, "GET /libpod/containers/json") {
		t.Errorf("while the service is started that a container is in, %v was asked, want a list", calls)
	}
	quiet := func(while string) {
		t.Helper()
		ask()
		s.asked()
		ask()
		if calls := s.asked(); len(calls) != 0 {
			t.Errorf("while %s, %v was asked", while, calls)
		}
	}
	m.once = true
	quiet("a service is started for as long as its container runs")
	m.starts = false
	quiet("nothing happened")

	folder := filepath.Join(s.run, "overlay-containers", id, "userdata")
	exit := filepath.Join(s.exits, id)
	happens := []struct {
		what string
		do   func() error
		want runtime.Event
	}{
		{"an image that comes", func() error { return os.Mkdir(filepath.Join(s.root, "overlay-images", id), 0o755) }, runtime.Event{Type: runtime.ImageAdded, Image: id}},
		{"an image that goes", func() error { return os.Remove(filepath.Join(s.root, "overlay-images", id)) }, runtime.Event{Type: runtime.ImageRemoved, Image: id}},
		{"a name that moves", func() error { return rename(filepath.Join(s.root, "overlay-images", "images.json")) }, runtime.Event{Type: runtime.Changed}},
		{"a container that comes", func() error { return os.MkdirAll(folder, 0o755) }, runtime.Event{Type: runtime.Changed}},
		{"a container that starts", func() error { return os.WriteFile(filepath.Join(folder, "pidfile"), []byte("1"), 0o644) }, runtime.Event{Type: runtime.ContainerStarted, ContainerID: id}},
		{"a container that starts with a pidfile elsewhere", func() error { return os.WriteFile(filepath.Join(folder, "conmon.pid"), nil, 0o644) }, runtime.Event{Type: runtime.Changed}},
		{"a container that starts again", func() error { return os.Remove(exit) }, runtime.Event{Type: runtime.Changed}},
		{"a container of another tool", func() error { return rename(filepath.Join(s.root, "overlay-containers", "containers.json")) }, runtime.Event{Type: runtime.Changed}},
		{"a container that goes", func() error { return os.RemoveAll(filepath.Dir(folder)) }, runtime.Event{Type: runtime.ContainerRemoved, ContainerID: id}},
	}
	for _, h := range happens {
		check(t, h.do())
		for {
			e := next(h.what)
			e.Time, e.Runtime = time.Time{}, ""
			if e == h.want {
				break
			}
		}
		if _, err := r.Pods(t.Context()); err != nil || !slices.Contains(s.asked(), "GET /libpod/containers/json") {
			t.Errorf("after %s Pods() = %v, and nothing was asked", h.what, err)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch() = %v, want %v", err, context.Canceled)
	}
	ask()
	if len(s.asked()) == 0 {
		t.Error("after the watch nothing was asked")
	}
}

// rename writes a file as Podman writes its lists.
func rename(path string) error {
	temporary := filepath.Join(filepath.Dir(path), ".tmp-file")
	return errors.Join(os.WriteFile(temporary, nil, 0o644), os.Rename(temporary, path))
}

func TestASocketThatNobodyListensAtIsUnavailable(t *testing.T) {
	r, err := podman.New(podman.Options{Endpoint: filepath.Join(t.TempDir(), "none")})
	check(t, err)
	defer r.Close()
	if _, err := r.Info(t.Context()); !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), "systemctl enable --now podman.socket") {
		t.Errorf("Info() = %v, want %v and how to fix it", err, runtime.ErrUnavailable)
	}
}

func TestARunningContainerIsNotRemoved(t *testing.T) {
	s := newServer(t, fleet())
	r := s.open(t, nil)
	s.set("/libpod/containers/db", 500)
	if err := r.RemoveContainer(t.Context(), runtime.Container{ID: "db"}); !errors.Is(err, runtime.ErrInUse) {
		t.Errorf("RemoveContainer() = %v, want %v", err, runtime.ErrInUse)
	}
	s.set("/libpod/containers/web", 500)
	if err := r.RemoveContainer(t.Context(), runtime.Container{ID: "web"}); err == nil || errors.Is(err, runtime.ErrInUse) {
		t.Errorf("RemoveContainer() of a dead one that is refused = %v, want an error of no class", err)
	}
}

func TestImagesThatOtherToolsUseStay(t *testing.T) {
	s := newServer(t, fleet())
	for _, id := range []string{"base", "pause", "image"} {
		if err := s.open(t, nil).RemoveImage(t.Context(), runtime.Image{ID: id}); !errors.Is(err, runtime.ErrInUse) {
			t.Errorf("RemoveImage(%s) = %v, want %v", id, err, runtime.ErrInUse)
		}
	}
	if calls := s.asked(); slices.ContainsFunc(calls, func(c string) bool { return strings.HasPrefix(c, "DELETE") }) {
		t.Errorf("calls = %v, want none that removes", calls)
	}
}
