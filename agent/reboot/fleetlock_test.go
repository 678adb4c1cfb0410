package reboot_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

// TestAFleetLockServerIsAskedAsItsDocumentationSays has servers that refuse, grant and fail.
func TestAFleetLockServerIsAskedAsItsDocumentationSays(t *testing.T) {
	for name, c := range map[string]struct {
		code    int
		body    string
		granted bool
		message string
		silent  bool
	}{
		"agrees":             {200, "", true, "", false},
		"refuses":            {409, `{"kind": "failed_lock_semaphore_full", "value": "semaphore currently full"}`, false, "lock server: semaphore currently full", false},
		"is no such server":  {404, "<html>", false, "answers http://", true},
		"sends a long text":  {500, `{"value": "` + strings.Repeat("x", 100_000) + `"}`, false, "lock server", true},
		"names a kind alone": {500, `{"kind": "failed_lock"}`, false, "lock server: failed_lock", false},
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
			lock, err := reboot.NewFleetLock(base, reboot.LockID{Host: "node-1", Group: "web"})
			if err != nil {
				t.Fatal(err)
			}
			r := &reboot.Request{Step: controlplane.RebootWaiting}
			for range 2 { // the second call is too early for another request
				turn := lock.Turn(t.Context(), r, nil)
				if turn.Granted != c.granted || turn.Unanswered != c.silent || !strings.Contains(turn.Message, c.message) || len(turn.Message) > 400 {
					t.Errorf("Turn() = %+v, want granted %t, unanswered %t with %q", turn, c.granted, c.silent, c.message)
				}
			}
			if err := lock.Release(t.Context(), r); (err == nil) != c.granted {
				t.Errorf("Release() = %v, want an error: %t", err, !c.granted)
			}
			const params = ` true {"client_params":{"id":"node-1","group":"web"}}`
			if want := []string{"POST /base/v1/pre-reboot" + params, "POST /base/v1/steady-state" + params}; strings.Join(asked, "\n") != strings.Join(want, "\n") {
				t.Errorf("requests = %q, want %q", asked, want)
			}
			asked = nil
			for _, step := range []controlplane.RebootStep{controlplane.RebootGranted, controlplane.RebootDraining, controlplane.RebootRebooting} {
				r.Step = step
				if turn := lock.Turn(t.Context(), r, nil); turn.Granted != c.granted || turn.Lost != (c.code == 409) {
					t.Errorf("Turn() at step %s = %+v, want granted %t, lost %t", step, turn, c.granted, c.code == 409)
				}
			}
			if len(asked) != 3 {
				t.Errorf("requests = %q, want one at the start of each step that must not begin without the lock", asked)
			}
			r.Step = controlplane.RebootVerifying
			if turn := lock.Turn(t.Context(), r, nil); !turn.Granted || len(asked) != 3 {
				t.Errorf("Turn() after the reboot = %+v after %d requests, want no request", turn, len(asked))
			}
		})
	}
	gone, _ := url.Parse("http://127.0.0.1:1")
	lock, _ := reboot.NewFleetLock(gone, reboot.LockID{Host: "node-1", Group: "web"})
	if turn := lock.Turn(t.Context(), &reboot.Request{Step: controlplane.RebootWaiting}, nil); turn.Granted || turn.Lost || !turn.Unanswered || !strings.Contains(turn.Message, "does not answer") {
		t.Errorf("Turn() without a server = %+v, want that it does not answer", turn)
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	redirects := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer redirects.Close()
	moved, _ := url.Parse(redirects.URL)
	lock, _ = reboot.NewFleetLock(moved, reboot.LockID{Host: "node-1", Group: "web"})
	if turn := lock.Turn(t.Context(), &reboot.Request{Step: controlplane.RebootWaiting}, nil); turn.Granted || !turn.Unanswered || !strings.Contains(turn.Message, "redirects to "+elsewhere.URL) {
		t.Errorf("Turn() with a redirect = %+v, want that it is not followed", turn)
	}
	own := httptest.NewTLSServer(http.NotFoundHandler())
	defer own.Close()
	untrusted, _ := url.Parse(own.URL)
	lock, _ = reboot.NewFleetLock(untrusted, reboot.LockID{Host: "node-1", Group: "web"})
	if turn := lock.Turn(t.Context(), &reboot.Request{Step: controlplane.RebootWaiting}, nil); turn.Granted || !turn.Unanswered || !strings.Contains(turn.Message, "trust store of the host") {
		t.Errorf("Turn() with a CA of its own = %+v, want that it is not trusted, and what to do", turn)
	}
}

