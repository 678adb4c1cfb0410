package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/server"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/internal/loop"
)

// patience limits every wait. Only an error makes a wait that long.
const patience = 5 * time.Minute

// replica is a running server.
type replica struct {
	t       *testing.T
	store   *memory.Store
	config  config.Config
	next    func() (config.Config, error) // the configuration at a reload
	log     logtest.Book
	signals chan os.Signal
	ended   chan error
	http    http.Client
	events  events
}

// events are the Events that a server publishes, one per line.
type events struct {
	mu   sync.Mutex
	text string
	err  error // error of each publication
}

func (e *events) PublishEvent(_ context.Context, event *corev1.Event) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.text += fmt.Sprintf("%s/%s %s %s: %s\n", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Type, event.Reason, event.Message)
	}
	return e.err
}

func (e *events) published() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.text
}

func (e *events) Close() error { return nil }

// start runs a server on a store, with a configuration that edits change.
func start(t *testing.T, s *memory.Store, edits ...func(*config.Config)) *replica {
	t.Helper()
	return startOn(t, s, s, edits...)
}

// startOn is start with another store in front of s.
func startOn(t *testing.T, front store.Store, s *memory.Store, edits ...func(*config.Config)) *replica {
	t.Helper()
	r := &replica{t: t, store: s, config: config.Default(), signals: make(chan os.Signal, 1), ended: make(chan error, 1)}
	r.config.API.Socket = filepath.Join(t.TempDir(), "s")
	r.config.Metrics.Listen = ""
	for _, edit := range edits {
		edit(&r.config)
	}
	r.next = func() (config.Config, error) { return r.config, nil }
	instance, err := server.New(server.Options{
		Config: r.config, Reload: func() (config.Config, error) { return r.next() }, Read: func() (config.Config, error) { return r.next() }, Store: front, Version: "1.2.3",
		Events: &r.events, Getenv: func(string) string { return "" }, Unsetenv: func(string) error { return nil },
		Log: r.log.Logger(), Level: new(slog.LevelVar),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.http.Transport = &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.config.API.Socket)
	}}
	go func() { r.ended <- instance.Run(r.signals) }()
	t.Cleanup(r.stop)
	return r
}

// stop stops the server if it still runs.
func (r *replica) stop() {
	if r.ended == nil {
		return
	}
	r.signals <- syscall.SIGTERM
	if err := <-r.ended; err != nil {
		r.t.Errorf("Run() = %v", err)
	}
	r.ended = nil
}

// get reads a route.
func (r *replica) get(path string) string {
	r.t.Helper()
	resp, err := r.http.Get("http://server" + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		r.t.Fatalf("GET %s = %s, %v\n%s", path, resp.Status, err, text)
	}
	return string(text)
}

func decoded[T any](r *replica, path string) T {
	r.t.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.get(path)), &v); err != nil {
		r.t.Fatal(err)
	}
	return v
}

func (r *replica) status() answer.Status { return decoded[answer.Status](r, "/v1/fleet/status") }

// eventually waits until wanted returns true for the status.
func (r *replica) eventually(what string, wanted func(answer.Status) bool) answer.Status {
	r.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		s := r.status()
		if wanted(s) {
			return s
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain: %s; status is %+v", what, s)
		}
	}
}

func leading(s answer.Status) bool { return s.Controllers[0].State == answer.Leading }

// ready stores a Node with a status, and a Lease that does not expire in a test.
func ready(s *memory.Store, name, zone string, status corev1.ConditionStatus) {
	seconds, now := int32(3600), metav1.NowMicro()
	s.Put(store.Leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &now}})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	s.Put(store.Nodes, node)
}

// nextFor returns the next step for the pods of a Node that is not ready; empty if there is none.
func nextFor(r *replica, node string) string {
	for _, n := range decoded[answer.Plan](r, "/v1/fleet/plan").Controllers[0].Settled {
		if n.Node == node {
			return n.Next
		}
	}
	return ""
}

