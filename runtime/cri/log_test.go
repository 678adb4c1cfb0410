package cri_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
)

func TestALogIsReadWhereTheRuntimeKeepsIt(t *testing.T) {
	s, folder, path := newServer(t, containerd16), t.TempDir(), ""
	s.answer = func(_ string, resp any) {
		if r, is := resp.(*criapi.ContainerStatusResponse); is {
			r.Status.LogPath = path
		}
	}
	r := s.client(t, func(o *cri.Options) { o.PodLogs = folder })
	c := dead(s, 1, time.Unix(1_700_000_000, 0)).Containers[0]
	if text, err := r.Log(t.Context(), c, 10, 100); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("Log() of a container without one = %q, %v, want ErrUnsupported", text, err)
	}
	path = filepath.Join(folder, "0.log")
	if err := os.WriteFile(path, []byte("2026-11-20T10:00:00Z stdout F ready\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := r.Log(t.Context(), c, 10, 100); err != nil || string(text) != "ready\n" {
		t.Errorf("Log() = %q, %v, want what was written", text, err)
	}
	path = "/etc/passwd"
	if text, err := r.Log(t.Context(), c, 10, 100); err == nil || !strings.Contains(err.Error(), `read log of container "a"`) || !strings.Contains(err.Error(), folder) {
		t.Errorf("Log() of a file elsewhere = %q, %v, want it refused", text, err)
	}
	if _, err := r.Log(t.Context(), runtime.Container{ID: "gone", Name: "gone"}, 10, 100); err == nil {
		t.Error("Log() of a missing container = nil, want an error")
	}
}
