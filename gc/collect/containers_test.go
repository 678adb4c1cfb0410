package collect_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// deadHost has a pod with three dead containers of the same name and a running one.
func deadHost(t *testing.T) (*host, *collect.Containers) {
	t.Helper()
	h := newHost(t, runtimetest.Options{})
	h.pull("a")
	dead := func(id string, hours int) runtimetest.ContainerSpec {
		at := time.Now().Add(-time.Duration(hours) * time.Hour)
		return runtimetest.ContainerSpec{ID: id, Name: "job", Image: "sha256:a", State: runtime.Exited, CreatedAt: at, FinishedAt: at, WritableBytes: 10 * mib}
	}
	h.fake.RunPod(runtimetest.PodSpec{Name: "p", Namespace: "default", Containers: []runtimetest.ContainerSpec{
		dead("c1", 5), dead("c2", 3), dead("c3", 1), {ID: "c4", Name: "job", Image: "sha256:a"},
	}})
	containers, err := collect.NewContainers(gc.DefaultPolicy().Containers, h.options())
	if err != nil {
		t.Fatal(err)
	}
	return h, containers
}

func removedContainers(r runs.Report) []string {
	ids := []string{}
	for _, removal := range r.Removed {
		ids = append(ids, removal.ID)
	}
	return ids
}

func TestCollectContainers(t *testing.T) {
	tests := []struct {
		name    string
		setup   func(*host)
		options gc.Options
		want    []string
		errors  []string
		ended   string
	}{
		{name: "the newest dead one and what runs stay", want: []string{"c1", "c2"}},
		{name: "all unused keeps the same in a pod that lives", options: gc.Options{AllUnused: true}, want: []string{"c1", "c2"}},
		{
			name: "a failing removal is skipped", want: []string{"c2"}, errors: []string{"pod default/p: RemoveContainer c1: busy"},
			setup: func(h *host) {
				h.fake.Inject(runtimetest.RemoveContainer, runtimetest.Fault{Err: errors.New("busy"), Subject: "c1"})
			},
		},
		{
			name: "one that was started again is left alone", want: []string{"c2"},
			setup: func(h *host) {
				h.fake.Inject(runtimetest.RemoveContainer, runtimetest.Fault{Err: runtime.ErrInUse, Subject: "c1"})
			},
		},
		{
			name: "a runtime that hangs ends the run", want: []string{}, errors: []string{"runtime fake"}, ended: "a runtime does not answer",
			setup: func(h *host) {
				h.fake.Inject(runtimetest.RemoveContainer, runtimetest.Fault{Hang: true, Subject: "c1"})
				h.fake.Inject(runtimetest.Info, runtimetest.Fault{Hang: true})
			},
		},
		{
			name: "one whose removal hangs in a runtime that works is skipped", want: []string{"c2"}, errors: []string{"pod default/p: RemoveContainer c1: "}, ended: "nothing more to remove",
			setup: func(h *host) {
				h.fake.Inject(runtimetest.RemoveContainer, runtimetest.Fault{Hang: true, Subject: "c1"})
			},
		},
		{
			name: "a runtime that cannot be listed", want: []string{}, errors: []string{"runtime fake"},
			setup: func(h *host) { h.fake.Inject(runtimetest.Pods, runtimetest.Fault{Err: runtime.ErrTooLarge}) },
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, containers := deadHost(t)
				if tt.setup != nil {
					tt.setup(h)
				}
				r, err := containers.Collect(t.Context(), tt.options, nil)
				if got := removedContainers(r); err != nil || !slices.Equal(got, tt.want) {
					t.Errorf("Collect() removed %v, %v, want %v", got, err, tt.want)
				}
				if want := uint64(len(tt.want)) * 10 * mib; r.FreedBytes != want {
					t.Errorf("Collect() freed %d bytes, want %d as measured", r.FreedBytes, want)
				}
				if len(r.Errors) != min(1, len(tt.errors)) {
					t.Errorf("Collect() errors = %q, want %d", r.Errors, min(1, len(tt.errors)))
				}
				for _, part := range tt.errors {
					if !strings.Contains(strings.Join(r.Errors, ""), part) {
						t.Errorf("Collect() errors = %q, want %q in them", r.Errors, part)
					}
				}
				if tt.ended != "" && r.Ended != tt.ended {
					t.Errorf("Collect() ended %q, want %q", r.Ended, tt.ended)
				}
			})
		})
	}
}

