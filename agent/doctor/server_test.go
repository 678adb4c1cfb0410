package doctor_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/systemd"
)

// serving is a healthy host with a server.
func serving() doctor.Facts {
	f := healthy()
	since := time.Now()
	f.Systemd.Server = systemd.Unit{Name: doctor.ServerService, LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled"}
	f.Server = &doctor.Server{Socket: "/run/hostler-server/server.sock", Found: true, Status: &answer.Status{
		Version: "1.2.3", Store: answer.Store{Type: "etcd", Endpoint: "http://e1:2379", Since: &since},
		Controllers: []answer.Controller{{Name: "node-lifecycle", State: answer.Leading}, {Name: "eviction", State: answer.Standby, Leader: "other"}, {Name: "reboots", State: answer.Disabled}},
		Loops:       []loop.Health{{Name: "nodes", Healthy: true}},
	}}
	return f
}

// unresponsive makes the server not answer. state is the ActiveState of its unit.
func unresponsive(f *doctor.Facts, state string) {
	f.Server.Status, f.Server.Problem = nil, "connect: connection refused"
	f.Systemd.Server.ActiveState = state
}

func TestAServerIsChecked(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*doctor.Facts)
		want  []string // "status name|parts of message or hint" of the checks of the server
	}{
		"all is well": {func(*doctor.Facts) {}, []string{
			"ok server|version 1.2.3", "ok server-store|etcd at http://e1:2379", "ok server-controllers|node-lifecycle: this server leads|eviction: other leads|reboots: disabled", "ok server-objects",
		}},
		"there is none": {func(f *doctor.Facts) {
			unresponsive(f, "")
			f.Server.Found = false
			f.Systemd.Server.LoadState = "not-found"
		}, nil},
		"nobody looked": {func(f *doctor.Facts) { f.Server = nil }, nil},
		"it was never set up": {func(f *doctor.Facts) {
			unresponsive(f, "inactive")
			f.Systemd.Server.UnitFileState = "disabled"
			f.Server.Fault = "store.type: set it"
		}, []string{"warn server|neither enabled nor started|systemctl enable --now hostler-server"}},
		"it is masked": {func(f *doctor.Facts) {
			unresponsive(f, "inactive")
			f.Systemd.Server.LoadState, f.Systemd.Server.UnitFileState = "masked", "masked"
		}, []string{"warn server|is masked|systemctl unmask hostler-server"}},
		"it has failed":                {func(f *doctor.Facts) { unresponsive(f, "failed") }, []string{"fail server|hostler-server.service is failed|journalctl -u hostler-server -n 50; then systemctl restart hostler-server"}},
		"it cannot start":              {func(f *doctor.Facts) { unresponsive(f, "activating"); f.Server.Fault = "store.type: set it" }, []string{"fail server|store.type: set it\ncorrect the files until `hostler config check --server`"}},
		"it hangs":                     {func(f *doctor.Facts) { unresponsive(f, "active") }, []string{"fail server|runs, but does not answer: connect: connection refused|systemctl restart hostler-server"}},
		"systemd does not say":         {func(f *doctor.Facts) { unresponsive(f, ""); f.Systemd.Server = systemd.Unit{Err: errors.New("busy")} }, []string{"unknown server|busy"}},
		"a socket without a service":   {func(f *doctor.Facts) { unresponsive(f, ""); f.Systemd.Server = systemd.Unit{LoadState: "not-found"} }, []string{"fail server|no server answers at /run/hostler-server/server.sock|remove the socket"}},
		"it starts at no boot":         {func(f *doctor.Facts) { f.Systemd.Server.UnitFileState = "disabled" }, []string{"warn server|next boot|systemctl enable hostler-server", "ok server-store", "ok server-controllers", "ok server-objects"}},
		"its files would not be valid": {func(f *doctor.Facts) { f.Server.Fault = "line 1: no" }, []string{"fail server|line 1: no|hostler config check --server", "ok server-store", "ok server-controllers", "ok server-objects"}},
		"its files need a restart": {func(f *doctor.Facts) {
			f.Server.Status.Configuration = &answer.Configuration{Differs: []string{"controllers", "log.level"}, Restart: true}
		}, []string{"warn server|differ from its effective configuration: controllers, log.level|systemctl restart hostler-server", "ok server-store", "ok server-controllers", "ok server-objects"}},
		"its files need a reload": {func(f *doctor.Facts) {
			f.Server.Status.Configuration = &answer.Configuration{Differs: []string{"log.level"}}
		}, []string{"warn server|differ from its effective configuration: log.level|systemctl reload hostler-server", "ok server-store", "ok server-controllers", "ok server-objects"}},
		"files that only it reads are invalid": {func(f *doctor.Facts) {
			f.Server.Status.Configuration = &answer.Configuration{Fault: "line 1: no"}
		}, []string{"warn server|would not start with them: line 1: no|hostler config check --server", "ok server-store", "ok server-controllers", "ok server-objects"}},
		"one of its loops fails": {func(f *doctor.Facts) {
			f.Server.Status.Loops[0] = loop.Health{Name: "nodes", LastError: "list nodes: forbidden"}
		}, []string{"warn server|loop nodes fails: list nodes: forbidden", "ok server-store", "ok server-controllers", "ok server-objects"}},
		"the store does not answer": {func(f *doctor.Facts) { f.Server.Status.Store.Since, f.Server.Status.Store.Error = nil, "refused" }, []string{"fail server-store|http://e1:2379 does not answer, and the server changes nothing: refused|store.etcd", "ok server"}},
		"the store refuses it": {func(f *doctor.Facts) {
			f.Server.Status.Store.Since, f.Server.Status.Store.Refused, f.Server.Status.Store.Error = nil, true, "forbidden"
		}, []string{"fail server-store|http://e1:2379 refuses the server, which changes nothing: forbidden|if the credentials are rejected, correct them in store.etcd; if a right is missing|howto/server.md", "ok server"}},
		"the cluster refuses it": {func(f *doctor.Facts) {
			f.Server.Status.Store = answer.Store{Type: "kubernetes", Endpoint: "https://k:6443", Refused: true, Error: "forbidden"}
		}, []string{"fail server-store|which changes nothing: forbidden|store.kubernetes|kubectl apply -f /usr/share/doc/hostler-server/server-rbac.yaml", "ok server"}},
		"nobody leads a controller": {func(f *doctor.Facts) {
			f.Server.Status.Controllers[0] = answer.Controller{Name: "node-lifecycle", State: answer.Starting, Message: "election: forbidden"}
		}, []string{"fail server-controllers|no server leads node-lifecycle: election: forbidden|wait 15 s", "ok server", "ok server-store", "ok server-objects"}},
		"a controller lists its objects": {func(f *doctor.Facts) { f.Server.Status.Controllers[0].Waits = "listing nodes: 12 so far" }, []string{"warn server-controllers|node-lifecycle does not know everything that is due: listing nodes: 12 so far|hostler fleet status", "ok server", "ok server-store", "ok server-objects"}},
		"objects that cannot be read":    {func(f *doctor.Facts) { f.Server.Status.Problems = problems("a", "b") }, []string{"warn server-objects|nodes/a: cannot be read; nodes/b: cannot be read|fix it", "ok server", "ok server-store", "ok server-controllers"}},
		"many that cannot be read":       {func(f *doctor.Facts) { f.Server.Status.Problems = problems("a", "b", "c", "d", "e") }, []string{"warn server-objects|nodes/c: cannot be read; 2 more|hostler fleet status", "ok server", "ok server-store", "ok server-controllers"}},
		"kube-controller-manager leads": {func(f *doctor.Facts) {
			f.Server.Status.Controllers = []answer.Controller{{Name: "eviction", State: answer.Yielding, Message: "its Lease is being renewed"}}
		}, []string{"ok server", "ok server-store", "ok server-controllers|eviction: its Lease is being renewed", "ok server-objects"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := serving()
			c.spoil(&f)
			var got []doctor.Check
			for _, check := range doctor.Examine(f).Checks {
				if strings.HasPrefix(check.Name, "server") {
					got = append(got, check)
				}
			}
			if len(got) != len(c.want) {
				t.Fatalf("Examine() finds %+v, want %q", got, c.want)
			}
			for i, want := range c.want {
				head, parts, _ := strings.Cut(want, "|")
				text := got[i].Message + "\n" + got[i].Hint
				if head != string(got[i].Status)+" "+got[i].Name || (got[i].Status == doctor.OK) != (got[i].Hint == "") {
					t.Errorf("Examine() finds %+v, want %q", got[i], want)
				}
				for part := range strings.SplitSeq(parts, "|") {
					if !strings.Contains(text, part) {
						t.Errorf("Examine() finds %+v, want %q in it", got[i], part)
					}
				}
			}
		})
	}
}

func problems(names ...string) (list []answer.Problem) {
	for _, name := range names {
		list = append(list, answer.Problem{Object: "nodes/" + name, Message: "cannot be read", Hint: "fix it"})
	}
	return list
}
