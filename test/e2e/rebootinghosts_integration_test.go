//go:build integration

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane"
	fleetanswer "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/test/etcd"
	"hostler.io/hostler/test/lab"
)

// bootIDFile is where the kernel has the ID of a boot.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// rebooter is an agent whose host reboots: reboot.command leaves a file, and boot ends the boot.
type rebooter struct {
	*agent
	name, bootID, requested string // name of its Node, and files
	boots                   int
}

// newRebooter starts one. Its boot ID is its own.
func newRebooter(t testing.TB, name, settings string) *rebooter {
	t.Helper()
	h := &rebooter{agent: newAgent(t, ""), name: name}
	h.bootID, h.requested = filepath.Join(h.folder, "boot_id"), filepath.Join(h.folder, "reboot-was-requested")
	h.dropIn = []string{"BindReadOnlyPaths=" + h.bootID + ":" + bootIDFile}
	h.configure(settings + fmt.Sprintf("reboot: {enabled: true, readyFor: 1s, sentinels: [], command: touch %s}\n", h.requested))
	h.boot()
	return h
}

// dies has the host go down without a word.
func (h *rebooter) dies() {
	h.t.Helper()
	if h.running() {
		h.kill()
	}
}

// boot has the host boot.
func (h *rebooter) boot() {
	h.t.Helper()
	h.dies()
	h.boots++
	check(h.t, os.WriteFile(h.bootID, fmt.Appendf(nil, "00000000-0000-4000-8000-%012d\n", h.boots), 0o644))
	_ = os.Remove(h.requested) // it may not be there
	h.start()
}

// goesDown waits until the host has requested its reboot.
func (h *rebooter) goesDown() {
	h.t.Helper()
	eventually(h.t, h.name+" runs reboot.command", func() bool { _, err := os.Stat(h.requested); return err == nil })
}

// is waits until the reboot is at a step, and status mentions all of that.
func (h *rebooter) is(step controlplane.RebootStep, parts ...string) api.Status {
	h.t.Helper()
	s := h.await(h.name+" is at step "+string(step), func(s api.Status) bool {
		return s.Reboot != nil && s.Reboot.Request != nil && s.Reboot.Step == step && !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(s.Reboot.Message, part) })
	})
	return s
}

// over waits until the reboot is done and the Node is uncordoned, which comes just after.
func (h *rebooter) over() api.Status {
	h.t.Helper()
	h.is(controlplane.RebootDone)
	s := h.await(h.name+" is not cordoned", func(s api.Status) bool { return !nodeOf(s).Spec.Unschedulable })
	cordoned(h.t, s) // checks that its taint is gone, too
	return s
}

// metrics are what the server serves at its socket.
func (s *server) metrics() string {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.socket())
	}}}
	resp, err := client.Get("http://hostler/metrics")
	check(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	check(s.t, err)
	if !strings.Contains(string(text), "hostler_server_slot_oldest_holder_seconds") {
		s.t.Fatalf("GET /metrics = %s, %.300s", resp.Status, text)
	}
	return string(text)
}

// alerts checks which of the packaged alerts fire if the server serves the same metrics for some minutes.
func (s *server) alerts(t *testing.T, want ...string) {
	t.Helper()
	text := s.metrics()
	rules, err := filepath.Abs("../../packaging/prometheus/hostler-server.rules.yml")
	check(t, err)
	series := []map[string]string{{"series": `up{job="hostler-server", instance="a"}`, "values": "1+0x10"}}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(line, "hostler_server_") {
			name = strings.Replace(name, "{", `{instance="a",`, 1)
			if !strings.Contains(name, "{") {
				name += `{instance="a"}`
			}
			series = append(series, map[string]string{"series": name, "values": value + "+0x10"})
		}
	}
	samples := []map[string]any{}
	for _, alert := range want {
		samples = append(samples, map[string]any{"labels": fmt.Sprintf("{alertname=%q}", alert), "value": 1})
	}
	test, err := json.Marshal(map[string]any{
		"rule_files": []string{rules}, "evaluation_interval": "1m",
		"tests": []any{map[string]any{
			"interval": "1m", "input_series": series,
			"promql_expr_test": []any{map[string]any{"expr": `count by (alertname) (ALERTS{alertstate="firing"})`, "eval_time": "8m", "exp_samples": samples}},
		}},
	})
	check(t, err)
	file := filepath.Join(s.folder, "alerts.yml")
	check(t, os.WriteFile(file, test, 0o644))
	promtool(t, "", "test", "rules", file)
}

