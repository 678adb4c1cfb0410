package runtime_test

import (
	"encoding/json"
	"slices"
	"testing"

	"hostler.io/hostler/runtime"
)

func TestNamesOfAnImage(t *testing.T) {
	for name, c := range map[string]struct {
		image runtime.Image
		want  []string
	}{
		"tags come before digests":    {runtime.Image{ID: "id", Tags: []string{"a:1", "b:1"}, Digests: []string{"a@x"}}, []string{"a:1", "b:1", "a@x"}},
		"an image without either one": {runtime.Image{ID: "id"}, []string{"id"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.image.Names(); !slices.Equal(got, c.want) {
				t.Errorf("Names() = %v, want %v", got, c.want)
			}
		})
	}
}

func TestStatesHaveNames(t *testing.T) {
	for state, want := range map[runtime.ContainerState]string{
		runtime.Unknown: "Unknown", runtime.Created: "Created", runtime.Running: "Running", runtime.Exited: "Exited",
		-1: "Unknown", 99: "Unknown",
	} {
		if got := state.String(); got != want {
			t.Errorf("ContainerState(%d).String() = %q, want %q", int(state), got, want)
		}
		if got, err := json.Marshal(state); err != nil || string(got) != `"`+want+`"` {
			t.Errorf("Marshal(%d) = %s, %v, want %q", int(state), got, err, want)
		}
	}
}
