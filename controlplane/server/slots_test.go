package server_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/server"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/test/lab"
)

// freePort returns an address on which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// locks sends a FleetLock request and returns the status; 0 without an answer.
func locks(client *http.Client, base, path, id string) int {
	body := fmt.Sprintf(`{"client_params": {"id": %q, "group": "default"}}`, id)
	request, err := http.NewRequest(http.MethodPost, base+path, strings.NewReader(body))
	if err != nil {
		return 0
	}
	request.Header.Set("fleet-lock-protocol", "true")
	response, err := client.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

const preReboot, steadyState = "/v1/pre-reboot", "/v1/steady-state"

// group returns the group default of a status.
func group(s answer.Status) answer.SlotGroup {
	if len(s.Slots) == 0 {
		return answer.SlotGroup{}
	}
	return s.Slots[0]
}

// TestSlotsOfTwoServers has two servers on one store: both give slots, and both show them.
func TestSlotsOfTwoServers(t *testing.T) {
	for name, o := range map[string]memory.Options{"as etcd": {EndsLeases: true}, "as Kubernetes": {}} {
		t.Run(name, func(t *testing.T) {
			s := memory.New(o)
			ready(s, "n1", "a", corev1.ConditionTrue)
			ready(s, "n2", "b", corev1.ConditionTrue)
			addresses := []string{freePort(t), freePort(t)}
			serve := func(i int) *replica {
				r := start(t, s, func(c *config.Config) { c.Reboots.Listen = addresses[i] })
				r.eventually("it serves FleetLock", func(answer.Status) bool {
					return locks(http.DefaultClient, "http://"+addresses[i], steadyState, "nobody") == 200
				})
				r.eventually("it knows the Nodes", func(s answer.Status) bool { return group(s).Nodes == 2 })
				return r
			}
			first := serve(0)
			first.eventually("it leads", func(s answer.Status) bool { return controller(s, "reboots").State == answer.Leading })
			second := serve(1)
			if got := locks(http.DefaultClient, "http://"+addresses[0], preReboot, "n1"); got != 409 {
				t.Errorf("n1 asks before a host has given a sign of life = %d, want 409", got)
			}
			reported := 0
			report := func() {
				for _, name := range []string{"n1", "n2"} {
					s.Edit(store.Nodes, name, func(o store.Object) {
						o.(*corev1.Node).Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(time.Unix(int64(reported), 0))
					})
				}
				reported++
			}
			first.eventually("n1 gets a slot of the first server", func(answer.Status) bool {
				report()
				return locks(http.DefaultClient, "http://"+addresses[0], preReboot, "n1") == 200
			})
			second.eventually("the second server has seen the hosts", func(answer.Status) bool {
				report()
				return locks(http.DefaultClient, "http://"+addresses[1], preReboot, "n2") == 409 &&
					strings.Contains(decoded[answer.Slots](second, "/v1/fleet/slots").Groups[0].Waiting[0].Wait, "all slots")
			})
			for _, r := range []*replica{first, second} {
				g := decoded[answer.Slots](r, "/v1/fleet/slots").Groups[0]
				if len(g.Holders) != 1 || g.Holders[0].ID != "n1" || g.Holders[0].Node != "n1" || g.Holders[0].Zone != "a" || len(g.Waiting) != 1 || !strings.Contains(g.Waiting[0].Wait, "all slots of the group are held: n1 since") {
					t.Errorf("slots = %+v, want n1 and n2", g)
				}
			}
			plan := decoded[answer.Plan](first, "/v1/fleet/plan").Controllers[5]
			if len(plan.Actions) != 1 || plan.Actions[0].Action != "give a slot to n2" || !strings.Contains(plan.Actions[0].Reason, "n1 since") {
				t.Errorf("plan = %+v, want that n2 waits", plan)
			}
			first.stop()
			if got := locks(http.DefaultClient, "http://"+addresses[1], steadyState, "n1"); got != 200 {
				t.Errorf("n1 gives back to the second server = %d, want 200", got)
			}
			second.eventually("n2 gets a slot of the second server", func(answer.Status) bool {
				report()
				return locks(http.DefaultClient, "http://"+addresses[1], preReboot, "n2") == 200
			})
			s.Remove(store.Nodes, "n2")
			second.eventually("the slot of the deleted Node is free", func(s answer.Status) bool {
				g := group(s)
				return len(g.Holders) == 0 && len(g.Releases) == 2 && g.Releases[0].How == "NodeDeleted" && g.Releases[0].ID == "n2" && g.Releases[1].How == "GivenBack"
			})
			metrics := second.get("/metrics")
			for _, want := range []string{
				`hostler_server_slots{group="default"} 1`, `hostler_server_slots_held{group="default"} 0`, `hostler_server_slots_waiting{group="default"} 0`,
				`hostler_server_slot_oldest_holder_seconds{group="default"} 0`, `hostler_server_fleetlock_answers_total{kind="granted"} 1`, `hostler_server_leading{controller="reboots"} 1`,
			} {
				if !strings.Contains(metrics, want) {
					t.Errorf("metrics lack %s:\n%s", want, metrics)
				}
			}
		})
	}
}

func TestTheDeletionOfANodeNamesItsSlot(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ready(s, "n1", "a", corev1.ConditionTrue)
	ready(s, "n2", "a", corev1.ConditionTrue)
	node, err := s.Get(t.Context(), store.Nodes, "n1")
	if err != nil {
		t.Fatal(err)
	}
	groups := slots.NewGroups(s, "")
	if _, err := groups.Change(t.Context(), "default", store.Term{}, func(state *slots.State) error {
		state.Ask(slots.Client{ID: "n1", Type: slots.FleetLock}, slots.Policy{Slots: 1}, slots.Nodes{"n1": {Name: "n1", UID: node.GetUID()}}, time.Now())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r := start(t, s)
	r.eventually("the collector runs", collects)
	for node, want := range map[string]int{"n1": 1, "n2": 0} {
		code, text := r.ask("POST", "/v1/fleet/delete/plan", fmt.Sprintf(`{"object":"nodes/%s","cascade":"background"}`, node))
		var d answer.Deletion
		if err := json.Unmarshal([]byte(text), &d); code != http.StatusOK || err != nil {
			t.Fatalf("plan = %d %s", code, text)
		}
		if len(d.Warnings) != want || want == 1 && !strings.Contains(d.Warnings[0], "holds a reboot slot of group default") {
			t.Errorf("warnings of %s = %q, want %d", node, d.Warnings, want)
		}
	}
}

// TestAHolderThatDoesNotReturnIsAProblem has a holder that got its slot two hours ago.
func TestAHolderThatDoesNotReturnIsAProblem(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ready(s, "n1", "a", corev1.ConditionFalse)
	groups := slots.NewGroups(s, "")
	if _, err := groups.Change(t.Context(), "default", store.Term{}, func(state *slots.State) error {
		state.Ask(slots.Client{ID: "gone", Type: slots.FleetLock}, slots.Policy{Slots: 1}, nil, time.Now().Add(-2*time.Hour))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r := start(t, s, func(c *config.Config) { c.Reboots.Groups["default"] = config.Group{Slots: 1, MaxUnavailable: "100%"} })
	status := r.eventually("it is named", func(s answer.Status) bool { return len(s.Problems) == 1 })
	if p := status.Problems[0]; p.Object != "slots/default" || !strings.Contains(p.Message, "gone holds a slot since") || !strings.Contains(p.Hint, "`hostler fleet slots release gone --group default --reason TEXT`") {
		t.Errorf("problem = %+v, want the holder and the command", p)
	}
	if metrics := r.get("/metrics"); !strings.Contains(metrics, "hostler_server_ignored_objects 0") || !strings.Contains(metrics, `hostler_server_slot_oldest_holder_seconds{group="default"} 72`) {
		t.Errorf("metrics = %s, want the age of the holder, and no ignored object", metrics)
	}
	const path = "/v1/fleet/slots/release"
	for body, want := range map[string]string{
		`{"id": "gone", "group": "default"}`:                             "400 say why with --reason",
		`{"id": "gone", "group": "default", "reason": " "}`:              "400 say why with --reason",
		`{"id": "", "group": "default", "reason": "x"}`:                  "400 name both",
		`{"id": "n1", "group": "default", "reason": "x"}`:                "404 `hostler fleet slots` lists",
		`{"id": "gone", "group": "other", "reason": "x"}`:                "404 name the group",
		`{"id": "gone", "group": "default", "reason": "x", "force": 1}`:  "400 unknown field",
		`{"id": "gone", "group": "default", "reason": "` + "\x1b" + `"}`: "400 invalid character",
	} {
		code, text := r.ask("POST", path, body)
		status, hint, _ := strings.Cut(want, " ")
		if fmt.Sprint(code) != status || !strings.Contains(text, hint) {
			t.Errorf("POST %s = %d %s, want %s", body, code, text, want)
		}
	}
	if code, text := r.ask("POST", path, `{"id": "gone", "group": "default", "reason": "disk broken"}`); code != 200 {
		t.Fatalf("release = %d %s, want 200", code, text)
	}
	g := decoded[answer.Slots](r, "/v1/fleet/slots").Groups[0]
	if len(g.Holders) != 0 || g.Releases[0].How != "Released" || g.Releases[0].Reason != "disk broken" || g.Releases[0].By == "" || g.Releases[0].Held == nil {
		t.Errorf("slots = %+v, want the release on record", g)
	}
	r.eventually("it is no problem any more", func(s answer.Status) bool { return len(s.Problems) == 0 })
}

// TestAReleaseSaysThatANodeIsStillCounted has a host that is off.
func TestAReleaseSaysThatANodeIsStillCounted(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	for name, is := range map[string]corev1.ConditionStatus{"n1": corev1.ConditionFalse, "n2": corev1.ConditionTrue, "n3": corev1.ConditionTrue} {
		ready(s, name, "a", is)
	}
	groups := slots.NewGroups(s, "")
	if _, err := groups.Change(t.Context(), "default", store.Term{}, func(state *slots.State) error {
		for _, name := range []string{"n1", "n2"} {
			node, err := s.Peek(store.Nodes, name)
			if err != nil {
				return err
			}
			state.Ask(slots.Client{ID: name, Type: slots.FleetLock}, slots.Policy{Slots: 2}, slots.Nodes{name: {Name: name, UID: node.GetUID()}}, time.Now())
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r := start(t, s, func(c *config.Config) { c.Reboots.Groups["default"] = config.Group{Slots: 2, MaxUnavailable: "10%"} })
	r.eventually("both hold slots", func(s answer.Status) bool {
		return len(s.Slots) == 1 && len(s.Slots[0].Holders) == 2 && s.Slots[0].Nodes == 3
	})
	const body = `{"id": %q, "group": "default", "reason": "x"}`
	const want = "no host of the group gets a slot. Nodes that are not Ready: 1 of 3; `maxUnavailable` is 10%. Delete Node n1 if its host is gone for good, or raise `maxUnavailable`"
	var done answer.Release
	if code, text := r.ask("POST", "/v1/fleet/slots/release", fmt.Sprintf(body, "n1")); code != 200 || json.Unmarshal([]byte(text), &done) != nil || done.ID != "n1" || done.Message != want {
		t.Errorf("release = %d %s, want the message %q", code, text, want)
	}
	if code, text := r.ask("POST", "/v1/fleet/slots/release", fmt.Sprintf(body, "n2")); code != 200 || strings.Contains(text, "message") {
		t.Errorf("release of a host that is Ready = %d %s, want no message", code, text)
	}
}

// TestADeletedNodeFreesItsSlot has holders whose slot cannot be released: one changes its Node all the time, and one
// has made it unreadable.
func TestADeletedNodeFreesItsSlot(t *testing.T) {
	for name, unreadable := range map[string]bool{"a Node that changes": false, "a Node that cannot be read": true} {
		t.Run(name, func(t *testing.T) {
			s := rewrites{memory.New(memory.Options{EndsLeases: true}), &atomic.Int32{}}
			ready(s.Store, "mallory", "a", corev1.ConditionTrue)
			node, err := s.Peek(store.Nodes, "mallory")
			if err != nil {
				t.Fatal(err)
			}
			if _, err := slots.NewGroups(s, "").Change(t.Context(), "default", store.Term{}, func(state *slots.State) error {
				state.Adopt(slots.Client{ID: "mallory", Type: slots.Agent, Request: "r1"}, slots.Nodes{"mallory": {Name: "mallory", UID: node.GetUID()}}, time.Now())
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			s.conflicts.Store(1 << 30)
			if unreadable {
				s.PutRaw(store.Nodes, "mallory", []byte("{"))
				s.conflicts.Store(0)
			}
			r := startOn(t, s, s.Store)
			r.eventually("it holds the slot", func(s answer.Status) bool { return len(group(s).Holders) == 1 })
			r.eventually("the collector runs", collects)
			code, text := r.ask("POST", "/v1/fleet/slots/release", `{"id":"mallory","group":"default","reason":"x"}`)
			if code != http.StatusConflict || !strings.Contains(text, "`sudo hostler fleet delete nodes/mallory`") {
				t.Errorf("release = %d %s, want 409 with the command that ends it", code, text)
			}
			if held := decoded[answer.Slots](r, "/v1/fleet/slots").Groups[0].Holders; len(held) != 1 {
				t.Errorf("holders after the release = %v, want mallory", held)
			}
			s.conflicts.Store(20)
			if code, text := r.ask("POST", "/v1/fleet/delete", fmt.Sprintf(`{"object":"nodes/mallory","cascade":"background","unreadable":%t}`, unreadable)); code != http.StatusOK {
				t.Errorf("deletion = %d %s, want 200", code, text)
			}
			r.eventually("the slot is free", func(s answer.Status) bool {
				g := group(s)
				return len(g.Holders) == 0 && len(g.Releases) == 1 && g.Releases[0].How == "NodeDeleted"
			})
		})
	}
}

// TestARestoredStoreNamesWhoIsAwaited has a restored store, and a host that gives no sign of life any more.
func TestARestoredStoreNamesWhoIsAwaited(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ready(s, "gone", "a", corev1.ConditionTrue)
	r := start(t, s)
	r.eventually("it leads and knows the Node", func(s answer.Status) bool {
		return controller(s, "reboots").State == answer.Leading && group(s).Nodes == 1
	})
	s.Restore(s.Snapshot())
	status := r.eventually("the host is named", func(s answer.Status) bool { return len(s.Problems) == 1 })
	if p := status.Problems[0]; p.Object != "slots/default" || !strings.HasSuffix(p.Message, ": gone") || !strings.Contains(p.Hint, "delete the Nodes") {
		t.Errorf("problem = %+v, want the host and what ends it", p)
	}
	s.Remove(store.Nodes, "gone")
	r.eventually("nobody is awaited", func(s answer.Status) bool { return len(s.Problems) == 0 && group(s).Nodes == 0 })
}

// TestOnlyRootReleasesSlots is TestOnlyRootDeletes for slots.
func TestOnlyRootReleasesSlots(t *testing.T) {
	c := config.Default()
	c.API.Socket = filepath.Join(t.TempDir(), "s")
	instance, err := server.New(server.Options{
		Config: c, Store: memory.New(memory.Options{}), Log: slog.New(slog.DiscardHandler), Getenv: func(string) string { return "" }, Unsetenv: func(string) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, by := range map[string]*unix.Ucred{"another user": {Uid: uint32(os.Geteuid() + 4711)}, "nobody known": nil} {
		r := httptest.NewRequest("POST", "/v1/fleet/slots/release", strings.NewReader(`{"id": "x", "group": "default", "reason": "x"}`))
		if by != nil {
			r = r.WithContext(listen.WithCredentials(r.Context(), by))
		}
		w := httptest.NewRecorder()
		instance.Routes().ServeHTTP(w, r)
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "sudo") {
			t.Errorf("release by %s = %d %s, want that it is refused", name, w.Code, w.Body)
		}
	}
}

func TestAReloadChangesGroups(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	address := freePort(t)
	r := start(t, s, func(c *config.Config) { c.Reboots.Listen = address })
	r.eventually("x has the slot", func(answer.Status) bool {
		return locks(http.DefaultClient, "http://"+address, preReboot, "x") == 200
	})
	next := r.config
	next.Reboots.Groups = config.Groups{"default": {Slots: 0, MaxUnavailable: "1"}, "workers": {Slots: 2, MaxUnavailable: "1"}}
	r.next = func() (config.Config, error) { return next, nil }
	r.signals <- unix.SIGHUP
	status := r.eventually("there are two groups", func(s answer.Status) bool { return len(s.Slots) == 2 && s.Slots[0].Slots == 0 })
	if g := group(status); len(g.Holders) != 1 || status.Slots[1].Name != "workers" {
		t.Errorf("slots = %+v, want that x keeps its slot", status.Slots)
	}
}

// TestFleetLockOverTLS has clients with and without a certificate.
func TestFleetLockOverTLS(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	authority, ca, err := lab.NewAuthority("fleet")
	if err != nil {
		t.Fatal(err)
	}
	var pairs []lab.Pair
	for _, use := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		pair, err := authority.Sign(lab.Leaf("n1", use, time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, pair)
	}
	files := config.RebootsTLS{Certificate: write("server.crt", pairs[0].Certificate), Key: write("server.key", pairs[0].Key)}
	client, err := tls.X509KeyPair(pairs[1].Certificate, pairs[1].Key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Certificate)
	with := func(certificates ...tls.Certificate) *http.Client {
		return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certificates}}}
	}
	for name, c := range map[string]struct {
		clientCA         string
		without, withOne int
	}{
		"all clients":             {"", 200, 200},
		"those with certificates": {write("ca.crt", ca.Certificate), 0, 200},
	} {
		t.Run(name, func(t *testing.T) {
			address := freePort(t)
			r := start(t, memory.New(memory.Options{EndsLeases: true}), func(config *config.Config) {
				config.Reboots.Listen, config.Reboots.TLS = address, files
				config.Reboots.TLS.ClientCA = c.clientCA
			})
			r.eventually("one with a certificate is served", func(answer.Status) bool {
				return locks(with(client), "https://"+address, preReboot, "n1") == c.withOne
			})
			if got := locks(with(), "https://"+address, preReboot, "n1"); got != c.without {
				t.Errorf("without a certificate = %d, want %d", got, c.without)
			}
			if got := locks(http.DefaultClient, "http://"+address, preReboot, "n1"); got == 200 {
				t.Error("it is served without TLS")
			}
		})
	}
}
