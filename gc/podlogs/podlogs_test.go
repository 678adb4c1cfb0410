package podlogs_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/podlogs"
)

// tree is a root folder for logs.
type tree struct {
	*testing.T
	root string
	host *podlogs.Host
}

func newTree(t *testing.T) *tree {
	root := t.TempDir()
	return &tree{t, root, podlogs.New(root)}
}

func (t *tree) path(name string) string { return filepath.Join(t.root, "/var/log", name) }

func (t *tree) write(name, text string) {
	t.Helper()
	err := errors.Join(os.MkdirAll(filepath.Dir(t.path(name)), 0o755), os.WriteFile(t.path(name), []byte(text), 0o600))
	if err != nil {
		t.Fatal(err)
	}
}

func (t *tree) link(name, target string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(t.path(name)), 0o755), os.Symlink(target, t.path(name))); err != nil {
		t.Fatal(err)
	}
}

func (t *tree) find(known ...string) []gc.LogFact {
	t.Helper()
	logs, err := t.host.Find(t.Context(), func(uid string) bool { return slices.Contains(known, uid) })
	if err != nil {
		t.Fatalf("Find() = %v", err)
	}
	slices.SortFunc(logs, func(a, b gc.LogFact) int { return strings.Compare(a.Path, b.Path) })
	return logs
}

// one returns the only log that is found.
func (t *tree) one() gc.LogFact {
	t.Helper()
	logs := t.find()
	if len(logs) != 1 {
		t.Fatalf("Find() = %+v, want one log", logs)
	}
	return logs[0]
}

func (t *tree) exists(name string) bool {
	_, err := os.Lstat(t.path(name))
	return err == nil
}

func TestAPodsFolderIsFoundAndRemoved(t *testing.T) {
	b := newTree(t)
	b.write("pods/barn_horse_u1/saddle/0.log", "neigh")
	b.write("pods/barn_horse_u1/saddle/0.log.20261120-101112.gz", "old")
	b.write("pods/barn_horse_u1/bridle/12.log", "x")
	b.link("pods/barn_horse_u1/bridle/13.log", "/var/lib/docker/containers/c/c-json.log")
	b.write("pods/barn_mare_u2/saddle/0.log", "here")
	written := time.Date(2026, 11, 19, 10, 0, 0, 0, time.UTC)
	for _, name := range []string{"saddle/0.log", "saddle/0.log.20261120-101112.gz", "bridle/12.log", "saddle", "bridle", ""} {
		if err := os.Chtimes(b.path("pods/barn_horse_u1/"+name), written, written); err != nil {
			t.Fatal(err)
		}
	}
	latest := written.Add(time.Hour)
	if err := os.Chtimes(b.path("pods/barn_horse_u1/bridle/12.log"), latest, latest); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(b.path("pods/barn_horse_u1/bridle/13.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(b.path("pods/barn_horse_u1/bridle"), written, written); err != nil {
		t.Fatal(err)
	}
	logs := b.find("u2")
	if len(logs) != 1 {
		t.Fatalf("Find() = %+v, want the one folder that is not known", logs)
	}
	got := logs[0]
	if got.Namespace != "barn" || got.Pod != "horse" || got.UID != "u1" || got.SizeBytes != 9 || got.Foreign != "" || got.Link || !got.ModifiedAt.Equal(latest) {
		t.Errorf("Find() = %+v, want barn/horse, u1, 9 bytes, written at %v", got, latest)
	}
	for range 2 {
		if err := b.host.Remove(t.Context(), got); err != nil {
			t.Errorf("Remove() = %v", err)
		}
	}
	if b.exists("pods/barn_horse_u1") || !b.exists("pods/barn_mare_u2/saddle/0.log") {
		t.Errorf("Remove() left the folder, or took another")
	}
}

func TestALogThatIsALinkGoesAndWhatItLeadsToStays(t *testing.T) {
	b := newTree(t)
	b.write("docker/c-json.log", "precious")
	b.link("pods/barn_horse_u1/saddle/0.log", b.path("docker/c-json.log"))
	if err := b.host.Remove(t.Context(), b.one()); err != nil {
		t.Errorf("Remove() = %v", err)
	}
	if b.exists("pods/barn_horse_u1") || !b.exists("docker/c-json.log") {
		t.Errorf("Remove() left the folder, or took what a link in it led to")
	}
}

func TestFoldersThatHoldAnythingElseAreForeign(t *testing.T) {
	tests := []struct {
		name    string
		make    func(b *tree)
		message string
	}{
		{"a file beside the containers' folders", func(b *tree) { b.write("pods/barn_horse_u1/notes", "x") }, "notes"},
		{"a file that is no log", func(b *tree) { b.write("pods/barn_horse_u1/saddle/core", "x") }, "saddle/core"},
		{"a folder below a container's", func(b *tree) { b.write("pods/barn_horse_u1/saddle/deep/0.log", "x") }, "saddle/deep"},
		{"a folder that is named like a log", func(b *tree) { b.write("pods/barn_horse_u1/saddle/0.log/x", "x") }, "saddle/0.log"},
		{"a link in place of a container's folder", func(b *tree) {
			b.write("elsewhere/0.log", "precious")
			b.link("pods/barn_horse_u1/saddle", b.path("elsewhere"))
		}, "saddle"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newTree(t)
			tt.make(b)
			log := b.one()
			if !strings.Contains(log.Foreign, tt.message) {
				t.Errorf("Find() = foreign %q, want %q named", log.Foreign, tt.message)
			}
			log.Foreign = ""
			if err := b.host.Remove(t.Context(), log); !errors.Is(err, podlogs.ErrChanged) {
				t.Errorf("Remove() = %v, want %v", err, podlogs.ErrChanged)
			}
			if !b.exists("pods/barn_horse_u1") {
				t.Errorf("Remove() took a folder that is not a CRI runtime's alone")
			}
		})
	}
}

