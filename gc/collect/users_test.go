package collect_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// shared is a runtime whose images another client uses, too.
type shared struct {
	*runtimetest.Fake
	users func() ([]runtime.ImageUser, error)
}

func (s shared) OtherImageUsers(context.Context) ([]runtime.ImageUser, error) { return s.users() }

func TestCollectKeepsImagesOfUsersOutsideThePodLists(t *testing.T) {
	builder := []runtime.ImageUser{{Image: "quay.io/org/a:1", By: "container builder"}}
	tests := []struct {
		name   string
		users  func(asked int) ([]runtime.ImageUser, error)
		want   []string
		errors int
	}{
		{"all the time", func(int) ([]runtime.ImageUser, error) { return builder, nil }, []string{"b lru"}, 0},
		{"since the plan", func(asked int) ([]runtime.ImageUser, error) {
			if asked == 1 {
				return nil, nil
			}
			return builder, nil
		}, []string{"b lru"}, 0},
		{"a runtime that does not report users", func(int) ([]runtime.ImageUser, error) { return nil, runtime.ErrUnsupported }, []string{"a lru"}, 0},
		{"a runtime that stops reporting users", func(asked int) ([]runtime.ImageUser, error) {
			if asked == 1 {
				return nil, nil
			}
			return nil, runtime.ErrUnavailable
		}, []string{}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{})
				for _, name := range []string{"a", "b", "c"} {
					h.pull(name)
				}
				h.fill(90)
				asked := 0
				rt := shared{h.fake, func() ([]runtime.ImageUser, error) { asked++; return tt.users(asked) }}
				h.survey.Runtimes = func() []survey.Runtime { return []survey.Runtime{rt} }
				r := h.collect(h.images(), gc.Options{})
				if got := removed(r); !slices.Equal(got, tt.want) || len(r.Errors) != tt.errors {
					t.Errorf("Collect() removed %v with errors %q, want %v and %d errors", got, r.Errors, tt.want, tt.errors)
				}
			})
		})
	}
}
