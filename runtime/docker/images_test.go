package docker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker"
)

func TestOnlyImagesOfARegistryHaveDigests(t *testing.T) {
	image := func(id string, identity any) object {
		img := object{"Id": id, "RepoTags": []any{id + ":1", "<none>:<none>"}, "RepoDigests": []any{id + "@sha256:1", "<none>@<none>"}, "Size": 7, "Labels": object{"hostler.io/keep": "true", "other": "x"}}
		if identity != nil {
			img["Manifests"] = []any{object{"ID": "m", "Kind": "image", "ImageData": object{"Identity": identity}}}
		}
		return img
	}
	list := func(identities bool) []any {
		if !identities {
			return []any{image("pulled", nil), image("built", nil), image("untold", nil)}
		}
		return []any{
			image("pulled", object{"Pull": []any{object{"Repository": "docker.io/library/pulled"}}}),
			image("built", object{"Build": []any{object{"Ref": "x"}}}), image("untold", nil),
		}
	}
	store := object{"DockerRootDir": "/var/lib/docker", "Driver": "overlayfs", "DriverStatus": []any{[]any{"driver-type", "io.containerd.snapshotter.v1"}}}
	for name, tt := range map[string]struct {
		api  string
		info any
		want []string
	}{
		"Docker's own store":                       {"1.45", nil, []string{"pulled", "built", "untold"}},
		"containerd's, whose origins are reported": {"1.54", store, []string{"pulled"}},
		"containerd's, whose origins are untold":   {"1.45", store, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, tt.api, nil)
			s.set("/images/json", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_ = json.NewEncoder(w).Encode(list(r.URL.Query().Get("identity") == "1"))
			}))
			if tt.info != nil {
				s.set("/info", tt.info)
			}
			images, err := s.client(t).Images(t.Context())
			if err != nil || len(images) != 3 {
				t.Fatalf("Images() = %+v, %v", images, err)
			}
			got := []string{}
			for _, img := range images {
				if len(img.Digests) > 0 {
					got = append(got, img.ID)
				}
				if len(img.Tags) != 1 || len(img.Digests) > 1 || len(img.Labels) != 1 || img.Labels["hostler.io/keep"] != "true" {
					t.Errorf("Images() = %+v, want real names and hostler's labels alone", img)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("Images() = digests of %v, want of %v", got, tt.want)
			}
			identity := slices.ContainsFunc(s.asked(), func(call string) bool { return strings.Contains(call, "identity=1") })
			if identity != (tt.api == "1.54") {
				t.Errorf("origins were requested: %t", identity)
			}
		})
	}
}

func TestSharedSizesAreQueriedWhenImagesAppear(t *testing.T) {
	images := func(n int) []any {
		list := []any{}
		for i := range n {
			list = append(list, object{"Id": string(rune('a' + i)), "Size": 100, "SharedSize": 40})
		}
		return list
	}
	for api, costly := range map[string]string{"1.45": "GET /images/json?shared-size=1", "1.41": "GET /system/df?type=image&verbose=1"} {
		t.Run(api, func(t *testing.T) {
			s := newServer(t, api, object{"/images/json": images(2), "/system/df": object{"LayersSize": 1, "Images": images(2)}})
			r := s.client(t)
			detailed := func(known bool, asks bool) {
				t.Helper()
				list, err := runtime.DetailedImages(t.Context(), r)
				if err != nil || len(list) == 0 {
					t.Fatalf("DetailedImages() = %v, %v", list, err)
				}
				if last := list[len(list)-1]; last.SharedKnown != known || known && last.OwnBytes() != 60 || !known && last.OwnBytes() != 100 {
					t.Errorf("DetailedImages() = %+v, want 40 of 100 bytes shared: %t", last, known)
				}
				if asked := slices.Contains(s.asked(), costly); asked != asks {
					t.Errorf("%s was asked: %t, want %t", costly, asked, asks)
				}
			}
			detailed(true, true)
			detailed(true, false)
			s.set("/images/json", images(3))
			s.set("/system/df", object{"Images": images(3)})
			// A request for which Docker walks through its volumes is not repeated so soon.
			detailed(api == "1.45", api == "1.45")
		})
	}
}