// Only a person knows that a host does not return.
func TestThePlanNamesWhatToDoIfAHostDoesNotReturn(t *testing.T) {
	for name, c := range map[string]struct {
		controllers []string
		want        string
	}{
		"evictions":    {[]string{"*"}, "no pod on it is left to evict (only hosts with `status.pods: true` publish their pods); "},
		"no evictions": {[]string{"*", "-eviction"}, "this server does not evict its pods: controller eviction is off; "},
	} {
		t.Run(name, func(t *testing.T) {
			s := memory.New(memory.Options{EndsLeases: true})
			for _, name := range []string{"a1", "a2", "lost"} {
				ready(s, name, "a", corev1.ConditionTrue)
			}
			r := start(t, s, func(o *config.Config) { o.Controllers = c.controllers })
			r.eventually("it leads", leading)
			seconds, now := int32(1), metav1.NowMicro()
			s.Put(store.Leases, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "lost"}, Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &now}})
			r.eventually("the host is Unknown and tainted", func(answer.Status) bool {
				settled := decoded[answer.Plan](r, "/v1/fleet/plan").Controllers[0].Settled
				return len(settled) == 1 && settled[0].Node == "lost" && settled[0].Ready == "Unknown" && settled[0].NoExecuteSince != nil &&
					settled[0].Next == c.want+"if the host does not return, delete its Node: `hostler fleet delete nodes/lost --dry-run`"
			})
		})
	}
}