// TestTheLockServerGetsItsPassword checks that a wrong password is no reason to give up a slot.
func TestTheLockServerGetsItsPassword(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, password, _ := r.BasicAuth(); password != "s3cret" {
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = io.WriteString(w, `{"kind": "wrong_password", "value": "send the password"}`)
		}
	}))
	defer server.Close()
	base, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "password")
	for name, c := range map[string]struct {
		text, file string
		want       reboot.Turn
	}{
		"the password":     {"s3cret\n", file, reboot.Turn{Granted: true}},
		"another password": {"other", file, reboot.Turn{Message: "lock server: it requires a password: correct the one in " + file}},
		"no password":      {"s3cret", "", reboot.Turn{Message: "lock server: it requires a password: set reboot.lock.passwordFile"}},
		"no file":          {"s3cret", "/no/such/file", reboot.Turn{Message: "reboot.lock.passwordFile: open /no/such/file: no such file or directory", Unanswered: true}},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		lock, err := reboot.NewFleetLock(base, reboot.LockID{Host: "node-1", Group: "web", PasswordFile: c.file})
		if err != nil {
			t.Fatal(err)
		}
		if turn := lock.Turn(t.Context(), &reboot.Request{Step: controlplane.RebootDraining}, nil); turn != c.want {
			t.Errorf("Turn() with %s = %+v, want %+v", name, turn, c.want)
		}
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

// If the clock was an hour ahead, a file must not count as newer than the boot. Otherwise the host would reboot again
// and again.
func TestAFileFromTheFutureIsNotNew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "reboot-required")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	future := time.Now().Add(time.Hour)
	if err := os.Chtimes(file, future, future); err != nil {
		t.Fatal(err)
	}
	if wanted, _ := reboot.Sentinels([]string{file}, time.Now().Add(-time.Minute)); len(wanted) != 1 || wanted[0].New {
		t.Errorf("Sentinels() = %+v, want the file, and not as a new one", wanted)
	}
}

// TestAFileSystemThatIsSlowIsPendingForAMinute has checks that are late, each by itself: one after the other, they hold
// up a reboot for a minute only without giving its slot back.
func TestAFileSystemThatIsSlowIsPendingForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var takes atomic.Int64 // also read by checks that are late
		takes.Store(int64(3 * time.Second))
		files := reboot.Bounded{Find: func() (wanted, undecided []reboot.Finding) {
			time.Sleep(time.Duration(takes.Load()))
			return nil, nil
		}}
		for round, want := range []bool{true, true, true, true, true, true, false, false} {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			_, _, err := files.Check(ctx)
			cancel()
			if err == nil || files.Pending() != want {
				t.Errorf("Check() in round %d = %v, pending: %t, want %t", round, err, files.Pending(), want)
			}
			time.Sleep(8 * time.Second)
		}
		takes.Store(0)
		if _, _, err := files.Check(t.Context()); err != nil || files.Pending() {
			t.Errorf("Check() of a quick file system = %v, pending: %t", err, files.Pending())
		}
		takes.Store(int64(time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, _, err := files.Check(ctx); err == nil || !files.Pending() {
			t.Errorf("Check() = %v, pending: %t, want that a new fault is pending", err, files.Pending())
		}
		synctest.Wait()
		time.Sleep(time.Minute)
	})
}