func TestWhatIsNoPodsFolderIsNotFound(t *testing.T) {
	b := newTree(t)
	b.write("elsewhere/saddle/0.log", "precious")
	b.link("pods/barn_horse_u1", b.path("elsewhere"))
	b.write("pods/barn_horse_u2", "a file")
	b.write("pods/barn_horse/0.log", "two parts")
	b.write("pods/barn__u3/saddle/0.log", "an empty part")
	b.write("pods/barn_horse_u4_x/saddle/0.log", "four parts")
	if logs := b.find(); len(logs) != 0 {
		t.Errorf("Find() = %+v, want nothing", logs)
	}
	if logs, err := podlogs.New(t.TempDir()).Find(t.Context(), nil); err != nil || len(logs) != 0 {
		t.Errorf("Find() without folders = %v, %v, want nothing", logs, err)
	}
}

func TestRemoveLeavesWhatHasChanged(t *testing.T) {
	tests := []struct {
		name   string
		change func(b *tree)
	}{
		{"somebody writes to it", func(b *tree) { b.write("pods/barn_horse_u1/saddle/0.log", "neigh, neigh") }},
		{"a container has come", func(b *tree) { b.write("pods/barn_horse_u1/bridle/0.log", "") }},
		{"it has become a link", func(b *tree) {
			b.write("elsewhere/saddle/0.log", "neigh")
			if err := os.RemoveAll(b.path("pods/barn_horse_u1")); err != nil {
				b.Fatal(err)
			}
			b.link("pods/barn_horse_u1", b.path("elsewhere"))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newTree(t)
			b.write("pods/barn_horse_u1/saddle/0.log", "neigh")
			past := time.Now().Add(-time.Hour) // the kernel's clock for files may not advance for some milliseconds
			for _, path := range []string{"pods/barn_horse_u1/saddle/0.log", "pods/barn_horse_u1/saddle", "pods/barn_horse_u1"} {
				if err := os.Chtimes(b.path(path), past, past); err != nil {
					t.Fatal(err)
				}
			}
			log := b.one()
			tt.change(b)
			if err := b.host.Remove(t.Context(), log); err == nil {
				t.Errorf("Remove() = nil, want an error")
			}
			if !b.exists("pods/barn_horse_u1") || b.exists("elsewhere") && !b.exists("elsewhere/saddle/0.log") {
				t.Errorf("Remove() took what has changed")
			}
		})
	}
}