func TestAServerAnswersWhatItDoesAndWhy(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	for _, name := range []string{"a1", "a2", "a3", "a4"} {
		ready(s, name, "a", corev1.ConditionTrue)
	}
	r := start(t, s, func(c *config.Config) { c.NodeLifecycle.EvictionRate = 0.001 }) // sick2 waits for as long as the test takes
	r.eventually("it leads", leading)
	ready(s, "sick1", "a", corev1.ConditionFalse)
	ready(s, "sick2", "a", corev1.ConditionFalse)
	s.PutRaw(store.Nodes, "broken", []byte("{"))
	status := r.eventually("one Node waits for its taint", func(s answer.Status) bool {
		c := s.Controllers[0]
		return c.Pending == 1 && c.Due == 0 && c.Stored >= 2 && len(s.Problems) == 1
	})
	if status.Nodes != 6 || status.NotReady != 2 || !slices.Equal(status.NotReadyNodes, []string{"sick1", "sick2"}) || status.Store.Since == nil || status.Problems[0].Object != "nodes/broken" || status.Version != "1.2.3" {
		t.Errorf("status = %+v", status)
	}
	plan := decoded[answer.Plan](r, "/v1/fleet/plan").Controllers[0]
	if len(plan.Actions) != 1 || plan.Actions[0].Due == nil || !strings.Contains(plan.Actions[0].Action, "node.kubernetes.io/not-ready:NoExecute") || !strings.Contains(plan.Actions[0].Reason, "one Node every 16m40s in zone a") {
		t.Errorf("plan = %+v, want one taint that is due later", plan)
	}
	if len(plan.Settled) != 1 || plan.Settled[0].Node != "sick1" || plan.Settled[0].Ready != "False" || plan.Settled[0].NoExecuteSince == nil {
		t.Errorf("settled = %+v, want the Node that has its taints", plan.Settled)
	}
	s.Put(store.Pods(true), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}, Spec: corev1.PodSpec{NodeName: "sick1", Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(3600))}}}})
	r.eventually("the pod is still to be evicted", func(answer.Status) bool {
		return nextFor(r, "sick1") == "1 pod on it is still to be evicted, see below"
	})
	deleted := metav1.Now()
	s.Put(store.Pods(true), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", DeletionTimestamp: &deleted}, Spec: corev1.PodSpec{NodeName: "sick1"}})
	r.eventually("the pod is evicted", func(answer.Status) bool {
		return nextFor(r, "sick1") == "pods whose deletion is requested: 1; an object stays until its pod ends or the Node is deleted"
	})
	s.Remove(store.Pods(true), "sick1/shop/web-1")
	r.eventually("no pod is left", func(answer.Status) bool {
		return strings.HasPrefix(nextFor(r, "sick1"), "no pod on it is left to evict")
	})
	metrics := r.get("/metrics")
	for _, want := range []string{
		`hostler_server_leading{controller="node-lifecycle"} 1`, `hostler_server_store_up 1`, `hostler_server_pending_actions{controller="node-lifecycle"} 1`,
		`hostler_server_nodes{ready="false",state="Normal",zone="a"} 2`, `hostler_server_ignored_objects 1`, `hostler_server_build_info{version="1.2.3"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s:\n%s", want, metrics)
		}
	}
	if got := r.get("/healthz"); got != "ok\n" {
		t.Errorf("/healthz = %q, want ok", got)
	}
}

func TestAServerSaysThatNoZoneIsReady(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ready(s, "a1", "a", corev1.ConditionFalse)
	r := start(t, s)
	r.eventually("its zone is paused", func(s answer.Status) bool {
		return len(s.Zones) == 1 && s.Zones[0].Paused == lifecycle.NoZoneReady
	})
}

// TestAServerNamesThePasswordThatItCannotUse has one that all users can read.
func TestAServerNamesThePasswordThatItCannotUse(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := errors.Join(os.WriteFile(password, []byte("s3cret"), 0o600), os.Chmod(password, 0o644)); err != nil {
		t.Fatal(err)
	}
	r := start(t, memory.New(memory.Options{}), func(c *config.Config) {
		c.Reboots.Listen, c.Reboots.PasswordFile = "127.0.0.1:0", password
	})
	r.eventually("it is named", func(s answer.Status) bool {
		return len(s.Problems) == 1 && strings.Contains(s.Problems[0].Message, "reboots.passwordFile: all users can read "+password)
	})
	if err := os.Chmod(password, 0o600); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is not named any more", func(s answer.Status) bool { return len(s.Problems) == 0 })
}

// TestZonesThatLookTheSameDoNotEndTheMetrics has hosts that name their zones by characters that are replaced when they
// are shown.
func TestZonesThatLookTheSameDoNotEndTheMetrics(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ready(s, "mallory1", "\x01", corev1.ConditionTrue)
	ready(s, "mallory2", "\x02", corev1.ConditionTrue)
	r := start(t, s)
	r.eventually("both hosts are known", func(s answer.Status) bool { return s.Nodes == 2 })
	if metrics := r.get("/metrics"); !strings.Contains(metrics, `hostler_server_nodes{ready="true",state="Normal",zone="?"} 2`) {
		t.Errorf("metrics lack the two hosts in one zone:\n%s", metrics)
	}
}

// TestATimeThatJSONCannotHaveEndsNoAnswer has a host whose times are in the year 10000 in UTC.
func TestATimeThatJSONCannotHaveEndsNoAnswer(t *testing.T) {
	const at = "9999-12-31T23:59:59-14:00"
	s := memory.New(memory.Options{EndsLeases: true})
	ready(s, "a", "a", corev1.ConditionTrue)
	s.PutRaw(store.Nodes, "mallory", []byte(strings.ReplaceAll(`{"metadata":{"name":"mallory","uid":"m","creationTimestamp":"AT"},
		"spec":{"taints":[{"key":"node.kubernetes.io/not-ready","effect":"NoExecute","timeAdded":"AT"},{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]},
		"status":{"conditions":[{"type":"Ready","status":"False","lastHeartbeatTime":"AT","lastTransitionTime":"AT"}]}}`, "AT", at)))
	r := start(t, s)
	r.eventually("the Node is named", func(s answer.Status) bool {
		return len(s.Problems) == 1 && strings.Contains(s.Problems[0].Message, "a time that JSON cannot have")
	})
	decoded[answer.Plan](r, "/v1/fleet/plan")
}

// TestAServerEndsDeletionsInTheForegroundAndOrphans makes a server remove both finalizers. For
// that, it needs to know how far each kind was followed.
func TestAServerEndsDeletionsInTheForegroundAndOrphans(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	s.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	s.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}})
	r := start(t, s)
	r.eventually("it leads", leading)
	for name, policy := range map[string]metav1.DeletionPropagation{"a": metav1.DeletePropagationForeground, "b": metav1.DeletePropagationOrphan} {
		if err := s.Delete(t.Context(), store.Nodes, name, store.Preconditions{}, policy); err != nil {
			t.Fatal(err)
		}
		r.eventually("the Node is gone", func(answer.Status) bool {
			_, err := s.Get(t.Context(), store.Nodes, name)
			return errors.Is(err, controlplane.ErrNotFound)
		})
	}
}

func TestWhatAServerDoesIsAnEvent(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	for _, name := range []string{"a1", "a2", "a3", "a4"} {
		ready(s, name, "a", corev1.ConditionTrue)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}, Spec: corev1.PodSpec{NodeName: "a1"}}
	s.Put(store.Pods(true), pod)
	r := start(t, s)
	r.eventually("it leads", leading)
	ready(s, "a1", "a", corev1.ConditionFalse)
	// Both taints are added in one write if the facts are confirmed early enough.
	for _, want := range []string{
		`(?m)^Node/a1 Warning NodeTainted: .*add taint node\.kubernetes\.io/not-ready:NoExecute: `,
		`(?m)^Node/a1 Normal TaintManagerEviction: pod a1/default/web evicted: `,
	} {
		published := regexp.MustCompile(want)
		r.eventually(want, func(answer.Status) bool { return published.MatchString(r.events.published()) })
	}
}

func TestAServerActsWithoutTheRightToPublishEvents(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ready(s, "a1", "a", corev1.ConditionTrue)
	r := start(t, s)
	r.events.mu.Lock()
	r.events.err = controlplane.ErrForbidden
	r.events.mu.Unlock()
	r.eventually("it leads", leading)
	ready(s, "a1", "a", corev1.ConditionFalse)
	r.eventually("the Node is tainted", func(s answer.Status) bool { return s.Controllers[0].Stored >= 1 && s.Controllers[0].Due == 0 })
	for deadline := time.Now().Add(patience); r.log.Count("control plane rejected event, dropped") == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not say that Events are refused:\n%s", &r.log)
		}
	}
}

// Hosts write any text into Nodes, and clients of the store can choose the names of keys.
func TestWhatHostsSayMovesNoTerminal(t *testing.T) {
	const evil = "\x1b]0;title\x07\nforged row\u202e\u009b2J\t"
	s := memory.New(memory.Options{EndsLeases: true})
	for _, name := range []string{"a1", "a2", "a3", "a4"} {
		ready(s, name, evil, corev1.ConditionTrue)
	}
	r := start(t, s)
	r.eventually("it leads", leading)
	ready(s, "sick1", evil, corev1.ConditionFalse)
	ready(s, "sick2", evil, corev1.ConditionFalse)
	s.PutRaw(store.Nodes, "odd"+evil, []byte(`{"metadata": {"name": "odd"}}`))
	s.PutRaw(store.Nodes, "broken"+evil, []byte(`{"metadata": {"name": "`+strings.Repeat("x", 1<<20)+evil))
	r.eventually("one Node waits for its taint", func(s answer.Status) bool {
		return s.Controllers[0].Pending == 1 && s.NotReady == 2 && len(s.Problems) > 0
	})
	for _, path := range []string{"/v1/fleet/status", "/v1/fleet/plan", "/metrics"} {
		var texts []string
		text := r.get(path)
		if path == "/metrics" {
			texts = strings.Split(text, "\n")
		} else {
			texts = stringsIn(t, text)
		}
		for _, text := range texts {
			if strings.ContainsAny(text, "\x1b\x07\n\t\u202e\u009b") || strings.HasPrefix(text, "forged") || len(text) > 8<<10 {
				t.Errorf("GET %s has %.500q", path, text)
			}
		}
	}
}

// stringsIn returns all strings of a JSON text.
func stringsIn(t *testing.T, text string) (all []string) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		token, err := decoder.Token()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if s, ok := token.(string); ok {
			all = append(all, s)
		}
	}
}

func TestASecondServerStandsByAndTakesOverAtOnce(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	first := start(t, s)
	first.eventually("it leads", leading)
	second := start(t, s)
	status := second.eventually("it is standby", func(s answer.Status) bool { return s.Controllers[0].State == answer.Standby })
	if status.Controllers[0].Leader != first.status().Candidate {
		t.Errorf("leader = %q, want %q", status.Controllers[0].Leader, first.status().Candidate)
	}
	first.stop()
	second.eventually("it leads", leading)
}

func TestAControllerThatIsNotConfiguredDoesNotRun(t *testing.T) {
	r := start(t, memory.New(memory.Options{}), func(c *config.Config) {
		c.Controllers = []string{"-node-lifecycle", "-eviction", "-garbage-collector", "-clones", "-heartbeats", "-reboots", "*"}
	})
	status := r.eventually("it is disabled", func(s answer.Status) bool { return s.Controllers[0].State == answer.Disabled })
	if status.Controllers[0].Message == "" {
		t.Error("status does not say why")
	}
	for _, c := range []memory.Call{memory.Elect, memory.Follow} {
		if n := r.store.Calls(c); n != 0 {
			t.Errorf("%d calls of %s, want none", n, c)
		}
	}
}

func TestAReloadTakesOverWhatIsLiveAndRefusesTheRest(t *testing.T) {
	s := memory.New(memory.Options{})
	for _, name := range []string{"a1", "a2", "a3", "a4"} {
		ready(s, name, "a", corev1.ConditionTrue)
	}
	r := start(t, s)
	r.eventually("zone a is known", func(s answer.Status) bool { return len(s.Zones) == 1 && s.Zones[0].Rate == 0.1 })
	client := api.NewClient(r.config.API.Socket)
	reload := func(next config.Config, err error) (string, error) {
		t.Helper()
		r.next = func() (config.Config, error) { return next, err }
		report, refused := client.Reload(t.Context())
		return strings.Join(report.Changed, ", "), refused
	}
	changed := r.config
	changed.NodeLifecycle.EvictionRate = 0.5
	r.next = func() (config.Config, error) { return changed, nil }
	if got := r.status().Configuration; got == nil || got.Restart || !slices.Equal(got.Differs, []string{"nodeLifecycle.evictionRate"}) {
		t.Errorf("configuration before a reload = %+v, want that the rate differs", got)
	}
	if got, err := reload(changed, nil); got != "nodeLifecycle.evictionRate" || err != nil {
		t.Errorf("Reload() = %q, %v, want the rate", got, err)
	}
	r.eventually("the rate is another", func(s answer.Status) bool { return s.Zones[0].Rate == 0.5 && s.Configuration == nil })
	moved := changed
	moved.API.Socket, moved.NodeLifecycle.EvictionRate, moved.Controllers = "/elsewhere", 1, []string{"*", "-eviction"}
	if _, err := reload(moved, nil); err == nil || !strings.Contains(err.Error(), "keeping the old configuration: controllers, api.socket cannot change while the server runs; restart it with `systemctl restart hostler-server`") {
		t.Errorf("Reload() of keys that need a restart = %v, want that it is rejected", err)
	}
	if got := r.status().Configuration; got == nil || !got.Restart || !slices.Equal(got.Differs, []string{"controllers", "nodeLifecycle.evictionRate", "api.socket"}) {
		t.Errorf("configuration after a rejected reload = %+v, want the keys that differ, and that they need a restart", got)
	}
	if _, err := reload(changed, errors.New("a.yaml:1: one\na.yaml:2: two")); err == nil || !strings.HasSuffix(err.Error(), "keeping the old configuration:\na.yaml:1: one\na.yaml:2: two") {
		t.Errorf("Reload() of invalid files = %v, want a line for each fault", err)
	}
	if got := r.status(); got.Zones[0].Rate != 0.5 || got.Configuration == nil || !strings.Contains(got.Configuration.Fault, "a.yaml:1: one") {
		t.Errorf("status after two rejected reloads = %v, %+v, want rate 0.5 and the fault", got.Zones, got.Configuration)
	}
	r.signals <- syscall.SIGHUP
	for deadline := time.Now().Add(patience); r.log.Count("reload rejected") < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("a signal does not reload:\n%s", &r.log)
		}
	}
}

