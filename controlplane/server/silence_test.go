package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/server"
)

func TestASilenceIsReadAsItWasSaved(t *testing.T) {
	file := server.SilenceFile(filepath.Join(t.TempDir(), "s"))
	want := lifecycle.Silence{Contact: time.Hour, Answered: time.Second, Hosts: []lifecycle.SilentHost{{
		Name: "h", UID: "1", Ready: "True", Heartbeat: time.Unix(1, 2).UTC(), Lease: true, Renewal: "r", Renewed: 30 * time.Second,
	}}}
	before := time.Now()
	if err := file.Save(want, before); err != nil {
		t.Fatal(err)
	}
	got, taken, err := file.Load()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Load() = %+v, %v, want %+v", got, err, want)
	}
	if off := taken.Sub(before).Abs(); off > time.Since(before) {
		t.Errorf("taken is wrong by %v", off)
	}
}

func TestASilenceOfAnotherBootIsNotUsed(t *testing.T) {
	for name, change := range map[string][2]time.Duration{ // how much later the clocks were: the monotonic one, the wall clock
		"a power cut":                      {-time.Hour, time.Minute},
		"a power cut, and a long run then": {0, -10 * time.Minute},
		"the wall clock was set":           {0, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			file := server.SilenceFile(filepath.Join(t.TempDir(), "s"))
			if err := file.SaveWith(lifecycle.Silence{Contact: time.Hour}, -change[0], change[1]); err != nil {
				t.Fatal(err)
			}
			if got, _, err := file.Load(); err != nil || got.Contact != 0 {
				t.Errorf("Load() = %+v, %v, want none", got, err)
			}
		})
	}
}

func TestASilenceThatOthersMayChangeIsNotUsed(t *testing.T) {
	folder := t.TempDir()
	file, link := server.SilenceFile(filepath.Join(folder, "s")), server.SilenceFile(filepath.Join(folder, "link"))
	if err := errors.Join(file.Save(lifecycle.Silence{Contact: time.Hour}, time.Now()), os.Symlink(string(file), string(link)), os.Chmod(folder, 0o777)); err != nil {
		t.Fatal(err)
	}
	if got, _, err := file.Load(); err != nil || got.Contact == 0 {
		t.Errorf("Load() in a folder of everybody = %+v, %v, want what was saved", got, err)
	}
	if got, _, err := link.Load(); err == nil || got.Contact != 0 {
		t.Errorf("Load() through a link = %+v, %v, want an error", got, err)
	}
	if err := os.Chmod(string(file), 0o622); err != nil {
		t.Fatal(err)
	}
	if got, _, err := file.Load(); err == nil || got.Contact != 0 {
		t.Errorf("Load() = %+v, %v, want an error", got, err)
	}
}

func TestNoSilenceIsRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	file := server.SilenceFile(path)
	if got, _, err := file.Load(); err != nil || got.Contact != 0 {
		t.Errorf("Load() without a file = %+v, %v, want none", got, err)
	}
	for _, text := range []string{"", "{", `{"Taken":"x"}`} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _, err := file.Load(); err == nil || got.Contact != 0 {
			t.Errorf("Load() of %q = %+v, %v, want an error", text, got, err)
		}
	}
}