func TestMissingSizesAreNotAnError(t *testing.T) {
	t.Parallel()
	s := newServer(t, "1.41", object{"/images/json": []any{object{"Id": "a", "Size": 100}}})
	s.set("/system/df", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	r := s.client(t, func(o *docker.Options) { o.Timeouts.Query = 2 * time.Second })
	for range 2 {
		list, err := r.DetailedImages(t.Context())
		for tries := 0; errors.Is(err, runtime.ErrUnavailable) && tries < 100; tries++ { // on a busy machine, the list may be too late
			list, err = r.DetailedImages(t.Context())
		}
		if err != nil || len(list) != 1 || list[0].SharedKnown {
			t.Errorf("DetailedImages() = %+v, %v, want the image without what it shares", list, err)
		}
	}
	if n := len(slices.DeleteFunc(s.asked(), func(c string) bool { return !strings.Contains(c, "/system/df") })); n != 1 {
		t.Errorf("sizes were requested %d times, want once in an hour", n)
	}
}

// A caller with little time neither sends a costly request, nor delays that of others.
func TestSizesAreQueriedByCallersWithTime(t *testing.T) {
	const df = "/system/df"
	asking, answer := make(chan struct{}), make(chan struct{})
	s := newServer(t, "1.41", object{"/images/json": []any{object{"Id": "a", "Size": 100}}})
	s.set(df, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asking)
		<-answer
		_ = json.NewEncoder(w).Encode(object{"Images": []any{object{"Id": "a", "Size": 100, "SharedSize": 40}}})
	}))
	r := s.client(t, func(o *docker.Options) { o.Timeouts.Query = time.Minute })
	hurried := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if list, err := r.DetailedImages(ctx); err != nil || len(list) != 1 || list[0].SharedKnown {
			t.Errorf("DetailedImages() in a hurry = %+v, %v, want the image without what it shares", list, err)
		}
	}
	hurried()
	done := make(chan error, 1)
	go func() {
		list, err := r.DetailedImages(t.Context())
		if err == nil && (len(list) != 1 || !list[0].SharedKnown) {
			err = fmt.Errorf("%+v", list)
		}
		done <- err
	}()
	select {
	case <-asking:
	case err := <-done:
		t.Fatalf("DetailedImages() = %v, and did not ask", err)
	}
	hurried() // while another caller's request is in progress
	close(answer)
	if err := <-done; err != nil {
		t.Errorf("DetailedImages() = %v, want what the image shares", err)
	}
}

// names maps the names of a server's images to images. The test itself handles requests by ID.
type names map[string]string

// serve makes the server answer for names, and add tags. removed is called before a name is
// removed, and may move other names.
func (n names) serve(s *server, removed func(name string)) {
	for name := range n {
		s.set("/images/"+name+"/json", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n[name] == "" {
				fails(404, "No such image")(w, r)
				return
			}
			_ = json.NewEncoder(w).Encode(object{"Id": n[name]})
		}))
		s.set("/images/"+name, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			n[name] = ""
			removed(name)
			_ = json.NewEncoder(w).Encode([]any{})
		}))
	}
}