func TestRemoveTouchesNothingElsewhere(t *testing.T) {
	b := newTree(t)
	b.write("pods/barn_horse_u1/saddle/0.log", "neigh")
	b.write("other/barn_horse_u1/saddle/0.log", "precious")
	b.write("containers/notes", "precious")
	log := b.one()
	for _, path := range []string{b.path("other/barn_horse_u1"), b.path("pods/../other/barn_horse_u1"), b.path("pods") + "/.", "/"} {
		log.Path = path
		if err := b.host.Remove(t.Context(), log); err == nil {
			t.Errorf("Remove(%s) = nil, want an error", path)
		}
		log.Link = true
		if err := b.host.Remove(t.Context(), log); err == nil {
			t.Errorf("Remove(%s) of a link = nil, want an error", path)
		}
		log.Link = false
	}
	if !b.exists("other/barn_horse_u1/saddle/0.log") || !b.exists("pods/barn_horse_u1/saddle/0.log") {
		t.Errorf("Remove() took what is not in the folder of logs")
	}
}

func TestLinks(t *testing.T) {
	const gone = "/var/log/pods/barn_horse_u1/saddle/0.log"
	tests := []struct {
		name, link, target string
		dangling           bool
	}{
		{"to a pod that is gone", "horse_barn_saddle-c1.log", gone, true},
		{"to a container that is gone", "horse_barn_saddle-c1.log", "/var/log/pods/barn_mare_u2/saddle/0.log", true},
		{"to a log that is rotated away", "mare_barn_bridle-c1.log", "/var/log/pods/barn_mare_u2/bridle/7.log", true},
		{"to a log that is there", "mare_barn_bridle-c1.log", "/var/log/pods/barn_mare_u2/bridle/0.log", false},
		{"to a log that leads on to nowhere, as with cri-dockerd", "mare_barn_bridle-c1.log", "/var/log/pods/barn_mare_u2/bridle/1.log", false},
		{"out of the folder of logs", "horse_barn_saddle-c1.log", "/nowhere/barn_horse_u1/saddle/0.log", false},
		{"out of the folder of logs, by way of it", "horse_barn_saddle-c1.log", "/var/log/pods/barn_horse_u1/saddle/../../../x/0.log", false},
		{"to something that is no log", "horse_barn_saddle-c1.log", "/var/log/pods/barn_horse_u1/saddle/core", false},
		{"to a relative name", "horse_barn_saddle-c1.log", "../pods/barn_horse_u1/saddle/0.log", false},
		{"of another kind of name", "syslog", gone, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newTree(t)
			b.write("pods/barn_mare_u2/bridle/0.log", "here")
			b.link("pods/barn_mare_u2/bridle/1.log", "/nowhere/c-json.log")
			b.link("containers/"+tt.link, tt.target)
			b.write("containers/other_barn_x-c9.log", "a file, not a link")
			logs := b.find("u2")
			if !tt.dangling {
				if len(logs) != 0 {
					t.Errorf("Find() = %+v, want nothing", logs)
				}
				return
			}
			if len(logs) != 1 || !logs[0].Link || logs[0].ContainerID != "c1" || logs[0].Namespace != "barn" || logs[0].ModifiedAt.IsZero() {
				t.Fatalf("Find() = %+v, want the link", logs)
			}
			for range 2 {
				if err := b.host.Remove(t.Context(), logs[0]); err != nil {
					t.Errorf("Remove() = %v", err)
				}
			}
			if b.exists("containers/"+tt.link) || !b.exists("containers/other_barn_x-c9.log") || !b.exists("pods/barn_mare_u2/bridle/0.log") {
				t.Errorf("Remove() left the link, or took something else")
			}
		})
	}
}

