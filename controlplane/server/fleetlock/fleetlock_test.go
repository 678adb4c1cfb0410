package fleetlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/controllertest"
	"hostler.io/hostler/controlplane/controllers/podcache"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/server/fleetlock"
	"hostler.io/hostler/controlplane/slots"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/memory"
	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/internal/loop"
)

// rig is a FleetLock server on a store, in a bubble of synctest.
type rig struct {
	*testing.T
	store *memory.Store
	*fleetlock.Server
	policies reboots.Policies
	log      logtest.Book
}

func inBubble(t *testing.T, test func(*rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, store: memory.New(memory.Options{EndsLeases: true})}
		any, err := slots.ParsePart("100%")
		if err != nil {
			t.Fatal(err)
		}
		log, contact := slog.New(slog.DiscardHandler), &store.Contact{}
		r.policies = reboots.Policies{"default": {Group: "default", Slots: 1, MaxUnavailable: any}, "workers": {Group: "workers", Slots: 2, MaxUnavailable: any}}
		c := reboots.New(r.store, slots.NewGroups(r.store, ""), contact, podcache.New(), loop.NewSignal(), r.policies, nil, "server-1", log)
		r.Server = fleetlock.New(c, r.log.Logger())
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
		r.store.Put(store.Nodes, node)
		controllertest.Run(t,
			func(ctx context.Context) error { return contact.Run(ctx, r.store.Ping, func(error) {}) },
			func(ctx context.Context) error { return r.store.Follow(ctx, store.Nodes, store.AllChanges, c.Nodes()) },
		)
		synctest.Wait()
		test(r)
	})
}

// post sends a body, and returns the status and the kind of the answer.
func (r *rig) post(path, body string, change ...func(*http.Request)) (int, string) {
	r.Helper()
	request := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	request.Header.Set("fleet-lock-protocol", "true")
	for _, c := range change {
		c(request)
	}
	w := httptest.NewRecorder()
	r.ServeHTTP(w, request)
	var answer struct{ Kind, Value string }
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Kind == "" || answer.Value == "" {
		r.Errorf("POST %s = %s, want JSON with kind and value", path, w.Body)
	}
	return w.Code, answer.Kind
}

func body(id, group string) string {
	text, _ := json.Marshal(map[string]any{"client_params": map[string]string{"id": id, "group": group}})
	return string(text)
}

const lock, unlock = "/v1/pre-reboot", "/v1/steady-state"

// TestOnlyClientsWithThePasswordAreServed has local users that send no password, or a wrong one.
func TestOnlyClientsWithThePasswordAreServed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.PasswordFile = filepath.Join(t.TempDir(), "password")
		write := func(text string) {
			if err := os.WriteFile(r.PasswordFile, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		basic := func(password string) func(*http.Request) {
			return func(request *http.Request) { request.SetBasicAuth("zincati", password) }
		}
		code := func(path string, change ...func(*http.Request)) int {
			code, _ := r.post(path, body("n1", "default"), change...)
			return code
		}
		if got := code(lock, basic("")); got != http.StatusInternalServerError {
			t.Errorf("POST without a password file = %d, want 500", got)
		}
		write("s3cret\n")
		for _, path := range []string{lock, unlock, "/other"} {
			for name, change := range map[string]func(*http.Request){
				"no password": func(*http.Request) {}, "an empty password": basic(""), "the start of the password": basic("s3c"), "another password": basic("s3cre7"), "more than the password": basic("s3cret\n"),
				"the password as the user": func(request *http.Request) { request.SetBasicAuth("s3cret", "") }, "a bearer": func(request *http.Request) { request.Header.Set("Authorization", "Bearer s3cret") },
			} {
				if got := code(path, change); got != http.StatusUnauthorized {
					t.Errorf("POST %s with %s = %d, want 401", path, name, got)
				}
			}
		}
		if got := code(lock, basic("s3cret")); got != http.StatusOK {
			t.Errorf("POST with the password = %d, want 200", got)
		}
		write("next")
		if before, now := code(unlock, basic("s3cret")), code(unlock, basic("next")); before != http.StatusUnauthorized || now != http.StatusOK {
			t.Errorf("POST with the password of before and of now = %d, %d, want 401, 200", before, now)
		}
		if got := r.Answers(); got["wrong_password"] != 22 || got["granted"] != 1 || got["released"] != 1 {
			t.Errorf("Answers() = %v, want each refusal counted", got)
		}
	})
}

