package discovery

import (
	"errors"
	"path/filepath"
	"testing"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
)

// Docker and cri-dockerd list the same images, and either may be found first.
func TestImagesOfCRIDockerdAreItsDockers(t *testing.T) {
	both := []local.Candidate{
		{Type: cri.Type, Name: criDockerd, Path: filepath.Join(folder(t), "cri-dockerd.sock")},
		{Type: docker.Type, Name: "docker", Path: filepath.Join(folder(t), "docker.sock")},
	}
	for name, order := range map[string][]int{"cri-dockerd is found first": {0, 1}, "Docker is found first": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			r := opened(t)
			for _, i := range order {
				if err := r.open(both[i]); err != nil {
					t.Fatal(err)
				}
			}
			asked := func() (errs []error) {
				for _, m := range r.set.Members() {
					if m.Name() == criDockerd {
						_, images := m.Images(t.Context())
						_, detailed := runtime.DetailedImages(t.Context(), m)
						_, filesystems := m.ImageFilesystems(t.Context())
						_, pods := m.Pods(t.Context())
						errs = append(errs, images, detailed, filesystems, pods)
					}
				}
				return errs
			}
			// Nobody serves either socket, so a call to the runtime fails.
			wants := func(when string, answers []error, fail []bool) {
				t.Helper()
				if len(answers) != len(fail) {
					t.Fatalf("%s, cri-dockerd is not in the set", when)
				}
				for i, want := range fail {
					if got := errors.Is(answers[i], runtime.ErrUnavailable); got != want {
						t.Errorf("%s, answer %d of cri-dockerd = %v, want it asked: %t", when, i, answers[i], want)
					}
				}
			}
			wants("beside its Docker", asked(), []bool{false, false, false, true})
			r.results.mu.Lock()
			r.remove(r.at(both[1].Path))
			r.results.mu.Unlock()
			wants("alone", asked(), []bool{true, true, true, true})
		})
	}
}