// rebootPace are settings of hosts that are soon known to be Ready, or dead.
const rebootPace = "lease: {duration: 10s, renewInterval: 2s}\nstatus: {updateInterval: 1s}\n"

// TestAHostThatDoesNotReturnKeepsItsSlot has a host that goes down for its reboot and stays away until a person
// releases its slot, and one whose Node is deleted meanwhile. Both return after all.
func TestAHostThatDoesNotReturnKeepsItsSlot(t *testing.T) {
	t.Parallel()
	f := newFleet(t, etcd.Options{})
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	hosts := map[string]*rebooter{}
	// Only h1 is to be found dead.
	lasting := strings.Replace(rebootPace, "10s", "1h", 1)
	for name, pace := range map[string]string{"h1": rebootPace, "h2": lasting, "h3": lasting} {
		hosts[name] = newRebooter(t, name, f.settings(name, "")+pace+"runtimes: [{type: cri, endpoint: "+c.Endpoint+"}]\n")
	}
	for name := range hosts {
		eventually(t, name+" is there, Ready and alive", f.well(name))
	}
	s := startServer(t, f.served("reboots: {groups: {default: {slots: 1, maxUnavailable: 1}}}\ncontrollers: [node-lifecycle, reboots]\n"))
	h1, h2, h3 := hosts["h1"], hosts["h2"], hosts["h3"]
	h1.prints("reboot", "--reason", "new kernel")
	h1.goesDown()
	h1.dies()

	t.Run("it keeps its slot, and everybody says so", func(t *testing.T) {
		h2.prints("reboot", "--reason", "new kernel")
		since := s.holder(t, "h1").Since.UTC().Format(time.RFC3339)
		h2.is(controlplane.RebootWaiting, "all slots of the group are held: h1 since "+since)
		eventuallyMentions(t, "hostler status", h2.screen, "waits: all slots of the group are held: h1 since "+since)
		eventuallyMentions(t, "hostler reboot --dry-run", func() string { return onOneLine(h2.prints("reboot", "--dry-run")) }, "all slots of the group are held: h1 since "+since)
		f.becomes("h1", corev1.ConditionUnknown, unreachable+" unschedulable:NoSchedule")
		eventuallyMentions(t, "hostler fleet slots", func() string { return onOneLine(s.prints("slots")) },
			"h1 default", "Rebooting agent", "its Node is not Ready, and has not booted since", "h2 default")
		if text := s.prints("slots"); strings.Contains(text, "slots release") {
			t.Errorf("hostler fleet slots names the command that releases a slot within an hour:\n%s", text)
		}
		s.alerts(t)
		// Two hours pass.
		f.changeGroup("default", func(state *slots.Record) {
			state.Holders[0].Since.Time = state.Holders[0].Since.Add(-2 * time.Hour)
		})
		const release = "hostler fleet slots release h1 --group default --reason TEXT"
		eventuallyMentions(t, "hostler fleet slots", func() string { return onOneLine(s.prints("slots")) }, "h1 holds its slot for 120m", release)
		eventuallyMentions(t, "hostler fleet status", func() string { return onOneLine(s.prints("status")) }, "h1")
		s.alerts(t, "HostlerSlotHeldForLong")
		h2.is(controlplane.RebootWaiting, "all slots of the group are held: h1 since")
	})
	t.Run("a person releases the slot", func(t *testing.T) {
		mentions(t, "hostler fleet slots release", s.prints("slots", "release", "h1", "--group", "default", "--reason", "disk broken"), "recorded: disk broken")
		r := s.group("default").Releases[0]
		if r.ID != "h1" || r.How != "Released" || r.By != "root" || r.Reason != "disk broken" {
			t.Errorf("release = %+v, want the decision of root", r)
		}
		h2.goesDown()
		h2.boot()
		h2.over()
		s.alerts(t)
	})
	t.Run("it returns after all", func(t *testing.T) {
		h1.boot()
		if s := h1.over(); len(s.Reboot.Past) != 1 || s.Reboot.Past[0].ByOther {
			t.Errorf("reboot = %+v, want the one that was requested", s.Reboot)
		}
		f.becomes("h1", corev1.ConditionTrue, "")
		s.free(t, "default")
	})
	t.Run("a Node that is deleted holds no slot", func(t *testing.T) {
		before := f.node("h3").UID
		h3.prints("reboot", "--reason", "new kernel")
		h3.goesDown()
		h3.dies()
		h2.prints("reboot", "--reason", "again")
		h2.is(controlplane.RebootWaiting, "h3 since")
		f.ctl("del", "/hostler/nodes/h3")
		h2.goesDown()
		if r := s.group("default").Releases[0]; r.ID != "h3" || r.How != "NodeDeleted" {
			t.Errorf("release = %+v, want that the Node of h3 was deleted", r)
		}
		// Its host returns while the other one has the slot.
		h3.boot()
		h3.over()
		if node := f.node("h3"); node.UID == before || node.Spec.Unschedulable {
			t.Errorf("Node of h3 has UID %s as before, or is cordoned: %t, want a new one", node.UID, node.Spec.Unschedulable)
		}
		if h := s.holder(t, "h2"); h.Step != string(controlplane.RebootRebooting) {
			t.Errorf("holder = %+v, want h2 to hold the slot still", h)
		}
		h2.boot()
		h2.over()
		s.free(t, "default")
		for _, h := range hosts {
			if s := h.status(); cordoned(t, s) || len(s.Reboot.Past) != h.boots-1 {
				t.Errorf("%s is cordoned: %t, reboots %+v after %d boots", h.name, cordoned(t, s), s.Reboot.Past, h.boots)
			}
		}
	})
	t.Run("a Node that is deleted while its host drains", func(t *testing.T) {
		h3.stop()
		h3.start()
		h3.prints("reboot", "--reason", "new kernel")
		h3.goesDown()
		f.ctl("del", "/hostler/nodes/h3")
		eventually(t, "its host registers it again, without a slot", func() bool {
			node := f.node("h3")
			return node != nil && node.Annotations[controlplane.AnnotationReboot] != "" && node.Annotations[controlplane.AnnotationRebootSlot] == ""
		})
		h3.boot()
		h3.over()
		s.free(t, "default")
		for _, h := range hosts {
			h.stop()
		}
	})
}

// holder is the only one of the group default, which has to be that host.
func (s *server) holder(t *testing.T, id string) (h fleetanswer.SlotHolder) {
	t.Helper()
	eventually(t, id+" holds the slot", func() bool {
		all := s.group("default").Holders
		if len(all) == 1 {
			h = all[0]
		}
		return len(all) == 1 && h.ID == id
	})
	return h
}

// free waits until nobody holds a slot of a group, or waits for one.
func (s *server) free(t *testing.T, group string) {
	t.Helper()
	eventually(t, "group "+group+" is free", func() bool { g := s.group(group); return len(g.Holders)+len(g.Waiting) == 0 })
}

// changeGroup stores the slots of a group as somebody else makes them.
func (f etcdFleet) changeGroup(group string, change func(*slots.Record)) {
	f.t.Helper()
	record := &slots.Record{}
	check(f.t, json.Unmarshal([]byte(f.ctl("get", "--print-value-only", "/hostler/slots/"+group)), record))
	change(record)
	text, err := json.Marshal(record)
	check(f.t, err)
	f.ctl("put", "/hostler/slots/"+group, string(text))
}
