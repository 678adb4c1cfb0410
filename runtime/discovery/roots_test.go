package discovery

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc"
)

// Without a container that runc alone manages, no runc runtime must be shown as present or missing;
// Podman uses the same roots.
func TestAStateRootIsFoundWithItsFirstContainer(t *testing.T) {
	root := filepath.Join(folder(t), "runc")
	write := func(id, label string) {
		t.Helper()
		state := fmt.Sprintf(`{"init_process_pid":1,"init_process_start":1,"created":"2026-11-20T12:00:00Z","config":{"labels":[%q,"bundle=/run/%s/userdata"]}}`, label, id)
		if err := os.MkdirAll(filepath.Join(root, id), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, id, "state.json"), []byte(state), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r, err := New(Options{Auto: true, Observe: func(string, string, time.Duration, error) {}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	if !slices.ContainsFunc(r.candidates, func(c local.Candidate) bool { return c.Type == runc.Type && c.Path == "/run/crun" }) {
		t.Errorf("candidates = %v, want the usual state roots among them", r.candidates)
	}
	r.candidates, r.usual = []local.Candidate{{Type: runc.Type, Name: "runc", Path: root}}, nil
	check := func(want int, when string) {
		t.Helper()
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatalf("Refresh() %s = %v", when, err)
		}
		if found := r.Named(); len(found) != want || want > 0 && (found[0].Name != "runc" || !found[0].Ready || found[0].Endpoint != root) || len(r.Dead()) > 0 || r.Guarded().runtimes.Complete() != nil {
			t.Errorf("Named() %s = %+v, dead %v, want %d that are ready", when, found, r.Dead(), want)
		}
	}
	check(0, "without a root")
	if err := os.MkdirAll(root, 0o700); err != nil {
		t.Fatal(err)
	}
	check(0, "with an empty one")
	write("podman", "io.container.manager=libpod")
	check(0, "with Podman's alone")
	write("web", "hostler.io/critical=true")
	if pods, err := r.Guarded().Pods(t.Context()); len(pods) != 1 || err != nil {
		t.Errorf("a guard's Pods() = %v, %v, want the container that was created after the last scan", pods, err)
	}
	if !r.Search(t.Context()) {
		t.Error("Search() = false once a guard has found a root, want that somebody asks runc how it is")
	}
	check(1, "with a container of runc's own")
	if r.Search(t.Context()) {
		t.Error("Search() = true, though all have said how they are")
	}
	if err := os.RemoveAll(root); err != nil {
		t.Fatal(err)
	}
	check(1, "once it is gone again")
	if names := r.OnRequest(); !slices.Equal(names, []string{"runc"}) {
		t.Errorf("OnRequest() = %v, want runc: what is dead stays until somebody asks", names)
	}
}
