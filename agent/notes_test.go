package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/status/report"
)

func TestNotesOfAnEarlierVersionAreKeptWithoutStateFiles(t *testing.T) {
	r := newRig(t)
	folder := r.cfg.State.Directory
	at := time.Date(2026, 11, 3, 4, 5, 6, 0, time.UTC)
	notes := fmt.Appendf(nil, `{
  "cordon": {"unschedulable": true, "by": "alice", "at": %[1]q, "delivered": true},
  "left": {"node": %[2]q, "controlPlane": "embedded", "by": "bob", "at": %[1]q, "deleted": true},
  "kubelets-node": %[2]q
}
`, at.Format(time.RFC3339), nodeName)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"node.json": notes, "state.db": []byte("of a build before")} {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, when := range []string{"after an upgrade", "after a start later", "after a downgrade that set the state files aside"} {
		if when == "after a downgrade that set the state files aside" {
			files, err := filepath.Glob(filepath.Join(folder, "*.state"))
			if err != nil || len(files) == 0 {
				t.Fatalf("state files = %v, %v, want some", files, err)
			}
			for _, file := range files {
				if err := os.Rename(file, file+".v2"); err != nil {
					t.Fatal(err)
				}
			}
		}
		a := r.build(t)
		if got, want := a.reports.reporter.Decided(), (report.Decision{Unschedulable: true, By: "alice", At: at, Delivered: true}); got == nil || *got != want {
			t.Errorf("%s Decided() = %+v, want %+v", when, got, want)
		}
		if got := a.reports.reporter.Left(); got == nil || got.By != "bob" || !got.At.Equal(at) {
			t.Errorf("%s Left() = %+v, want that bob had it leave", when, got)
		}
		if past := owner.OpenPast(owner.PastOptions{Notes: a.kept.notes, Node: nodeName, Log: discard()}); past.Update("", false)[owner.Node].Name != owner.Kubelet {
			t.Errorf("%s it is not known that the Node is a kubelet's", when)
		}
		if err := a.close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Even root cannot read a loop of links.
func TestStateThatCannotBeReadDoesNotCountAsEmpty(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	folder := r.cfg.State.Directory
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node.json", "drained.state"} {
		if err := os.Symlink(name, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	fake := controlplanetest.NewFake(nil)
	a, signals, ended := r.over(t, fake), make(chan os.Signal, 1), make(chan error, 1)
	host := rebootHost{a: a}
	if why := host.Unknown(); !strings.Contains(why, "node.json") {
		t.Errorf("Unknown() = %q, want that the notes cannot be read", why)
	}
	if held := host.Held(); !slices.ContainsFunc(held, func(f reboot.Finding) bool {
		return strings.Contains(f.Message, "node.json") && f.Source == "state" && f.Hint == ""
	}) {
		t.Errorf("Held() = %v, want that no reboot begins", held)
	}
	if got := a.gc.dead.ExcludedRuntimes(runs.NewReport("interval")); !slices.Contains(got, "containerd") {
		t.Errorf("an automatic run excludes %v, want all runtimes: a drain may have stopped containers", got)
	}
	go func() { ended <- a.Run(signals) }()
	r.manager.expects(t, "READY=1")
	r.eventually(t, "that no Node is created, because the host may have left", func(s api.Status) bool {
		return strings.Contains(s.ControlPlane.Paused, "no Node node-a exists yet: node.json") && s.ControlPlane.Connected
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	controlplane.SetCordon(node, true, true)
	fake.Create(node)
	r.eventually(t, "that an existing Node is used", func(s api.Status) bool { return s.ControlPlane.Paused == "" && s.Lease != nil })
	if _, err := api.NewClient(r.cfg.API.Socket).Collect(t.Context(), api.CollectRequest{}, func(api.Step) {}); err == nil || !strings.Contains(err.Error(), "nothing is removed: drained.state") {
		t.Errorf("a requested collection = %v, want that it removes nothing either", err)
	}
	if err := os.Remove(filepath.Join(folder, "drained.state")); err != nil {
		t.Fatal(err)
	}
	if got := a.gc.dead.ExcludedRuntimes(runs.NewReport("interval")); len(got) > 0 {
		t.Errorf("an automatic run excludes %v once the file can be read, want none", got)
	}
	signals <- syscall.SIGTERM
	within(t, "after SIGTERM", ended)
	if stored, err := fake.Node(t.Context(), nodeName); err != nil || !controlplane.OwnCordon(stored) {
		t.Errorf("the cordon of the Node is undone (%v), want it left alone: the notes may explain it", err)
	}
	if to, err := os.Readlink(filepath.Join(folder, "node.json")); err != nil || to != "node.json" {
		t.Errorf("node.json is a link to %q, %v, want the file that could not be read", to, err)
	}
}
