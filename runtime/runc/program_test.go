package runc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
	"hostler.io/hostler/runtime/runc"
)

// standFor replaces a program by a script.
func standFor(t *testing.T, name, script string) {
	t.Helper()
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script), 0o755))
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
}

// dead returns a root with a dead container.
func dead(t *testing.T, program string) string {
	t.Helper()
	root := stateRoot(t)
	writers[program](t, root, "-web", 1, 1)
	return root
}

func TestTheProgramDeletes(t *testing.T) {
	for program := range writers {
		t.Run(program, func(t *testing.T) {
			root := dead(t, program)
			standFor(t, program, `[ "$1 $3 $4 $5" = "--root delete -- -web" ] && exec rm -r "$2/$5"`+"\necho \"$@\" >&2; exit 1")
			r := open(t, root)
			for range 2 {
				must(t, r.RemoveContainer(t.Context(), runtime.Container{ID: "-web"}))
			}
			if _, err := os.Stat(filepath.Join(root, "-web")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("its folder: %v, want it gone", err)
			}
		})
	}
}

func TestErrorsOfTheProgramAreReported(t *testing.T) {
	root := dead(t, "runc")
	standFor(t, "runc", "echo 'cgroup is busy' >&2\nexit 1")
	err := open(t, root).RemoveContainer(t.Context(), runtime.Container{ID: "-web", Name: "web"})
	if err == nil || !strings.Contains(err.Error(), `remove container "web"`) || !strings.Contains(err.Error(), "cgroup is busy") {
		t.Errorf("RemoveContainer() = %v, want what runc complained of", err)
	}
}

func TestAnotherClientMayRemoveTheContainerFirst(t *testing.T) {
	root := dead(t, "runc")
	standFor(t, "runc", `rm -r "$2/-web"; echo "container does not exist" >&2; exit 1`)
	if err := open(t, root).RemoveContainer(t.Context(), runtime.Container{ID: "-web"}); err != nil {
		t.Errorf("RemoveContainer() of one that somebody else has removed meanwhile = %v", err)
	}
}

func TestAProgramThatHangsIsEnded(t *testing.T) {
	root := dead(t, "runc")
	standFor(t, "runc", "exec sleep 86400")
	r, err := runc.New(runc.Options{Endpoint: root, Timeouts: local.Timeouts{Remove: 50 * time.Millisecond, Query: 50 * time.Millisecond}})
	must(t, err)
	if err := r.RemoveContainer(t.Context(), runtime.Container{ID: "-web"}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("RemoveContainer() = %v, want %v", err, context.DeadlineExceeded)
	}
	if info, err := r.Info(t.Context()); err != nil || !info.Ready || info.Version != "" || info.Message == "" {
		t.Errorf("Info() = %+v, %v, want it ready, and a word of the program", info, err)
	}
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]string{
		"runc version 1.1.5+ds1\ncommit: 1.1.5+ds1-1+deb12u1\nspec: 1.0.2-dev": "1.1.5+ds1",
		"crun version 1.8.1\ncommit: f8a096be060b22ccd3d5f3ebe44108517fbf6c30": "1.8.1",
		"": "", "runc version": "", "usage: runc": "",
	} {
		standFor(t, "runc", "cat <<'END'\n"+text+"\nEND")
		info, err := open(t, stateRoot(t)).Info(t.Context())
		if err != nil || info.Version != want || !info.Ready || (info.Message == "") != (want != "") {
			t.Errorf("Info() where runc says %q = %+v, %v, want version %q", text, info, err, want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if info, err := open(t, stateRoot(t)).Info(t.Context()); err != nil || !info.Ready || !strings.Contains(info.Message, "not in PATH") {
		t.Errorf("Info() without runc = %+v, %v, want it ready, and a word of that", info, err)
	}
}

// Running a program costs more than everything else, so it is run again only after it has changed.
func TestTheVersionIsQueriedOncePerProgram(t *testing.T) {
	r := open(t, stateRoot(t))
	ran := filepath.Join(t.TempDir(), "ran")
	for _, version := range []string{"1.1.5", "1.2.0+newer", ""} { // one of them fails
		standFor(t, "runc", "echo >> "+ran+"\necho runc version "+version)
		for range 3 {
			if info, err := r.Info(t.Context()); err != nil || !info.Ready || info.Version != version || (info.Message == "") != (version != "") {
				t.Errorf("Info() = %+v, %v, want version %q", info, err, version)
			}
		}
	}
	if lines, err := os.ReadFile(ran); err != nil || len(lines) != 3 {
		t.Errorf("runc was run %d times, %v, want once for each", len(lines), err)
	}
}

// If a caller has less time than the program needs, that does not count as a failure of the
// program.
func TestACancelledVersionQueryIsRepeated(t *testing.T) {
	r := open(t, stateRoot(t))
	started := filepath.Join(t.TempDir(), "begun")
	must(t, unix.Mkfifo(started, 0o600))
	standFor(t, "runc", "[ -p "+started+" ] && echo > "+started+" && exec sleep 86400\necho runc version 1.1.5")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = os.ReadFile(started) // until the program runs
		_ = os.Remove(started)
		cancel()
	}()
	if info, err := r.Info(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Info() = %+v, %v, want %v", info, err, context.Canceled)
	}
	if info, err := r.Info(t.Context()); err != nil || info.Version != "1.1.5" {
		t.Errorf("Info() = %+v, %v, want version 1.1.5", info, err)
	}
}

// A root may have any name: its containers show which program uses it.
func TestARootIsNamedAfterTheProgramOfItsContainers(t *testing.T) {
	root := dead(t, "crun")
	standFor(t, "crun", "echo crun version 1.8.1")
	if info, err := open(t, root).Info(t.Context()); err != nil || info.Name != "crun" || info.Version != "1.8.1" {
		t.Errorf("Info() of a root at %s with a container of crun = %+v, %v, want crun 1.8.1", root, info, err)
	}
}
