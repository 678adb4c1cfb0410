//go:build integration

package docker_test

import (
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/test/lab"
)

func TestALogIsReadFromDocker(t *testing.T) {
	r, d := startDocker(t, lab.DockerOptions{})
	d.AddImage(t, image)
	id, err := d.Run(t.Context(), lab.DockerContainer{Name: "web", Image: image, Command: []string{"sh", "-c", "echo one; echo two >&2; echo ready; exec sleep 86400"}, Ready: "ready"})
	check(t, err)
	c := runtime.Container{ID: id, Name: "web"}
	// Docker reads the two streams from separate pipes.
	var text []byte
	for deadline := time.Now().Add(patience); len(text) != len("one\ntwo\nready\n"); time.Sleep(20 * time.Millisecond) {
		if text, err = r.Log(t.Context(), c, 10, 1<<20); err != nil || time.Now().After(deadline) {
			t.Fatalf("Log() = %q, %v, want what both streams have", text, err)
		}
	}
	if text, err := r.Log(t.Context(), c, 1, 3); err != nil || len(text) != 3 {
		t.Errorf("Log() of a line and three bytes = %q, %v", text, err)
	}
	check(t, r.StopContainer(t.Context(), c, time.Second))
	if text, err := r.Log(t.Context(), c, 10, 1<<20); err != nil || len(text) == 0 {
		t.Errorf("Log() of a dead container = %q, %v, want what it has written", text, err)
	}
}
