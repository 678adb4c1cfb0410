package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/server"
	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/loop"
)

// ticket stores an object of a person's own kind, with more metadata.
func ticket(s *memory.Store, name, metadata string) {
	s.PutRaw(store.Objects, "tickets/"+name, fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Ticket","metadata":{"name":%q,"uid":"uid-of-%s"%s},"spec":{"text":"disk\u001b[31m\u202e 7","big":12345678901234567890}}`, name, name, metadata))
}

func ownedBy(kind, name, uid string) string {
	version := "example.com/v1"
	if kind == "Node" {
		version = "v1"
	}
	return fmt.Sprintf(`,"ownerReferences":[{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q}]`, version, kind, name, uid)
}

// ask makes a request, and returns the status and the body.
func (r *replica) ask(method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://server"+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// collects reports whether the garbage collector leads and knows all objects.
func collects(s answer.Status) bool {
	followed := []string{store.Nodes.Name, store.Leases.Name, store.Events.Name, store.Objects.Name}
	return controller(s, garbagecollector.Name).State == answer.Leading && !slices.ContainsFunc(s.Loops, func(l loop.Health) bool {
		return slices.Contains(followed, l.Name) && l.LastSuccess == nil
	})
}

func TestObjectsAreListed(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	node := s.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	ticket(s, "t1", ownedBy("Node", "n1", string(node.GetUID())))
	ticket(s, "t2", `,"creationTimestamp":"2026-11-17T14:00:00Z","deletionTimestamp":"2026-11-17T15:00:00Z","finalizers":["example.com/f"]`)
	s.PutRaw(store.Objects, "tickets/broken", []byte("{"))
	s.PutRaw(store.Objects, "pods/n1/shop/web", []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"web"}}`))
	s.PutRaw(store.Events, "n1/e", []byte(`{"apiVersion":"v1","kind":"Event","metadata":{"namespace":"default","name":"e"}}`))
	r := start(t, s)
	list := decoded[answer.ObjectList](r, "/v1/fleet/objects?name=tickets")
	if len(list.Objects) != 3 || list.Objects[0].Name != "broken" || list.Objects[0].Problem != "unexpected end of JSON input" {
		t.Fatalf("tickets = %+v, want three, one that cannot be read", list)
	}
	if o := list.Objects[1]; o.Name != "t1" || !slices.Equal(o.Owners, []string{"nodes/n1"}) {
		t.Errorf("ticket = %+v, want its owner", o)
	}
	if o := list.Objects[2]; o.Created == nil || o.Deleted == nil || !slices.Equal(o.Finalizers, []string{"example.com/f"}) {
		t.Errorf("ticket = %+v, want its times and finalizers", o)
	}
	s.PutRaw(store.Events, "n1/f", []byte(`{"apiVersion":"v1","kind":"Event","metadata":{"namespace":"default","name":"f"},"type":"Warning","reason":"NodeGone","message":"gone\u001b[31m","count":3,"lastTimestamp":"2026-11-17T14:00:00Z"}`))
	if e := decoded[answer.ObjectList](r, "/v1/fleet/objects?name=events").Objects[1].Event; e == nil || *e != (answer.Event{Type: "Warning", Reason: "NodeGone", Message: "gone?[31m", Count: 3, LastSeen: time.Date(2026, 11, 17, 14, 0, 0, 0, time.UTC)}) {
		t.Errorf("Event = %+v, want what it says", e)
	}
	for kind, want := range map[string]string{"nodes": "n1", "leases": "", "events": "n1/e n1/f", "pods": "n1/shop/web"} {
		var names []string
		for _, o := range decoded[answer.ObjectList](r, "/v1/fleet/objects?name="+kind).Objects {
			names = append(names, o.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s = %q, want %q", kind, got, want)
		}
	}
}

func TestAnObjectIsShownWhole(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ticket(s, "t1", "")
	s.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	r := start(t, s)
	code, text := r.ask("GET", "/v1/fleet/objects?name=tickets/t1", "")
	if code != http.StatusOK || !strings.Contains(text, `"big":12345678901234567890`) || !strings.Contains(text, `disk\u001b[31m\u202e 7`) {
		t.Errorf("GET tickets/t1 = %d %s, want all fields, and nothing that moves a terminal", code, text)
	}
	if code, text := r.ask("GET", "/v1/fleet/objects?name=nodes/n1", ""); code != http.StatusOK || !strings.Contains(text, `"kind":"Node"`) {
		t.Errorf("GET nodes/n1 = %d %s, want the Node", code, text)
	}
}

func TestWhatCannotBeShownOrDeletedHasAHint(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ticket(s, "t1", "")
	s.PutRaw(store.Objects, "tickets/broken", []byte("{"))
	r := start(t, s)
	r.eventually("the collector runs", collects)
	for name, c := range map[string]struct {
		code    int
		message string
		hint    string
	}{
		"ticket":          {404, "there are no objects of kind ticket", "use one of events, leases, nodes, pods, tickets"},
		"ticket/t1":       {404, "there are no objects of kind ticket", "use one of events, leases, nodes, pods, tickets"},
		"tickets/broken":  {500, "tickets/broken cannot be read: unexpected end of JSON input", "fix or delete it in the store"},
		"tickets/none":    {404, "there is no object tickets/none", "hostler fleet get tickets"},
		"pods":            {404, "there are no objects of kind pods", "`status.pods`"},
		"nodes/none":      {404, "there is no object nodes/none", "hostler fleet get nodes"},
		"tickets/":        {400, "", "KIND/NAME"},
		"tickets/../t1":   {400, "invalid", "KIND/NAME"},
		"nodes/../t1":     {400, "invalid", "KIND/NAME"},
		"tickets/a/../t1": {400, "invalid", "KIND/NAME"},
		"../settings":     {400, "invalid", "KIND/NAME"},
		"events/n1":       {400, "invalid", "events/NODE/NAME"},
		"tickets\x1b[31m": {400, "", "KIND/NAME"},
	} {
		checked := func(how string, code int, text string) {
			t.Helper()
			var e hint.Error
			if err := json.Unmarshal([]byte(text), &e); err != nil || code != c.code || !strings.Contains(e.Message, c.message) || !strings.Contains(e.Hint, c.hint) || strings.Contains(e.Error(), "\x1b") {
				t.Errorf("%s %q = %d %s, want %d, %q and the hint %q", how, name, code, text, c.code, c.message, c.hint)
			}
		}
		code, text := r.ask("GET", "/v1/fleet/objects?name="+url.QueryEscape(name), "")
		checked("get", code, text)
		if !strings.Contains(name, "/") {
			continue
		}
		body, err := json.Marshal(answer.DeletionRequest{Object: name, Cascade: answer.Background})
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/v1/fleet/delete/plan", "/v1/fleet/delete"} {
			if name == "tickets/broken" && path == "/v1/fleet/delete/plan" {
				continue // see TestAnObjectThatCannotBeReadIsDeletedInTheBackground
			}
			code, text := r.ask("POST", path, string(body))
			checked("POST "+path, code, text)
		}
	}
	for body, want := range map[string]string{
		`{"object":"tickets/t1","cascade":"forground"}`:            "use background, foreground or orphan",
		`{"object":"tickets/t1"}`:                                  "use background, foreground or orphan",
		`{"object":"tickets","cascade":"background"}`:              "KIND/NAME",
		`{"object":"tickets/t1","cascade":"background","force":1}`: "unknown field",
		`{"object":"` + strings.Repeat("x", 8<<10) + `"}`:          "too large",
		`[]`: "read request", ``: "read request",
	} {
		if code, text := r.ask("POST", "/v1/fleet/delete", body); code != 400 || !strings.Contains(text, want) {
			t.Errorf("POST %.80s = %d %s, want 400 and %q", body, code, text, want)
		}
	}
	if _, err := s.Get(t.Context(), store.Objects, "tickets/t1"); err != nil {
		t.Errorf("the ticket has gone: %v", err)
	}
}

func TestADeletionIsOfWhatWasShown(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ready(s, "n1", "a", corev1.ConditionTrue)
	node, err := s.Get(t.Context(), store.Nodes, "n1")
	if err != nil {
		t.Fatal(err)
	}
	ticket(s, "t1", ownedBy("Node", "n1", string(node.GetUID())))
	ticket(s, "t2", ownedBy("Ticket", "t1", "uid-of-t1"))
	ticket(s, "other", "")
	r := start(t, s)
	r.eventually("the collector runs", collects)
	plan := func(object, cascade string) answer.Deletion {
		t.Helper()
		code, text := r.ask("POST", "/v1/fleet/delete/plan", fmt.Sprintf(`{"object":%q,"cascade":%q}`, object, cascade))
		var d answer.Deletion
		if err := json.Unmarshal([]byte(text), &d); code != http.StatusOK || err != nil {
			t.Fatalf("plan = %d %s", code, text)
		}
		return d
	}
	ofNode := plan("nodes/n1", answer.Background)
	var fates []string
	for _, b := range ofNode.Objects {
		fates = append(fates, fmt.Sprint(b.Depth, " ", b.Object, " ", b.Fate))
	}
	if want := []string{"0 nodes/n1 deleted", "1 tickets/t1 deleted", "2 tickets/t2 deleted"}; !slices.Equal(fates, want) {
		t.Errorf("plan = %q, want %q", fates, want)
	}
	shown := plan("tickets/t1", answer.Orphan)
	ticket(s, "t1", `,"labels":{"changed":"yes"}`)
	request := func(d answer.Deletion) (int, string) {
		t.Helper()
		body, err := json.Marshal(d.DeletionRequest)
		if err != nil {
			t.Fatal(err)
		}
		return r.ask("POST", "/v1/fleet/delete", string(body))
	}
	if code, text := request(shown); code != http.StatusConflict || !strings.Contains(text, "run the command again") {
		t.Errorf("deletion of an object that has changed = %d %s, want 409 and a hint", code, text)
	}
	if code, text := request(plan("tickets/t1", answer.Orphan)); code != http.StatusOK || !strings.Contains(text, `"requested":true`) {
		t.Fatalf("deletion = %d %s, want 200", code, text)
	}
	r.eventually("t1 has gone", func(answer.Status) bool {
		code, _ := r.ask("GET", "/v1/fleet/objects?name=tickets/t1", "")
		return code == 404
	})
	if o, err := s.Get(t.Context(), store.Objects, "tickets/t2"); err != nil || len(o.GetOwnerReferences()) != 0 {
		t.Errorf("the orphan is %+v, %v, want it without owners", o, err)
	}
	if r.log.Count("deletion requested") != 1 {
		t.Errorf("the log does not say who has requested the deletion:\n%s", &r.log)
	}
}

// TestAnObjectThatCannotBeReadIsDeletedInTheBackground also fixes such an object after the plan.
func TestAnObjectThatCannotBeReadIsDeletedInTheBackground(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	for _, name := range []string{"tickets/broken", "tickets/t1"} {
		s.PutRaw(store.Objects, name, []byte("{"))
	}
	r := start(t, s)
	r.eventually("the collector runs", collects)
	for _, cascade := range []string{answer.Foreground, answer.Orphan} {
		code, text := r.ask("POST", "/v1/fleet/delete/plan", fmt.Sprintf(`{"object":"tickets/broken","cascade":%q}`, cascade))
		if code != http.StatusBadRequest || !strings.Contains(text, "its dependents are not known: unexpected end of JSON input") || !strings.Contains(text, "--cascade=background") {
			t.Errorf("plan with cascade %s = %d %s, want it refused, and what to use", cascade, code, text)
		}
	}
	s.PutRaw(store.Objects, "tickets/whole", []byte(`{"apiVersion":"example.com/v1","kind":"Ticket","metadata":{"name":"whole","uid":"whole"}}`))
	_, text := r.ask("POST", "/v1/fleet/delete/plan", `{"object":"tickets/whole","cascade":"orphan"}`)
	if want := "objects that cannot be read may be dependents, too: tickets/broken, tickets/t1; the deletion waits until they are fixed or deleted"; !strings.Contains(text, want) {
		t.Errorf("plan beside objects that cannot be read = %s, want a warning", text)
	}
	request := func(object string) (plan answer.Deletion, body string) {
		t.Helper()
		code, text := r.ask("POST", "/v1/fleet/delete/plan", fmt.Sprintf(`{"object":%q,"cascade":"background"}`, object))
		if err := json.Unmarshal([]byte(text), &plan); code != http.StatusOK || err != nil {
			t.Fatalf("plan of %s = %d %s", object, code, text)
		}
		encoded, err := json.Marshal(plan.DeletionRequest)
		if err != nil {
			t.Fatal(err)
		}
		return plan, string(encoded)
	}
	plan, body := request("tickets/broken")
	if len(plan.Objects) != 1 || plan.Objects[0].Note != "cannot be read: unexpected end of JSON input" || len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0], "finalizers are ignored") {
		t.Errorf("plan = %+v, want the object alone, why, and a warning", plan)
	}
	_, fixed := request("tickets/t1")
	ticket(s, "t1", "")
	if code, text := r.ask("POST", "/v1/fleet/delete", fixed); code != http.StatusConflict {
		t.Errorf("deletion of an object that can be read now = %d %s, want 409", code, text)
	}
	if code, text := r.ask("POST", "/v1/fleet/delete", body); code != http.StatusOK {
		t.Errorf("deletion = %d %s, want 200", code, text)
	}
	if _, err := s.Get(t.Context(), store.Objects, "tickets/broken"); !errors.Is(err, controlplane.ErrNotFound) {
		t.Errorf("Get() = %v, want that it was removed", err)
	}
}

func TestADeletionWarnsOfWhatReturns(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	seconds := int32(3600)
	node := s.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	s.Put(store.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "dead"}})
	s.PutRaw(store.Leases, "n1", fmt.Appendf(nil, `{"metadata":{"name":"n1","uid":"l"%s},"spec":{"leaseDurationSeconds":%d}}`, ownedBy("Node", "n1", string(node.GetUID())), seconds))
	s.PutRaw(store.Objects, "pods/n1/shop/web", []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"shop","name":"web"}}`))
	r := start(t, s)
	r.eventually("the collector runs", collects)
	for object, want := range map[string]string{"nodes/n1": "run `hostler leave` there", "nodes/dead": "[]", "leases/n1": "counts the host as dead", "pods/n1/shop/web": "stops no pod"} {
		if code, text := r.ask("POST", "/v1/fleet/delete/plan", fmt.Sprintf(`{"object":%q,"cascade":"background"}`, object)); code != 200 || !strings.Contains(text, want) {
			t.Errorf("plan of %s = %d %s, want %q", object, code, text, want)
		}
	}
}

func TestTheGarbagePlanSaysWhatHoldsObjectsUp(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ticket(s, "due", ownedBy("Ticket", "none", "u"))
	s.PutRaw(store.Objects, "tickets/n/a", []byte(`{"apiVersion":"example.com/v1","kind":"Ticket","metadata":{"namespace":"n","name":"a","uid":"a"}}`))
	ticket(s, "undecided", ownedBy("Ticket", "a", "a"))
	ticket(s, "waits", `,"deletionTimestamp":"2026-11-17T15:00:00Z","finalizers":["example.com/f"]`)
	s.PutRaw(store.Objects, "tickets/broken", []byte("{"))
	s.Inject(memory.Delete, memory.Fault{Err: fmt.Errorf("disk full")})
	r := start(t, s)
	var p answer.GarbagePlan
	r.eventually("the collector tries", func(answer.Status) bool {
		p = decoded[answer.GarbagePlan](r, "/v1/fleet/gc/plan")
		return len(p.Facts) == 3 && strings.Contains(p.Facts[0].Reason, "disk full")
	})
	for i, want := range []answer.GarbageFact{
		{Object: "tickets/due", State: answer.Due, Action: "delete", Reason: "owner tickets/none does not exist"},
		{Object: "tickets/undecided", State: answer.Undecided, Reason: "in namespace n", Hint: "correct its ownerReferences"},
		{Object: "tickets/waits", State: answer.Waits, Reason: "example.com/f"},
	} {
		if got := p.Facts[i]; got.Object != want.Object || got.State != want.State || got.Action != want.Action || !strings.Contains(got.Reason, want.Reason) || !strings.Contains(got.Hint, want.Hint) {
			t.Errorf("fact = %+v, want %+v", got, want)
		}
	}
	if len(p.Unreadable) != 1 || p.Unreadable[0] != (answer.Problem{Object: "tickets/broken", Message: "unexpected end of JSON input", Hint: "fix or delete it in the store"}) || len(p.Kinds) != 0 || p.State != answer.Leading {
		t.Errorf("plan = %+v, want one object that cannot be read", p)
	}
}

// TestOneHostHidesNoProblemsOfOthers has a host with many Events that cannot be read, or whose owner is not known.
func TestOneHostHidesNoProblemsOfOthers(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	for i := range 30 {
		s.PutRaw(store.Events, fmt.Sprintf("mallory/a%d", i), []byte("{"))
		owned := fmt.Appendf(nil, `{"metadata":{"namespace":"default","name":"b%d","uid":"b%d"%s},"involvedObject":{}}`, i, i, ownedBy("Node", "mallory", ""))
		s.PutRaw(store.Events, fmt.Sprintf("mallory/b%d", i), owned)
	}
	s.PutRaw(store.Objects, "tickets/n/a", []byte(`{"apiVersion":"example.com/v1","kind":"Ticket","metadata":{"namespace":"n","name":"a","uid":"a"}}`))
	ticket(s, "undecided", ownedBy("Ticket", "a", "a"))
	s.PutRaw(store.Objects, "tickets/broken", []byte("{"))
	r := start(t, s)
	status := r.eventually("the collector decides about all", func(s answer.Status) bool {
		return len(s.Problems) >= 30+20+1 && slices.ContainsFunc(s.Problems, func(p answer.Problem) bool { return p.Object == "tickets/undecided" })
	})
	var first []string
	for _, p := range status.Problems[:3] {
		first = append(first, p.Object)
	}
	if want := "[events/mallory/a0 tickets/broken tickets/undecided]"; fmt.Sprint(first) != want {
		t.Errorf("the first problems are %v, want %s", first, want)
	}
}

// discovering is a store with kinds that are known at run time only: one that can be read, one that
// cannot, and two that the server has no right to read.
type discovering struct{ *memory.Store }

func (d discovering) Kinds(context.Context) ([]store.Kind, func(store.Kind) bool, error) {
	kind := func(name, kind string) store.Kind {
		return store.Kind{Name: name, GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: kind}, New: func() store.Object { return &metav1.PartialObjectMetadata{} }}
	}
	return []store.Kind{kind("tickets", "Ticket"), kind("disks", "Disk"), kind("cables", "Cable"), kind("wires", "Wire")}, func(store.Kind) bool { return false }, nil
}

