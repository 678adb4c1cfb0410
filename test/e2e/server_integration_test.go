//go:build integration

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	fleetanswer "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
)

// server is `hostler server`.
type server struct {
	t      testing.TB
	folder string
	env    []string // additional environment variables
	cmd    *exec.Cmd
	ended  chan struct{}
}

// startServer starts a server, and waits until it answers.
func startServer(t testing.TB, settings string) *server {
	t.Helper()
	s := newServer(t)
	s.configure(settings)
	s.start()
	return s
}

// newServer prepares a server without a configuration, and does not start it.
func newServer(t testing.TB) *server {
	t.Helper()
	folder, err := os.MkdirTemp(lab.Dir, "server-")
	check(t, err)
	s := &server{t: t, folder: folder}
	t.Cleanup(func() {
		s.end(syscall.SIGKILL)
		if t.Failed() {
			t.Logf("log of the server:\n%s", s.logged())
		}
		check(t, os.RemoveAll(folder))
	})
	return s
}

func (s *server) socket() string { return filepath.Join(s.folder, "server.sock") }

func (s *server) configure(settings string) {
	s.t.Helper()
	text := fmt.Sprintf("api: {socket: %s}\nmetrics: {listen: \"\"}\n%s\n", s.socket(), settings)
	check(s.t, os.WriteFile(filepath.Join(s.folder, "server.yaml"), []byte(text), 0o644))
}

// start runs the server and waits until it answers.
func (s *server) start() {
	s.t.Helper()
	s.launch()
	ended := s.ended
	eventually(s.t, "the server answers", func() bool {
		select {
		case <-ended:
			s.t.Fatalf("the server has ended:\n%s", s.logged())
		default:
		}
		return command(s.t, nil, "fleet", "status", "--socket", s.socket()).code == 0
	})
}

// launch starts the server without waiting.
func (s *server) launch() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(s.t, err)
	defer log.Close()
	cmd := exec.Command(binary, "server", "--config", filepath.Join(s.folder, "server.yaml"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), s.env...)
	check(s.t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	s.cmd, s.ended = cmd, ended
}

// end ends the server, and waits for it.
func (s *server) end(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig)
	<-s.ended
}

func (s *server) logged() string {
	text, _ := os.ReadFile(filepath.Join(s.folder, "log"))
	return string(text)
}

// prints runs a fleet command that must succeed.
func (s *server) prints(args ...string) string {
	s.t.Helper()
	r := command(s.t, nil, append(append([]string{"fleet"}, args...), "--socket", s.socket())...)
	if r.code != 0 {
		s.t.Fatalf("hostler fleet %s: exit code %d\n%s", strings.Join(args, " "), r.code, r.err)
	}
	return r.out
}

func (s *server) status() fleetanswer.Status {
	s.t.Helper()
	var a fleetanswer.Status
	check(s.t, json.Unmarshal([]byte(s.prints("status", "-o", "json")), &a))
	return a
}

// leads reports whether the server leads all controllers that run.
func (s *server) leads() bool {
	waits := []string{fleetanswer.Starting, fleetanswer.Standby, fleetanswer.Yielding}
	return !slices.ContainsFunc(s.status().Controllers, func(c fleetanswer.Controller) bool { return slices.Contains(waits, c.State) })
}

// served returns the settings of a server of this fleet.
func (f etcdFleet) served(more string) string {
	return fmt.Sprintf("store: {type: etcd, etcd: {endpoints: [%s]}}\n%s", strings.Join(f.Endpoints(), ", "), more)
}