func TestAStoreThatDoesNotAnswerIsShown(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ready(s, "a1", "a", corev1.ConditionTrue)
	r := start(t, s)
	r.eventually("it leads", leading)
	s.Inject(memory.Any, memory.Fault{Err: errors.New("connection refused")})
	r.eventually("it says so", func(s answer.Status) bool {
		return s.Store.Since == nil && strings.Contains(s.Store.Error, "connection refused") && s.Controllers[0].Waits != ""
	})
	s.Heal()
	r.eventually("it is back, and nothing is shown as failing", func(s answer.Status) bool {
		healthy := !slices.ContainsFunc(s.Loops, func(l loop.Health) bool { return !l.Healthy })
		return s.Store.Since != nil && leading(s) && s.Controllers[0].Waits == "" && healthy
	})
}

func TestAStoreThatRefusesTheServerIsShown(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ready(s, "a1", "a", corev1.ConditionTrue)
	r := start(t, s)
	r.eventually("it leads", leading)
	s.Inject(memory.Any, memory.Fault{Err: controlplane.ErrForbidden})
	r.eventually("it says so", func(s answer.Status) bool {
		return s.Store.Since == nil && s.Store.Refused && !slices.ContainsFunc(s.Controllers, func(c answer.Controller) bool {
			return c.Waits != "" && c.Waits != store.ErrRefused.Error()
		}) && s.Controllers[0].Waits != ""
	})
	s.Heal()
	r.eventually("it is back", func(s answer.Status) bool { return s.Store.Since != nil && !s.Store.Refused && leading(s) })
}