func (d discovering) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	switch kind.Name {
	case "disks":
		return errors.New("conversion webhook failed")
	case "cables", "wires":
		return fmt.Errorf("follow %s: %w: cannot watch", kind.Name, controlplane.ErrForbidden)
	}
	return d.Store.Follow(ctx, kind, scope, to)
}

func TestKindsThatCannotBeListedAreNamed(t *testing.T) {
	s := memory.New(memory.Options{})
	r := startOn(t, discovering{s}, s)
	status := r.eventually("they are named", func(s answer.Status) bool {
		return len(s.Problems) == 2 && strings.HasPrefix(s.Problems[1].Object, "cables and ")
	})
	plan := decoded[answer.GarbagePlan](r, "/v1/fleet/gc/plan")
	for _, problems := range [][]answer.Problem{status.Problems, plan.Kinds} {
		if len(problems) != 2 || problems[0].Object != "disks" || !strings.Contains(problems[0].Message, "cannot be listed, so objects that such objects own stay: conversion webhook failed") || !strings.Contains(problems[0].Hint, "conversion webhook") {
			t.Errorf("problems = %+v, want the kind, why, and what to do", problems)
		}
		if p := problems[1]; p.Object != "cables and other kinds: 1" || !strings.Contains(p.Message, "no right to list and watch them") || !strings.Contains(p.Message, "cannot watch") || !strings.Contains(p.Hint, "server-rbac-garbage-collector.yaml") {
			t.Errorf("problem = %+v, want the kinds without a right, and the manifest that gives it", p)
		}
	}
}

