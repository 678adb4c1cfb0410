package reboot_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

// TestAFleetLockServerIsAskedAsItsDocumentationSays has one that refuses, one that agrees, and some that fail.
func TestAFleetLockServerIsAskedAsItsDocumentationSays(t *testing.T) {
	for name, c := range map[string]struct {
		code    int
		body    string
		granted bool
		message string
	}{
		"agrees":             {200, "", true, ""},
		"refuses":            {409, `{"kind": "failed_lock_semaphore_full", "value": "semaphore currently full"}`, false, "lock server: semaphore currently full"},
		"is no such server":  {404, "<html>", false, "answers http://"},
		"sends a long text":  {500, `{"value": "` + strings.Repeat("x", 100_000) + `"}`, false, "lock server"},
		"names a kind alone": {500, `{"kind": "failed_lock"}`, false, "lock server: failed_lock"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("fleet-lock-protocol")+" "+string(body))
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			base, err := url.Parse(server.URL + "/base/")
			if err != nil {
				t.Fatal(err)
			}
			lock, err := reboot.NewFleetLock(base, "node-1", "web")
			if err != nil {
				t.Fatal(err)
			}
			r := &reboot.Request{Step: controlplane.RebootWaiting}
			for range 2 { // the second one is too early to ask again
				turn := lock.Turn(t.Context(), r, nil)
				if turn.Granted != c.granted || !strings.Contains(turn.Message, c.message) || len(turn.Message) > 400 {
					t.Errorf("Turn() = %+v, want granted %t with %q", turn, c.granted, c.message)
				}
			}
			if err := lock.Release(t.Context(), r); (err == nil) != c.granted {
				t.Errorf("Release() = %v, want an error: %t", err, !c.granted)
			}
			const params = ` true {"client_params":{"id":"node-1","group":"web"}}`
			if want := []string{"POST /base/v1/pre-reboot" + params, "POST /base/v1/steady-state" + params}; strings.Join(asked, "\n") != strings.Join(want, "\n") {
				t.Errorf("requests = %q, want %q", asked, want)
			}
			r.Step = controlplane.RebootDraining
			if turn := lock.Turn(t.Context(), r, nil); !turn.Granted {
				t.Errorf("Turn() of a host that has its turn = %+v, want that it keeps it", turn)
			}
		})
	}
	gone, _ := url.Parse("http://127.0.0.1:1")
	lock, _ := reboot.NewFleetLock(gone, "node-1", "web")
	if turn := lock.Turn(t.Context(), &reboot.Request{Step: controlplane.RebootWaiting}, nil); turn.Granted || turn.Lost || !strings.Contains(turn.Message, "does not answer") {
		t.Errorf("Turn() without a server = %+v, want that it does not answer", turn)
	}
}

func TestFilesThatRequestAReboot(t *testing.T) {
	dir := t.TempDir()
	file, absent := filepath.Join(dir, "reboot-required"), filepath.Join(dir, "absent")
	for path, text := range map[string]string{file: "*** System restart required ***\n", file + ".pkgs": "linux-image-amd64\nlibc6\n"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		booted time.Time
		isNew  bool
	}{"from before the boot": {time.Now().Add(time.Hour), false}, "from after it": {time.Now().Add(-time.Hour), true}} {
		wanted, undecided := reboot.Sentinels([]string{absent, file}, c.booted)
		if len(wanted) != 1 || len(undecided) != 0 || wanted[0] != (reboot.Finding{Source: file, Message: "linux-image-amd64, libc6", New: c.isNew}) {
			t.Errorf("Sentinels() of a file %s = %+v, %+v", name, wanted, undecided)
		}
	}
}

func TestWhatChecksSay(t *testing.T) {
	ran := time.Now()
	check := func(name string, answer status.Answer, at *time.Time) conditions.Check {
		return conditions.Check{Path: "/etc/hostler/reboot.d/" + name, Answer: answer, Message: "says " + name, LastRun: at}
	}
	wanted, undecided := reboot.Judge([]conditions.Check{
		check("fine", status.Passed, &ran), check("kernel", status.Problem, &ran), check("hangs", status.TimedOut, &ran), check("new", status.NotRunYet, nil),
	}, []conditions.Fault{{Path: "/etc/hostler/reboot.d/open", Problem: "users other than root can change it"}})
	if len(wanted) != 1 || wanted[0].String() != "says kernel (kernel)" {
		t.Errorf("wanted = %+v, want the check with code 1", wanted)
	}
	if len(undecided) != 3 || undecided[0].Source != "hangs" || !undecided[1].Pending || undecided[2].Source != "open" {
		t.Errorf("undecided = %+v, want those that do not answer", undecided)
	}
}