// A scan for dead containers costs one list per minute.
func TestIdleContainerRunsAskLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, containers := deadHost(t)
		if _, err := containers.Collect(t.Context(), gc.Options{}, nil); err != nil {
			t.Fatal(err)
		}
		before := len(h.fake.Calls())
		if _, err := containers.Collect(t.Context(), gc.Options{}, nil); err != nil {
			t.Fatal(err)
		}
		if got := len(h.fake.Calls()) - before; got != 1 {
			t.Errorf("an idle run made %d calls, want 1", got)
		}
	})
}

func TestReportShapes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, containers := deadHost(t)
		first, err := containers.Collect(t.Context(), gc.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		h.pull("b")
		second := h.collect(h.images(), gc.Options{AllUnused: true})
		both := first.Then(second)
		if len(both.Removed) != 3 || both.FreedBytes != 120*mib || both.RemovedBy()[gc.AllUnused] != 1 || both.Kept[gc.InUse] != 1 || both.Kept[gc.Newest] != 1 {
			t.Errorf("Then() = %+v, want both runs added up", both)
		}
		got, err := json.Marshal(first.Summary())
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(got, &fields); err != nil {
			t.Fatal(err)
		}
		if fields["removed"] != float64(2) || fields["duration"] != first.Duration.Duration.String() || fields["errors"] == nil {
			t.Errorf("Summary() as JSON = %s, want a count, a duration as text and a list of errors", got)
		}
		full, err := json.Marshal(both)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{`"requestedBytes":`, `"freedBytes":`, `"removed":[{"kind":"container"`, `"errors":[]`, `"duration":"`} {
			if !strings.Contains(string(full), key) {
				t.Errorf("report as JSON = %s, want %s in it", full, key)
			}
		}
	})
}

// A filesystem that two runtimes see at two mount points is measured once.
func TestCollectContainersOfTwoRuntimesOnOneFilesystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, containers := deadHost(t)
		other := runtimetest.NewFake(runtimetest.Options{Name: "other", Path: "/data/images", Mountpoint: "/data/images", Device: "/dev/fake"})
		other.AddImage(runtimetest.ImageSpec{ID: "sha256:b"})
		other.RunPod(runtimetest.PodSpec{Name: "q", Containers: []runtimetest.ContainerSpec{{ID: "old", Name: "job", Image: "sha256:b", State: runtime.Created, CreatedAt: time.Now().Add(-100 * time.Hour)}}})
		time.Sleep(2 * time.Hour)
		h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{placed{h.fake, "8:1"}, placed{other, "8:1"}} }
		r, err := containers.Collect(t.Context(), gc.Options{}, nil)
		if err != nil || len(r.Removed) != 3 || r.FreedBytes != 20*mib {
			t.Errorf("Collect() removed %v, %v, freed %d MiB, want three and 20 MiB", removedContainers(r), err, r.FreedBytes/mib)
		}
	})
}

func TestCollectContainersCutShortReportsWhatItFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, containers := deadHost(t)
		h.fake.Inject(runtimetest.RemoveContainer, runtimetest.Fault{Delay: time.Second})
		ctx, cancel := context.WithCancel(t.Context())
		r, err := containers.Collect(ctx, gc.Options{}, func(runs.Progress) { cancel() })
		if err != nil || len(r.Removed) != 1 || r.Ended != "cancelled" || r.FreedBytes != 10*mib {
			t.Errorf("Collect() = %v, ended %q, %d MiB freed, %v, want one removed, cancelled, 10 MiB", removedContainers(r), r.Ended, r.FreedBytes/mib, err)
		}
	})
}

// placed is a runtime whose images are on a filesystem with an ID.
type placed struct {
	*runtimetest.Fake
	id string
}

func (p placed) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	list, err := p.Fake.ImageFilesystems(ctx)
	for i := range list {
		list[i].ID = p.id
	}
	return list, err
}
