package host

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"hostler.io/hostler/runtime/docker"
	"hostler.io/hostler/runtime/local"
)

func TestDockerIsLeftToThoseWhoNameIt(t *testing.T) {
	r, err := NewRuntimes(RuntimesOptions{Auto: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(r.candidates, func(c local.Candidate) bool { return c.Type == docker.Type }) || len(r.leftOut) != len(docker.DefaultCandidates()) {
		t.Errorf("candidates = %v, left out %v, want all of Docker's left out", r.candidates, r.leftOut)
	}

	dir := folder(t)
	connected := make(chan struct{}, 1)
	listen := func(name string) string {
		path := filepath.Join(dir, name)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		t.Cleanup(func() { l.Close() })
		if name == "left.sock" {
			l.Close()
			return path
		}
		go func() {
			if c, err := l.Accept(); err == nil {
				c.Close()
				connected <- struct{}{}
			}
		}()
		return path
	}
	link := func(name, to string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	served := listen("docker.sock")
	r.leftOut = nil
	for _, path := range []string{served, link("again/docker.sock", served), listen("left.sock"), link("other/docker.sock", listen("podman.sock")), filepath.Join(dir, "none.sock")} {
		r.leftOut = append(r.leftOut, local.Candidate{Type: docker.Type, Path: path})
	}
	if paths := r.LeftOut(); !slices.Equal(paths, []string{served}) {
		t.Errorf("LeftOut() = %v, want %s once, and neither what is left of one nor Podman", paths, served)
	}
	select {
	case <-connected:
		t.Error("LeftOut() connected")
	default:
	}
}