// taints returns Kubernetes' taints of a Node, without node.kubernetes.io/.
func (f etcdFleet) taints(name string) string {
	f.t.Helper()
	var list []string
	for _, t := range f.node(name).Spec.Taints {
		if key, ok := strings.CutPrefix(t.Key, "node.kubernetes.io/"); ok {
			list = append(list, key+":"+string(t.Effect))
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// becomes waits until Ready and the taints of a Node are those.
func (f etcdFleet) becomes(name string, ready corev1.ConditionStatus, taints string) {
	f.t.Helper()
	last := ""
	defer func() {
		if f.t.Failed() {
			f.t.Logf("%s was last %s", name, last)
		}
	}()
	eventually(f.t, fmt.Sprintf("%s is %s with %q", name, ready, taints), func() bool {
		status, _, _ := strings.Cut(f.ready(name), " ")
		last = status + " " + f.taints(name)
		return last == string(ready)+" "+taints
	})
}

const unreachable = "unreachable:NoExecute unreachable:NoSchedule"

// TestAServerActsOnAFleetInEtcd follows hosts that die and return.
func TestAServerActsOnAFleetInEtcd(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	const rest = "renewInterval: 2s}\nstatus: {updateInterval: 1s}\npressure: {transitionPeriod: 0s}\n"
	const pace, lasting = "lease: {duration: 10s, " + rest, "lease: {duration: 1h, " + rest
	agents := map[string]*agent{}
	for name, zone := range map[string]string{"n1": "a", "n2": "a", "n3": "b"} {
		pace := pace
		if name == "n1" { // it lives all the time
			pace = lasting
		}
		agents[name] = startAgent(t, f.settings(name, ", labels: {topology.kubernetes.io/zone: "+zone+"}")+pace)
	}
	for name := range agents {
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	s := startServer(t, f.served(""))
	eventually(t, "the server leads", s.leads)
	for name := range agents {
		f.becomes(name, corev1.ConditionTrue, "")
	}
	eventuallyMentions(t, "hostler fleet status", func() string { return onOneLine(s.prints("status")) }, "etcd at "+f.Endpoints()[0], "3, 0 not ready", "node-lifecycle Leading this server", "a Normal 2 0", "b Normal 1 0")
	eventuallyMentions(t, "hostler fleet plan", func() string { return s.prints("plan") }, "node-lifecycle: nothing is due. It watches 3 Nodes and their Leases", "eviction: nothing is due. It watches pods and the NoExecute taints of Nodes")

	for _, name := range []string{"n2", "n3"} {
		t.Run(name+" dies and returns", func(t *testing.T) {
			agents[name].kill()
			eventually(t, "its Lease has ended", func() bool { return !f.alive(name) })
			ended := time.Now()
			f.becomes(name, corev1.ConditionUnknown, unreachable)
			t.Logf("Unknown and tainted %v after the end of the Lease was seen", time.Since(ended).Round(time.Millisecond))
			for _, c := range f.node(name).Status.Conditions {
				if slices.Contains([]corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure}, c.Type) &&
					(c.Status != corev1.ConditionUnknown || c.Reason != "NodeStatusUnknown") {
					t.Errorf("condition %s = %s, %s, want Unknown, NodeStatusUnknown", c.Type, c.Status, c.Reason)
				}
			}
			mentions(t, "hostler nodes", onOneLine(agents["n1"].prints("nodes")), name+" Unknown")
			eventuallyMentions(t, "hostler fleet status", func() string { return onOneLine(s.prints("status")) }, "3, 1 not ready: "+name)
			eventually(t, "hostler fleet plan says what comes next", func() bool {
				plan := onOneLine(s.prints("plan"))
				return strings.Contains(plan, name+" is Unknown: tainted unreachable") && strings.Contains(plan, "; no pod on it is left to evict")
			})
			agents[name].start()
			f.becomes(name, corev1.ConditionTrue, "")
			for _, reason := range []string{"NodeNotReady", "NodeUntainted"} {
				eventually(t, "hostler fleet get events shows "+reason, func() bool {
					return regexp.MustCompile(`(?m)^` + name + `/\S+ .* ago .*` + reason + ` `).MatchString(s.prints("get", "events"))
				})
			}
		})
	}
	t.Run("a host that is short of memory, without network or cordoned", func(t *testing.T) {
		a := agents["n1"]
		a.prints("cordon")
		f.becomes("n1", corev1.ConditionTrue, "unschedulable:NoSchedule")
		a.prints("uncordon")
		f.becomes("n1", corev1.ConditionTrue, "")
		settings := f.settings("n1", ", labels: {topology.kubernetes.io/zone: a}") + strings.Replace(lasting, "transitionPeriod: 0s", "transitionPeriod: 0s, memoryAvailable: 100%", 1)
		a.configure(settings)
		a.prints("reload")
		f.becomes("n1", corev1.ConditionTrue, "memory-pressure:NoSchedule")
		a.configure(f.settings("n1", ", labels: {topology.kubernetes.io/zone: a}") + lasting)
		a.prints("reload")
		f.becomes("n1", corev1.ConditionTrue, "")
		// Another client writes this one: an agent would write its own condition again.
		f.ctl("put", "/hostler/nodes/net", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"net","uid":"1"},"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"NetworkUnavailable","status":"True"}]}}`)
		f.becomes("net", corev1.ConditionTrue, "network-unavailable:NoSchedule")
		f.change("net", func(node *corev1.Node) { node.Status.Conditions[1].Status = corev1.ConditionFalse })
		f.becomes("net", corev1.ConditionTrue, "")
		f.ctl("del", "/hostler/nodes/net")
	})
	t.Run("what cannot be read is named", func(t *testing.T) {
		f.ctl("put", "/hostler/nodes/broken", "{")
		eventually(t, "hostler fleet status names it", func() bool { return strings.Contains(s.prints("status"), "nodes/broken") })
		f.ctl("del", "/hostler/nodes/broken")
		eventually(t, "it is not named any more", func() bool { return !strings.Contains(s.prints("status"), "nodes/broken") })
	})
	t.Run("a Node that a person makes", func(t *testing.T) {
		f.ctl("put", "/hostler/nodes/byhand", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"byhand","uid":"1"}}`)
		f.becomes("byhand", corev1.ConditionUnknown, unreachable)
		if c := f.node("byhand").Status.Conditions[0]; c.Reason != "NodeStatusNeverUpdated" {
			t.Errorf("reason = %s, want NodeStatusNeverUpdated", c.Reason)
		}
		f.ctl("del", "/hostler/nodes/byhand")
	})
	s.end(syscall.SIGTERM)
	if code := s.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code of the server after SIGTERM = %d, want 0", code)
	}
	if text := f.ctl("get", "--prefix", "--keys-only", "/hostler/elections/"); strings.TrimSpace(text) != "" && !strings.Contains(s.logged(), "cannot give the leadership back") {
		t.Errorf("elections after the server has stopped = %q, want none: it gives its leadership up", text)
	}
}

// TestStartsPostponeNoDeath has a server that is killed soon after it leads, again and again. No process of it lives as
// long as the Lease of a host.
func TestStartsPostponeNoDeath(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	agents := map[string]*agent{}
	for _, name := range []string{"n1", "n2"} {
		agents[name] = startAgent(t, f.settings(name, "")+"lease: {duration: 60s, renewInterval: 2s}\n")
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	s := startServer(t, f.served(""))
	eventually(t, "the server leads", s.leads)
	agents["n1"].kill()
	died := time.Now()
	for since := died; time.Since(died) < 10*time.Minute && !strings.HasPrefix(f.ready("n1"), string(corev1.ConditionUnknown)); {
		if time.Since(since) > 2*time.Minute {
			t.Fatalf("n1 is %s, %v after its death", f.ready("n1"), time.Since(died))
		}
		killed := time.Now()
		s.end(syscall.SIGKILL)
		s.start()
		eventually(t, "the server leads", s.leads)
		if time.Since(killed) > 4*time.Second { // after such a gap, n1 gets its whole grace period again
			since = time.Now()
		}
		time.Sleep(3 * time.Second) // it may act
	}
	t.Logf("Unknown %v after the death", time.Since(died).Round(time.Second))
	f.becomes("n1", corev1.ConditionUnknown, unreachable)
	f.becomes("n2", corev1.ConditionTrue, "")
}

// TestAStoreThatStallsKillsNobody stops etcd for a minute, longer than Leases last.
func TestAStoreThatStallsKillsNobody(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	const pace = "lease: {duration: 40s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n"
	var names []string
	for i := range 3 {
		names = append(names, fmt.Sprintf("n%d", i))
		startAgent(t, f.settings(names[i], "")+pace)
	}
	for _, name := range names {
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	s := startServer(t, f.served(""))
	eventually(t, "the server leads", s.leads)
	check(t, f.Members[0].Pause())
	time.Sleep(time.Minute)
	check(t, f.Members[0].Continue())
	// The agents run again, and the server leads again.
	for _, name := range names {
		eventually(t, name+" is alive again", func() bool { return f.alive(name) })
	}
	eventually(t, "the server leads again", s.leads)
	for _, name := range names {
		f.becomes(name, corev1.ConditionTrue, "")
	}
	if log := s.logged(); strings.Contains(log, "Unknown") || strings.Contains(log, "add taint") {
		t.Errorf("the server has marked hosts that live:\n%s", log)
	}
}

// TestALeaderThatWasSuspendedWritesNothing suspends a server for longer than its term.
func TestALeaderThatWasSuspendedWritesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	const pace = "lease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n"
	startAgent(t, f.settings("alive", "")+pace)
	a := startAgent(t, f.settings("h", "")+pace)
	for _, name := range []string{"alive", "h"} {
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	first := startServer(t, f.served(""))
	eventually(t, "the first server leads", first.leads)
	second := startServer(t, f.served(""))
	check(t, first.cmd.Process.Signal(syscall.SIGSTOP))
	eventually(t, "the first server is suspended", func() bool { return lab.Stopped(first.cmd.Process.Pid) })
	before := len(first.logged())
	eventually(t, "the second server leads", second.leads)
	a.kill()
	f.becomes("h", corev1.ConditionUnknown, unreachable)
	added := f.node("h").Spec.Taints
	check(t, first.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, "the first server knows that it does not lead", func() bool {
		return strings.Contains(first.logged(), "no longer leading")
	})
	if strings.Contains(first.logged()[before:], "node changed") {
		t.Errorf("the suspended server has written:\n%s", first.logged())
	}
	second.end(syscall.SIGTERM)
	eventually(t, "the first server leads again", first.leads)
	if got := f.node("h").Spec.Taints; len(got) != len(added) || !got[0].TimeAdded.Equal(added[0].TimeAdded) {
		t.Errorf("taints after two changes of the leader = %v, want %v with their time", got, added)
	}
}