// cluster is a store like an API server, with tickets in namespaces, and disks without.
type cluster struct{ *memory.Store }

func (cluster) kind(name, kind string) store.Kind {
	return store.Kind{Name: name, GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: kind}, New: func() store.Object { return &metav1.PartialObjectMetadata{} }}
}

func (c cluster) tickets() store.Kind {
	k := c.kind("tickets", "Ticket")
	k.NameOf = func(o store.Object) string { return o.GetNamespace() + "/" + o.GetName() }
	return k
}

func (c cluster) Kinds(context.Context) ([]store.Kind, func(store.Kind) bool, error) {
	return []store.Kind{c.tickets(), c.kind("disks", "Disk")}, func(store.Kind) bool { return false }, nil
}

// TestAnOwnerThatAnObjectOfAClusterCannotHaveIsAnEventOfBoth has an object without a namespace and an owner in
// one.
func TestAnOwnerThatAnObjectOfAClusterCannotHaveIsAnEventOfBoth(t *testing.T) {
	s := memory.New(memory.Options{})
	c := cluster{s}
	s.Put(c.tickets(), &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "a", UID: "a"}})
	s.Put(c.kind("disks", "Disk"), &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "d", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "example.com/v1", Kind: "Ticket", Name: "a", UID: "a"},
	}}})
	r := startOn(t, c, s)
	r.eventually("both are named", func(answer.Status) bool {
		text := r.events.published()
		return strings.Contains(text, "Disk/d Warning OwnerRefInvalidNamespace: owner tickets/a with UID a: it is in namespace n") &&
			strings.Contains(text, "Ticket/a Warning OwnerRefInvalidNamespace: disks/d refers to this owner: it is in namespace n")
	})
}