// TestTheProtocol follows clients through the steps of the protocol's documentation.
func TestTheProtocol(t *testing.T) {
	inBubble(t, func(r *rig) {
		for i, step := range []struct {
			path, body string
			code       int
			kind       string
		}{
			{unlock, body("c988d2509fdf5cdcbed39037c56406fb", "default"), 200, "released"},
			{lock, body("c988d2509fdf5cdcbed39037c56406fb", "default"), 200, "granted"},
			{lock, body("c988d2509fdf5cdcbed39037c56406fb", "default"), 200, "granted"},
			{lock, body("C988d2509fdf5cdcbed39037c56406fb", "default"), 409, "failed_lock_semaphore_full"}, // IDs are case-sensitive
			{unlock, body("C988d2509fdf5cdcbed39037c56406fb", "default"), 200, "released"},
			{lock, body("n1", "default"), 409, "failed_lock_semaphore_full"},
			{unlock, body("c988d2509fdf5cdcbed39037c56406fb", "default"), 200, "released"},
			{unlock, body("c988d2509fdf5cdcbed39037c56406fb", "default"), 200, "released"},
			{lock, body("c988d2509fdf5cdcbed39037c56406fb", "default"), 409, "failed_lock_queued"},
			{lock, body("n1", "default"), 200, "granted"},
			{lock, body("n1", "workers"), 200, "granted"},
			{lock, body("n2", "workers"), 200, "granted"},
			{lock, body("n3", "workers"), 409, "failed_lock_semaphore_full"},
		} {
			if code, kind := r.post(step.path, step.body); code != step.code || kind != step.kind {
				t.Errorf("step %d: POST %s %s = %d %s, want %d %s", i, step.path, step.body, code, kind, step.code, step.kind)
			}
		}
		if got := r.Answers(); got["granted"] != 5 || got["released"] != 4 || got["failed_lock_semaphore_full"] != 3 || got["failed_lock_queued"] != 1 {
			t.Errorf("Answers() = %v", got)
		}
	})
}

func TestRequestsThatAreRefused(t *testing.T) {
	header := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("fleet-lock-protocol", value) }
	}
	inBubble(t, func(r *rig) {
		for name, c := range map[string]struct {
			path, body string
			change     func(*http.Request)
			code       int
			kind       string
		}{
			"no header":             {lock, body("x", "default"), func(r *http.Request) { r.Header.Del("fleet-lock-protocol") }, 400, "missing_header"},
			"another header":        {lock, body("x", "default"), header("false"), 400, "missing_header"},
			"another method":        {lock, body("x", "default"), func(r *http.Request) { r.Method = http.MethodGet }, 405, "method_not_allowed"},
			"another path":          {"/v1/pre-reboot/", body("x", "default"), nil, 404, "not_found"},
			"no body":               {lock, "", nil, 400, "invalid_request"},
			"no JSON":               {lock, "id=x", nil, 400, "invalid_request"},
			"a list":                {lock, "[]", nil, 400, "invalid_request"},
			"no client_params":      {lock, "{}", nil, 400, "invalid_request"},
			"no id":                 {lock, `{"client_params": {"group": "default"}}`, nil, 400, "invalid_request"},
			"an empty id":           {lock, body("", "default"), nil, 400, "invalid_request"},
			"no group":              {lock, `{"client_params": {"id": "x"}}`, nil, 400, "invalid_request"},
			"an id that is no text": {lock, `{"client_params": {"id": 1, "group": "default"}}`, nil, 400, "invalid_request"},
			"an id with a newline":  {lock, body("x\ny", "default"), nil, 400, "invalid_request"},
			"an id of a terminal":   {unlock, body("x\x1b[2J", "default"), nil, 400, "invalid_request"},
			"two objects":           {lock, body("x", "default") + body("y", "default"), nil, 400, "invalid_request"},
			"a large body":          {lock, `{"client_params": {"id": "` + strings.Repeat("x", 5000), nil, 413, "invalid_request"},
			"a large end":           {lock, body("x", "default") + strings.Repeat(" ", 5000), nil, 413, "invalid_request"},
			"a group that is none":  {lock, body("x", "Default"), nil, 404, "unknown_group"},
			"the same to give back": {unlock, body("x", "../nodes"), nil, 404, "unknown_group"},
		} {
			if c.change == nil {
				c.change = func(*http.Request) {}
			}
			if code, kind := r.post(c.path, c.body, c.change); code != c.code || kind != c.kind {
				t.Errorf("%s: POST %s = %d %s, want %d %s", name, c.path, code, kind, c.code, c.kind)
			}
		}
		if code, kind := r.post(lock, `{"client_params": {"id": "x", "group": "default", "later": 1}, "later": 2}`); code != 200 || kind != "granted" {
			t.Errorf("fields of a later version = %d %s, want 200", code, kind)
		}
	})
}