func TestALinkWhoseLogExistsStays(t *testing.T) {
	b := newTree(t)
	b.write("pods/barn_mare_u2/bridle/0.log", "here")
	b.link("containers/mare_barn_bridle-c1.log", "/var/log/pods/barn_mare_u2/bridle/1.log")
	logs := b.find("u2")
	b.write("pods/barn_mare_u2/bridle/1.log", "here as well")
	if err := b.host.Remove(t.Context(), logs[0]); !errors.Is(err, podlogs.ErrChanged) {
		t.Errorf("Remove() = %v, want %v", err, podlogs.ErrChanged)
	}
	if !b.exists("containers/mare_barn_bridle-c1.log") {
		t.Errorf("Remove() took a link that leads to a log")
	}
}

func TestFindEndsWithItsContext(t *testing.T) {
	b := newTree(t)
	b.write("pods/barn_horse_u1/saddle/0.log", "neigh")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.host.Find(ctx, func(string) bool { return false }); !errors.Is(err, context.Canceled) {
		t.Errorf("Find() = %v, want %v", err, context.Canceled)
	}
	log := b.one()
	if err := b.host.Remove(ctx, log); !errors.Is(err, context.Canceled) || !b.exists("pods/barn_horse_u1/saddle/0.log") {
		t.Errorf("Remove() = %v, want %v and nothing removed", err, context.Canceled)
	}
}

// FuzzFolderNames creates a folder with any name. It is found or left alone, and nothing beside it
// is changed.
func FuzzFolderNames(f *testing.F) {
	for _, name := range []string{"barn_horse_u1", "a_b", "a__c", "..", "a_b_c_d", "_", "a_b_\n", strings.Repeat("x", 100) + "_y_z"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 200 {
			return
		}
		b := newTree(t)
		b.write("precious", "x")
		b.write("pods/"+name+"/c/0.log", "x")
		for _, log := range b.find() {
			if strings.Count(name, "_") != 2 || log.Namespace+"_"+log.Pod+"_"+log.UID != name {
				t.Errorf("Find() = %+v of folder %q", log, name)
			}
			if err := b.host.Remove(t.Context(), log); err != nil {
				t.Errorf("Remove(%q) = %v", name, err)
			}
		}
		if !b.exists("precious") || !b.exists("pods") {
			t.Errorf("Remove(%q) took what is beside it", name)
		}
	})
}

// A pod that may write there must not use up the memory.
func TestTheMemoryForLogsIsBounded(t *testing.T) {
	t.Run("a folder with more files than logs have", func(t *testing.T) {
		b := newTree(t)
		b.host.Bound(10, 5)
		for i := range 5 { // and their folder
			b.write(fmt.Sprintf("pods/barn_horse_u1/saddle/0.log.%d", i), "")
		}
		if log := b.one(); log.Foreign != "it contains more files and folders than logs have" {
			t.Errorf("Find() = foreign %q, want a folder that holds too much left alone", log.Foreign)
		}
	})
	t.Run("more folders and links than are removed at once", func(t *testing.T) {
		b := newTree(t)
		const most, more = 10, 3
		b.host.Bound(most, 5)
		for i := range most + more {
			b.write(fmt.Sprintf("pods/barn_horse%d_u/saddle/0.log", i), "")
			b.link(fmt.Sprintf("containers/a_b_c-%d.log", i), fmt.Sprintf("/var/log/pods/barn_gone_%d/saddle/0.log", i))
		}
		logs := b.find()
		if len(logs) != 2*most {
			t.Fatalf("Find() gave %d, want %d folders and as many links", len(logs), most)
		}
		for _, log := range logs {
			if err := b.host.Remove(t.Context(), log); err != nil {
				t.Fatal(err)
			}
		}
		if logs := b.find(); len(logs) != 2*more {
			t.Errorf("Find() gave %d the next time, want the %d that were left", len(logs), 2*more)
		}
	})
}