func TestObjectsOfKubernetesAreLeftToKubectl(t *testing.T) {
	s := memory.New(memory.Options{})
	r := start(t, s)
	if code, text := r.ask("GET", "/v1/fleet/objects?name=nodes", ""); code != 400 || !strings.Contains(text, "kubectl get") {
		t.Errorf("get = %d %s, want 400 and a hint", code, text)
	}
	if code, text := r.ask("POST", "/v1/fleet/delete/plan", `{"object":"nodes/n1","cascade":"orphan"}`); code != 400 || !strings.Contains(text, "kubectl delete --cascade=orphan") {
		t.Errorf("delete = %d %s, want 400 and a hint", code, text)
	}
}

func TestAServerWithoutTheCollectorDeletesNothing(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ticket(s, "t1", "")
	r := start(t, s, func(c *config.Config) { c.Controllers = []string{"*", "-" + garbagecollector.Name} })
	if code, text := r.ask("POST", "/v1/fleet/delete", `{"object":"tickets/t1","cascade":"background"}`); code != 400 || !strings.Contains(text, "does not run on this server") {
		t.Errorf("delete = %d %s, want 400 and why", code, text)
	}
	if code, text := r.ask("GET", "/v1/fleet/objects?name=tickets", ""); code != 200 || !strings.Contains(text, `"t1"`) {
		t.Errorf("get = %d %s, want the ticket", code, text)
	}
}