// TestAClientMakesNoRequestsFail has clients that disconnect while they wait, and clients of a group that does not exist.
func TestAClientMakesNoRequestsFail(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.store.Inject(memory.Get, memory.Fault{Hang: true})
		r.post(lock, body("x", "default"), func(request *http.Request) {
			ctx, disconnect := context.WithCancel(request.Context())
			time.AfterFunc(100*time.Millisecond, disconnect)
			*request = *request.WithContext(ctx)
		})
		r.store.Heal()
		if code, kind := r.post(lock, body("x", "default")); code != 200 {
			t.Errorf("the next client = %d %s, want 200", code, kind)
		}
		if log := r.log.String(); log != "" {
			t.Errorf("a client that disconnects is logged as a failure:\n%s", log)
		}
		r.store.Inject(memory.Any, memory.Fault{Err: controlplane.ErrForbidden})
		for range 3 {
			r.post(lock, body("x", "default"))
			r.post(lock, body("x", "absent"))
		}
		if warned, again := r.log.Count("cannot answer clients"), r.log.Count("answering clients again"); warned != 1 || again != 0 {
			t.Errorf("logged failures %d times, and their end %d times, want one failure:\n%s", warned, again, &r.log)
		}
	})
}

func TestAStoreThatFails(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.store.Inject(memory.Any, memory.Fault{Err: controlplane.ErrForbidden})
		if code, kind := r.post(lock, body("x", "default")); code != 500 || kind != "internal_error" {
			t.Errorf("without rights = %d %s, want 500", code, kind)
		}
		r.store.Heal()
		r.store.Inject(memory.Any, memory.Fault{Err: errors.Join(controlplane.ErrUnavailable, errors.New("connection refused"))})
		if code, kind := r.post(lock, body("x", "default")); code != 503 || kind != "store_unavailable" {
			t.Errorf("without a store = %d %s, want 503", code, kind)
		}
		time.Sleep(10 * time.Second) // the server notices that the store does not answer
		if code, kind := r.post(lock, body("x", "default")); code != 503 || kind != "store_unavailable" {
			t.Errorf("without a store for long = %d %s, want 503", code, kind)
		}
		r.store.Heal()
		time.Sleep(4500 * time.Millisecond) // the Nodes are confirmed again, and no ping is sent in this moment
		r.store.Inject(memory.Create, memory.Fault{LoseAnswer: true, Times: 1})
		if code, _ := r.post(lock, body("x", "default")); code != 503 {
			t.Errorf("a lost answer = %d, want 503", code)
		}
		if code, kind := r.post(lock, body("x", "default")); code != 200 || kind != "granted" {
			t.Errorf("the same again = %d %s, want 200", code, kind)
		}
		if warned, again := r.log.Count("cannot answer clients"), r.log.Count("answering clients again"); warned != 1 || again != 1 {
			t.Errorf("logged failures %d times, and their end %d times, want each once:\n%s", warned, again, &r.log)
		}
	})
}

// TestAClientGetsTheReasonWhyItWaits restores a record with more holders than slots.
func TestAClientGetsTheReasonWhyItWaits(t *testing.T) {
	inBubble(t, func(r *rig) {
		for _, id := range []string{"x", "y"} {
			if code, kind := r.post(lock, body(id, "workers")); code != 200 {
				t.Fatalf("a client = %d %s, want 200", code, kind)
			}
		}
		one := r.policies["workers"]
		one.Slots = 1
		r.policies["workers"] = one
		r.store.Restore(r.store.Snapshot())
		time.Sleep(2 * time.Minute)
		if code, kind := r.post(lock, body("x", "workers")); code != 503 || kind != "store_restored" {
			t.Errorf("the same after a restore = %d %s, want 503 and the reason", code, kind)
		}
	})
}
