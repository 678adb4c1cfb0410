package api_test

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/test/flood"
)

// mostAllocated is the maximum a client may allocate for an answer that is too large. It is several
// times the limit of 64 MiB, because the buffer grows.
const mostAllocated = 400 << 20

func TestAnswersThatAreTooLargeAreNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	flood.Serve(t, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { flood.Write(w, `{"node":{"name":"`, "x") }))
	client := api.Patient(api.NewClient(path))
	for name, call := range map[string]func() error{
		"Status()": func() error { _, err := client.Status(t.Context()); return err },
		"Fleet()": func() error {
			_, err := client.Fleet(t.Context(), func(fleet.Member) error { return nil })
			return err
		},
		"Drain()": func() error {
			_, err := client.Drain(t.Context(), maintenance.DrainRequest{}, func(maintenance.DrainStep) {})
			return err
		},
	} {
		var err error
		allocated := flood.Allocated(func() { err = call() })
		if err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
			t.Errorf("%s = %v, want the answer too large", name, err)
		}
		if t.Logf("%s allocated %d MiB", name, allocated>>20); allocated > mostAllocated {
			t.Errorf("%s allocated %d MiB, want at most %d", name, allocated>>20, mostAllocated>>20)
		}
	}
}