// TestOnlyRootDeletes lists what other users may request: a mistake in the routes would allow
// anybody to delete objects.
func TestOnlyRootDeletes(t *testing.T) {
	s := memory.New(memory.Options{EndsLeases: true})
	ticket(s, "t1", "")
	c := config.Default()
	c.API.Socket = filepath.Join(t.TempDir(), "s")
	instance, err := server.New(server.Options{
		Config: c, Store: s, Log: slog.New(slog.DiscardHandler), Getenv: func(string) string { return "" }, Unsetenv: func(string) error { return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	const body = `{"object":"tickets/t1","cascade":"background"}`
	for path, may := range map[string]bool{"/v1/fleet/delete": false, "/v1/fleet/delete/plan": true} {
		for name, by := range map[string]*unix.Ucred{"another user": {Uid: uint32(os.Geteuid() + 4711)}, "nobody known": nil} {
			r := httptest.NewRequest("POST", path, strings.NewReader(body))
			if by != nil {
				r = r.WithContext(listen.WithCredentials(r.Context(), by))
			}
			w := httptest.NewRecorder()
			instance.Routes().ServeHTTP(w, r)
			if (w.Code == http.StatusForbidden && strings.Contains(w.Body.String(), "sudo")) == may {
				t.Errorf("POST %s by %s = %d %s, want it allowed: %t", path, name, w.Code, w.Body, may)
			}
		}
	}
	if _, err := s.Get(t.Context(), store.Objects, "tickets/t1"); err != nil {
		t.Errorf("the ticket has gone: %v", err)
	}
}

// hangsForOthers is a store in which lists of nobody but root end.
type hangsForOthers struct {
	*memory.Store
	hangs chan struct{}
}

// Follow implements store.Store.
func (s hangsForOthers) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	if !listen.IsOwn(ctx) {
		close(s.hangs)
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return s.Store.Follow(ctx, kind, scope, to)
}

// TestListsOfOthersDoNotDelayRoot has a list of a member of the group that does not end.
func TestListsOfOthersDoNotDelayRoot(t *testing.T) {
	s := hangsForOthers{memory.New(memory.Options{EndsLeases: true}), make(chan struct{})}
	reader := server.NewReader(s)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- reader.List(listen.WithCredentials(ctx, &unix.Ucred{Uid: 65534}), "nodes") }()
	<-s.hangs
	if err := reader.List(listen.WithCredentials(t.Context(), &unix.Ucred{}), "nodes"); err != nil {
		t.Errorf("List() for root = %v", err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("List() for others = nil, want that it has not ended before")
	}
}

// rewrites is a store in which a host changes its Node before each of the first changes and deletions.
type rewrites struct {
	*memory.Store
	conflicts *atomic.Int32
}

// Update implements store.Store.
func (s rewrites) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	if name == "mallory" && s.conflicts.Add(-1) >= 0 {
		return nil, controlplane.ErrConflict
	}
	return s.Store.Update(ctx, kind, name, pre, edit)
}

// Delete implements store.Store.
func (s rewrites) Delete(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, policy metav1.DeletionPropagation) error {
	if s.conflicts.Add(-1) >= 0 {
		return controlplane.ErrConflict
	}
	return s.Store.Delete(ctx, kind, name, pre, policy)
}

// TestAHostThatChangesItsNodeAllTheTimeIsDeleted has a Node that changes after each plan, and before each deletion.
func TestAHostThatChangesItsNodeAllTheTimeIsDeleted(t *testing.T) {
	s := rewrites{memory.New(memory.Options{EndsLeases: true}), &atomic.Int32{}}
	ready(s.Store, "mallory", "a", corev1.ConditionTrue)
	r := startOn(t, s, s.Store)
	r.eventually("the collector runs", collects)
	_, plan := r.ask("POST", "/v1/fleet/delete/plan", `{"object":"nodes/mallory","cascade":"background"}`)
	var d answer.Deletion
	if err := json.Unmarshal([]byte(plan), &d); err != nil {
		t.Fatal(err, plan)
	}
	s.Edit(store.Nodes, "mallory", func(o store.Object) { o.SetLabels(map[string]string{"changed": "yes"}) })
	s.conflicts.Store(20)
	body, err := json.Marshal(d.DeletionRequest)
	if err != nil {
		t.Fatal(err)
	}
	if code, text := r.ask("POST", "/v1/fleet/delete", string(body)); code != http.StatusOK {
		t.Errorf("deletion = %d %s, want 200", code, text)
	}
	s.PutRaw(store.Nodes, "mallory", []byte("{"))
	s.conflicts.Store(20)
	if code, text := r.ask("POST", "/v1/fleet/delete", `{"object":"nodes/mallory","cascade":"background","unreadable":true}`); code != http.StatusOK {
		t.Errorf("deletion of a Node that cannot be read = %d %s, want 200", code, text)
	}
}

// busy is a store in which a host changes its Node before each change of a server.
type busy struct{ *memory.Store }

// Update implements store.Store.
func (s busy) Update(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, edit func(store.Object) error) (store.Object, error) {
	if kind.Name == store.Nodes.Name {
		return nil, controlplane.ErrConflict
	}
	return s.Store.Update(ctx, kind, name, pre, edit)
}

// TestANodeThatItsHostKeepsIsDeletedInTheBackground has deletions of a Node that never end, as its host changes it.
func TestANodeThatItsHostKeepsIsDeletedInTheBackground(t *testing.T) {
	for cascade, policy := range map[string]metav1.DeletionPropagation{
		answer.Foreground: metav1.DeletePropagationForeground, answer.Orphan: metav1.DeletePropagationOrphan,
	} {
		s := memory.New(memory.Options{EndsLeases: true})
		ready(s, "mallory", "a", corev1.ConditionTrue)
		if err := s.Delete(t.Context(), store.Nodes, "mallory", store.Preconditions{}, policy); err != nil {
			t.Fatal(err)
		}
		r := startOn(t, busy{s}, s)
		var p answer.GarbagePlan
		r.eventually("the collector tries", func(s answer.Status) bool {
			p = decoded[answer.GarbagePlan](r, "/v1/fleet/gc/plan")
			return len(p.Facts) == 1 && controller(s, garbagecollector.Name).Conflicts > 0
		})
		if want := "`hostler fleet delete nodes/mallory --cascade=background`"; !strings.Contains(p.Facts[0].Hint, want) {
			t.Errorf("hint of the %s deletion = %q, want %s", cascade, p.Facts[0].Hint, want)
		}
		request := `{"object":"nodes/mallory","cascade":"background","uid":"another","version":"1"}`
		if code, text := r.ask("POST", "/v1/fleet/delete", request); code != http.StatusOK {
			t.Errorf("deletion in the background = %d %s, want 200", code, text)
		}
		if _, err := s.Get(t.Context(), store.Nodes, "mallory"); !errors.Is(err, controlplane.ErrNotFound) {
			t.Errorf("Get() = %v after the %s deletion, want that the Node was removed", err, cascade)
		}
	}
}

// replaced is a store in which a host stores another Node before each of the first deletions: one with another UID, or
// one that cannot be read.
type replaced struct {
	*memory.Store
	left *atomic.Int32
}

// Delete implements store.Store.
func (s replaced) Delete(ctx context.Context, kind store.Kind, name string, pre store.Preconditions, policy metav1.DeletionPropagation) error {
	value := "{"
	if left := s.left.Add(-1); left >= 0 {
		if left%2 == 0 {
			value = fmt.Sprintf(`{"apiVersion":"v1","kind":"Node","metadata":{"name":%q,"uid":"u%d"}}`, name, left)
		}
		s.PutRaw(kind, name, []byte(value))
	}
	return s.Store.Delete(ctx, kind, name, pre, policy)
}

// TestAHostThatReplacesItsNodeAllTheTimeIsDeleted has a Node that is another one at each deletion, or cannot be read.
func TestAHostThatReplacesItsNodeAllTheTimeIsDeleted(t *testing.T) {
	for _, left := range []int32{1, 2} {
		for _, request := range []string{
			`{"object":"nodes/mallory","cascade":"background","uid":"another","version":"1"}`,
			`{"object":"nodes/mallory","cascade":"background","unreadable":true}`,
		} {
			s := replaced{memory.New(memory.Options{EndsLeases: true}), &atomic.Int32{}}
			ready(s.Store, "mallory", "a", corev1.ConditionTrue)
			r := startOn(t, s, s.Store)
			r.eventually("the collector runs", collects)
			s.left.Store(left)
			if code, text := r.ask("POST", "/v1/fleet/delete", request); code != http.StatusOK {
				t.Errorf("deletion of a Node that was replaced, %s = %d %s, want 200", request, code, text)
			}
		}
	}
}

// TestOthersAreAnsweredOneAtATime has three callers, of whom one is root. The answer to the first one takes long.
func TestOthersAreAnsweredOneAtATime(t *testing.T) {
	synctest.Test(t, othersAreAnsweredOneAtATime)
}

func othersAreAnsweredOneAtATime(t *testing.T) {
	began, goOn, ended := make(chan uint32, 3), make(chan struct{}), make(chan struct{}, 3)
	handler := server.InTurn(func(r *http.Request) (any, error) {
		uid := listen.Peer(r.Context()).Uid
		began <- uid
		if uid != 0 {
			<-goOn
		}
		return nil, nil
	})
	ask := func(uid uint32) {
		r := httptest.NewRequestWithContext(listen.WithCredentials(t.Context(), &unix.Ucred{Uid: uid}), "GET", "/", nil)
		handler.ServeHTTP(httptest.NewRecorder(), r)
		ended <- struct{}{}
	}
	go ask(65533)
	if uid := <-began; uid != 65533 {
		t.Fatalf("%d is answered, want 65533", uid)
	}
	go ask(65534)
	go ask(0)
	if uid := <-began; uid != 0 {
		t.Errorf("%d is answered, want root", uid)
	}
	<-ended
	synctest.Wait() // 65534 waits for its turn
	select {
	case uid := <-began:
		t.Errorf("%d is answered, too", uid)
	default:
	}
	close(goOn)
	<-ended
	<-ended
}

// TestManyScrapesComputeOneStatus has many callers at once, who must not keep the controllers from their work.
func TestManyScrapesComputeOneStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shared server.Shared
		computed := 0
		ask := func() {
			shared.Get(func(time.Time) answer.Status {
				computed++
				return answer.Status{}
			})
		}
		var callers sync.WaitGroup
		for range 32 {
			callers.Go(func() {
				for range 10 {
					ask()
				}
			})
		}
		callers.Wait()
		if computed != 1 {
			t.Errorf("the status was computed %d times at once, want once", computed)
		}
		time.Sleep(time.Second)
		if ask(); computed != 2 {
			t.Errorf("the status was computed %d times after a second, want twice", computed)
		}
	})
}
