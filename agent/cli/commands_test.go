package cli_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	serveranswer "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/internal/loop"
)

// grants is the error of a host without rights, with its commands.
const (
	lacksRight = `put nodes/rack1-node1: forbidden: etcdserver: permission denied to write /hostler/nodes/rack1-node1: as etcd root, for user "rack1-node1" (ignore "already exists"): `
	first      = "etcdctl role add hostler-rack1-node1"
	second     = "etcdctl role grant-permission hostler-rack1-node1 --prefix readwrite /hostler/events/rack1-node1/"
	third      = "etcdctl user grant-role 'a; b' hostler-rack1-node1"
	refusal    = lacksRight + first + "; " + second + "; " + third
)

// hasCommands fails unless each command is on exactly one line of the screen, without other text.
func hasCommands(t *testing.T, screen string) {
	t.Helper()
	for _, command := range []string{first, second, third} {
		n := 0
		for line := range strings.Lines(screen) {
			if strings.TrimSpace(line) == command {
				n++
			}
		}
		if n != 1 || strings.Count(screen, command) != 1 {
			t.Errorf("lines with only %q = %d, want 1, and no other mention:\n%s", command, n, screen)
		}
	}
	if strings.Contains(screen, "`etcdctl") {
		t.Errorf("a command is in backticks:\n%s", screen)
	}
}

func TestEtcdCommandsCanBeCopied(t *testing.T) {
	s := healthy()
	s.ControlPlane.Type, s.ControlPlane.LastError = "etcd", refusal
	s.ControlPlane.Overdue = "lease not renewed for 50s: " + refusal
	s.Loops = append(s.Loops, api.Loop{Health: loop.Health{Name: "events", LastError: refusal}})
	for name, got := range map[string]string{
		"status":         hostler(serve(t, &backend{status: s}), "status").stdout,
		"the wide one":   hostler(serve(t, &backend{status: s}), "status", "-o", "wide").stdout,
		"status's error": hostler(serve(t, &backend{err: &hint.Error{Message: refusal, Hint: "see the log"}}), "status").stderr,
		"doctor": hostler(serve(t, &backend{doctor: doctor.Report{Checks: []doctor.Check{
			{Name: "etcd-rights", Status: doctor.Fail, Message: "etcd does not allow: write /hostler/nodes/rack1-node1", Hint: strings.TrimPrefix(refusal, lacksRight[:strings.Index(lacksRight, "as etcd root")])},
			{Name: "etcd", Status: doctor.Fail, Message: "etcd answers, but the agent's last write failed: " + refusal, Hint: "see check etcd-rights"},
		}}}), "doctor").stdout,
	} {
		t.Run(name, func(t *testing.T) {
			hasCommands(t, got)
			if strings.Contains(got, "next:") {
				t.Errorf("the commands are the next step, and there is another one:\n%s", got)
			}
			again := "see above"
			if name == "doctor" {
				again = "see check etcd-rights"
			}
			if name != "status's error" && !strings.Contains(strings.Join(strings.Fields(got), " "), "/hostler/nodes/rack1-node1: "+again) {
				t.Errorf("the second mention does not say where the commands are:\n%s", got)
			}
		})
	}
}

// The error of a call has the commands for all rights, the check etcd-rights those for the missing ones. What
// is left of a list without the lines that the screen shows would give other rights than the missing ones.
func TestListsOfEtcdCommandsAreWholeOrReferredTo(t *testing.T) {
	const root, more = `as etcd root, for user "n" (ignore "already exists"): `, "etcdctl role grant-permission hostler-rack1-node1 readwrite /hostler/leases/n"
	missing, all := root+first+"; "+third, lacksRight+first+"; "+second+"; "+more+"; "+third
	report := doctor.Report{Checks: []doctor.Check{
		{Name: "etcd-rights", Status: doctor.Fail, Message: "etcd does not allow: write x", Hint: missing},
		{Name: "etcd", Status: doctor.Fail, Message: "the last write failed: " + all, Hint: "see check etcd-rights"},
		{Name: "etcd-node", Status: doctor.Fail, Message: "the lease has expired: " + all, Hint: "see check etcd-rights"},
	}}
	for _, args := range [][]string{{"doctor"}, {"doctor", "-o", "wide"}} {
		got := hostler(serve(t, &backend{doctor: report}), args...).stdout
		if strings.Contains(got, second) || strings.Contains(got, more) || strings.Count(got, third) != 1 || strings.Count(got, "as etcd root") != 1 {
			t.Errorf("%q has other commands than those for the missing rights:\n%s", args, got)
		}
	}
	s := healthy()
	s.ControlPlane.Type, s.ControlPlane.LastError = "etcd", lacksRight+first+"; "+third
	s.Loops = append(s.Loops, api.Loop{Health: loop.Health{Name: "events", LastError: all}}, api.Loop{Health: loop.Health{Name: "pods", LastError: all}})
	got := hostler(serve(t, &backend{status: s}), "status").stdout
	if strings.Count(got, first) != 2 || strings.Count(got, second) != 1 || strings.Count(got, third) != 2 || strings.Count(got, "see above") != 1 {
		t.Errorf("status does not have each list whole, and once:\n%s", got)
	}
}

func TestFleetStatusShowsEtcdCommandsOnce(t *testing.T) {
	folder, err := os.MkdirTemp("", "cli") // short, because the path of a socket is limited to 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	listener, err := net.Listen("unix", folder+"/s")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(serveranswer.Status{
			Store:       serveranswer.Store{Type: "etcd", Error: refusal},
			Controllers: []serveranswer.Controller{{Name: "node-lifecycle", State: "Following", Message: refusal}},
			Problems:    []serveranswer.Problem{{Object: "nodes/a", Message: "cannot be written: " + refusal, Hint: "the server tries again"}},
			Loops:       []loop.Health{{Name: "watch", LastError: refusal}},
		})
	})}}
	server.Start()
	t.Cleanup(server.Close)
	got := hostler("", "fleet", "status", "--socket", folder+"/s").stdout
	hasCommands(t, got)
	for _, want := range []string{"/hostler/nodes/rack1-node1: see below: the server tries again", "As etcd root (ignore \"already exists\"):\n  " + first + "\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("fleet status does not say %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "as etcd root") {
		t.Errorf("a cell says who runs the commands, which it does not contain:\n%s", got)
	}
}