// controller returns the state of a controller.
func controller(s answer.Status, name string) answer.Controller {
	return s.Controllers[slices.IndexFunc(s.Controllers, func(c answer.Controller) bool { return c.Name == name })]
}

func TestTheLeaseDurationIsChosenAndExplained(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	for _, name := range []string{"a1", "a2", "a3"} {
		ready(s, name, "a", corev1.ConditionTrue)
	}
	s.Inject(memory.Set, memory.Fault{Err: errors.New("connection refused")})
	r := start(t, s, func(c *config.Config) { c.Heartbeats.MaxPerSecond = 0.1 })
	r.eventually("the change fails", func(s answer.Status) bool { return controller(s, "heartbeats").Failing == 1 })
	plan := decoded[answer.Plan](r, "/v1/fleet/plan").Controllers[4]
	if len(plan.Actions) != 1 || plan.Actions[0].Object != "settings/lease-duration" || plan.Actions[0].Action != "let Leases last 2m" || plan.Actions[0].Due == nil ||
		!strings.Contains(plan.Actions[0].Reason, "3 hosts renew 0.3 Leases a second") {
		t.Errorf("plan = %+v, want another duration", plan)
	}
	s.Heal()
	status := r.eventually("it is stored", func(s answer.Status) bool { return s.Heartbeats != nil && s.Heartbeats.Setting == "2m" })
	if h := *status.Heartbeats; h.Hosts != 3 || h.LeaseSeconds != 120 || h.PerSecond != 0.1 || h.MaxPerSecond != 0.1 || h.Reason == "" {
		t.Errorf("heartbeats = %+v, want Leases of 2 minutes", h)
	}
	next := r.config
	next.Heartbeats.MaxPerSecond = 300
	r.next = func() (config.Config, error) { return next, nil }
	r.signals <- syscall.SIGHUP
	r.eventually("it is removed after a reload", func(s answer.Status) bool { return s.Heartbeats.Setting == "" && s.Heartbeats.LeaseSeconds == 40 })
}