// TestACheckThatHangsIsNotRepeated has a file system that does not answer for ten rounds.
func TestACheckThatHangsIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, hangs, checks := errors.New("late"), make(chan struct{}), atomic.Int32{}
		files := reboot.Bounded{Find: func() (wanted, undecided []reboot.Finding) {
			n := checks.Add(1)
			<-hangs
			return []reboot.Finding{{Source: fmt.Sprint("check ", n)}}, nil
		}}
		check := func() ([]reboot.Finding, error) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
			defer cancel()
			wanted, _, err := files.Check(ctx)
			return wanted, err
		}
		for range 10 {
			if wanted, err := check(); !errors.Is(err, late) || wanted != nil {
				t.Fatalf("Check() = %+v, %v, want that it is late", wanted, err)
			}
		}
		if n := checks.Load(); n != 1 {
			t.Errorf("%d checks are in progress, want one", n)
		}
		close(hangs)
		if wanted, err := check(); err != nil || len(wanted) != 1 || wanted[0].Source != "check 2" {
			t.Errorf("Check() = %+v, %v, want what is found now", wanted, err)
		}
	})
}

// folder is a folder of checks.
type folder struct {
	unscanned bool
	checks    []conditions.Check
	faults    []conditions.Fault
}

func (f folder) Scanned() bool              { return !f.unscanned }
func (f folder) Checks() []conditions.Check { return f.checks }
func (f folder) Faults() []conditions.Fault { return f.faults }

// Nobody loses a slot because the disk is slow while the agent starts.
func TestChecksAreNotKnownUntilTheirFolderIsScanned(t *testing.T) {
	slow := folder{unscanned: true, faults: []conditions.Fault{{Path: "/etc/hostler/reboot.d", Problem: "does not answer"}}}
	for age, pending := range map[time.Duration]bool{time.Second: true, time.Hour: false} {
		if wanted, undecided := reboot.Judge(slow, age); len(wanted) > 0 || len(undecided) != 1 || undecided[0].Source != "reboot.checks" || undecided[0].Pending != pending {
			t.Errorf("Judge() %v after the start of the agent = %+v, %+v, want one result that is not known, pending: %t", age, wanted, undecided, pending)
		}
	}
}

func TestWhatChecksSay(t *testing.T) {
	ran := time.Now()
	check := func(name string, answer status.Answer, at *time.Time) conditions.Check {
		return conditions.Check{Path: "/etc/hostler/reboot.d/" + name, Answer: answer, Message: "says " + name, User: "root", LastRun: at}
	}
	wanted, undecided := reboot.Judge(folder{checks: []conditions.Check{
		check("fine", status.Passed, &ran), check("kernel", status.Problem, &ran), check("hangs", status.TimedOut, &ran), check("new", status.NotRunYet, nil),
		check("denied", status.NotRun, nil),
		{Path: "/etc/hostler/reboot.d/open", Answer: status.NotRun, Faulty: true},
	}, faults: []conditions.Fault{{Path: "/etc/hostler/reboot.d/open", Problem: "users other than root can change it", Fix: "chmod"}}}, 0)
	if len(wanted) != 1 || wanted[0].String() != "says kernel (kernel)" {
		t.Errorf("wanted = %+v, want the check with code 1", wanted)
	}
	for i, want := range []reboot.Finding{
		{Source: "hangs", Message: "says hangs", Hint: "/etc/hostler/reboot.d/hangs: to run it manually: setpriv --reset-env /etc/hostler/reboot.d/hangs"},
		{Source: "new", Message: "it has not run since the agent started", Pending: true},
		{Source: "denied", Message: "says denied", Hint: "/etc/hostler/reboot.d/denied: to run it manually: setpriv --reset-env /etc/hostler/reboot.d/denied"},
		{Source: "open", Message: "users other than root can change it", Hint: "/etc/hostler/reboot.d/open: chmod"},
	} {
		if len(undecided) != 4 || undecided[i] != want {
			t.Errorf("undecided = %+v, want number %d to be %+v", undecided, i, want)
		}
	}
}