// If an image cannot be removed, it keeps its names. Names of other images are never removed.
func TestNamesAreRestored(t *testing.T) {
	const a, b = "sha256:a", "sha256:b"
	type moves = map[string]map[string]string // name that is removed: which images other names refer to then
	for name, tt := range map[string]struct {
		names names
		then  moves
		want  []string
	}{
		"as they were": {
			names{"one:1": a, "one@sha256:1": "", "two:1": a},
			nil,
			[]string{"DELETE one:1", "DELETE two:1", "DELETE sha256:a", "TAG one 1", "TAG two 1"},
		},
		"but for one that a newer image has taken before": {
			names{"one:1": a, "one@sha256:1": a, "two:1": a},
			moves{"one:1": {"two:1": b}},
			[]string{"DELETE one:1", "DELETE one@sha256:1", "DELETE sha256:a", "TAG one 1"},
		},
		"but for one that somebody has removed before": {
			names{"one:1": "", "one@sha256:1": a, "two:1": a},
			nil,
			[]string{"DELETE two:1", "DELETE one@sha256:1", "DELETE sha256:a", "TAG two 1"},
		},
		"but for one that a newer image has taken since": {
			names{"one:1": a, "one@sha256:1": a, "two:1": a},
			moves{"one@sha256:1": {"one:1": b}},
			[]string{"DELETE one:1", "DELETE two:1", "DELETE one@sha256:1", "DELETE sha256:a", "TAG two 1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, "1.45", object{
				"/containers/json":      []any{},
				"/images/sha256:a/json": object{"Id": a, "RepoTags": []any{"one:1", "two:1", "two:2"}, "RepoDigests": []any{"one@sha256:1", "two@sha256:1"}},
				"/images/sha256:a":      fails(409, "image is being used by running container"),
				"/images/sha256:a/tag":  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }),
			})
			tt.names.serve(s, func(name string) { maps.Copy(tt.names, tt.then[name]) })
			err := s.client(t).RemoveImage(t.Context(), runtime.Image{Runtime: "docker", ID: a, Tags: []string{"one:1"}})
			if !errors.Is(err, runtime.ErrInUse) {
				t.Errorf("RemoveImage() = %v, want %v", err, runtime.ErrInUse)
			}
			var acts []string
			for _, call := range s.asked() {
				act, isRemoval := strings.CutPrefix(call, "DELETE /images/")
				tag, isTag := strings.CutPrefix(call, "POST /images/sha256:a/tag?repo=docker.io%2Flibrary%2F")
				switch {
				case isTag:
					acts = append(acts, "TAG "+strings.ReplaceAll(tag, "&tag=", " "))
				case isRemoval:
					// Removal never uses force, and never removes the image's parents.
					if act, noprune := strings.CutSuffix(act, "?noprune=1"); noprune {
						acts = append(acts, "DELETE "+act)
						continue
					}
					fallthrough
				case !strings.HasPrefix(call, "GET "):
					t.Errorf("RemoveImage() called %s", call)
				}
			}
			if !slices.Equal(acts, tt.want) {
				t.Errorf("RemoveImage() called\n%s\nwant\n%s", strings.Join(acts, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// Docker itself would remove, by ID, an image that a container mounts.
func TestAnImageThatIsMountedIsInUse(t *testing.T) {
	mounting := listed("web", "exited", nil)
	mounting["Mounts"] = []any{object{"Type": "volume", "Name": "data"}, object{"Type": "image", "Name": "gone:1"}, object{"Type": "image", "Name": "tools"}}
	cri := listed("k8s_POD_web-0_shop_6b1f7c7e_0", "running", object{"io.kubernetes.docker.type": "podsandbox"})
	s := newServer(t, "1.48", object{
		"/containers/json":      []any{mounting, cri},
		"/images/tools/json":    object{"Id": "sha256:t"},
		"/images/sha256:t/json": object{"Id": "sha256:t", "RepoTags": []any{"tools:latest"}},
		"/images/sha256:u/json": object{"Id": "sha256:u", "RepoTags": []any{"unused:1"}},
		"/images/sha256:t":      []any{}, "/images/sha256:u": []any{},
	})
	r := s.client(t)
	if err := r.RemoveImage(t.Context(), runtime.Image{ID: "sha256:t", Tags: []string{"tools:latest"}}); !errors.Is(err, runtime.ErrInUse) || !strings.Contains(err.Error(), `"web"`) {
		t.Errorf("RemoveImage() of a mounted image = %v, want %v by web", err, runtime.ErrInUse)
	}
	if err := r.RemoveImage(t.Context(), runtime.Image{ID: "sha256:u", Tags: []string{"unused:1"}}); err != nil {
		t.Errorf("RemoveImage() of an unused image = %v", err)
	}
	want := []runtime.ImageUser{{Image: "gone:1", By: "container web"}, {Image: "tools", By: "container web"}, {Image: "sha256:a", By: "container k8s_POD_web-0_shop_6b1f7c7e_0"}}
	if users, err := r.OtherImageUsers(t.Context()); err != nil || !slices.Equal(users, want) {
		t.Errorf("OtherImageUsers() = %v, %v, want %v", users, err, want)
	}
}