func TestAControllerThatDoesNotApplyToTheStoreSaysSo(t *testing.T) {
	s := memory.New(memory.Options{})
	r := startOn(t, struct{ store.Store }{s}, s, func(c *config.Config) { c.Controllers = []string{"heartbeats", "clones"} })
	status := r.eventually("another leads", func(s answer.Status) bool { return controller(s, "clones").State == answer.Leading })
	c := controller(status, "heartbeats")
	if c.State != answer.NotApplicable || !strings.Contains(c.Message, "does not apply to memory") || status.Heartbeats != nil {
		t.Errorf("controller = %+v, heartbeats %v, want that it does not apply", c, status.Heartbeats)
	}
	if strings.Contains(r.get("/metrics"), `hostler_server_leading{controller="heartbeats"}`) {
		t.Error("metrics say that nobody leads a controller that nobody has to lead")
	}
}

func TestClonesAreNamedAsAProblem(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	for name, other := range map[string]string{"a1": "a2", "a2": "a1"} { // found by an earlier leader
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{controlplane.AnnotationSameMachine: other}}}
		node.Status.NodeInfo = corev1.NodeSystemInfo{MachineID: "m", BootID: name}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		s.Put(store.Nodes, node)
	}
	r := start(t, s)
	status := r.eventually("they are named", func(s answer.Status) bool { return len(s.Problems) > 0 })
	if p := status.Problems[0]; len(status.Problems) != 1 || p.Object != "nodes/a1" || !strings.Contains(p.Message, "a1, a2 have the same machine ID") || !strings.Contains(p.Hint, "systemd-machine-id-setup") {
		t.Errorf("problems = %+v, want one with the fix", status.Problems)
	}
}
