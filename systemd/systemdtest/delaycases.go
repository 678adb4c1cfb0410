package systemdtest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/logindconf"
)

// putBack tests the removal of the drop-in, whether or not logind has read the files since.
func putBack(t *testing.T, r *rig) {
	dropIn := filepath.Join(r.Root(), systemd.DropInPath)
	for _, reread := range []bool{false, true} {
		r.raise()
		if err := os.Remove(dropIn); err != nil {
			t.Fatal(err)
		}
		if reread {
			r.rereadConfig()
			r.expectDelay(logindconf.DefaultDelay)
		}
		r.raise()
		r.rereadConfig()
		r.expectDelay(5 * time.Minute)
	}
}

// endsWithIt tests that, after other clients have withdrawn their requests, only hostler's value is
// left, whether or not logind has read the files since.
func endsWithIt(t *testing.T, r *rig) {
	const path = "/etc/systemd/logind.conf.d/99-kubelet.conf"
	for _, reread := range []bool{false, true} {
		r.write(path, "[Login]\nInhibitDelayMaxSec=600\n")
		r.rereadConfig()
		r.expectDelay(10 * time.Minute)
		if got, err := r.logind.RaiseMaxDelay(t.Context(), 5*time.Minute); err != nil || got != 10*time.Minute {
			t.Errorf("RaiseMaxDelay(5m) = %v, %v, want the 10m that another file sets", got, err)
		}
		if err := os.Remove(filepath.Join(r.Root(), path)); err != nil {
			t.Fatal(err)
		}
		if reread {
			r.rereadConfig()
			r.expectDelay(logindconf.DefaultDelay)
		}
		r.raise()
		r.expectDelay(5 * time.Minute)
		if files := r.logind.Files(); files.Effective != (logindconf.Setting{Max: 5 * time.Minute, Source: systemd.DropInPath}) {
			t.Errorf("Files().Effective = %+v, want 5m by hostler's own", files.Effective)
		}
		if err := r.logind.RestoreMaxDelay(t.Context()); err != nil {
			t.Fatalf("RestoreMaxDelay() = %v, want nil", err)
		}
	}
}

func torn(t *testing.T, r *rig) {
	const path = "/etc/systemd/logind.conf.d/10-torn.conf"
	r.write(path, "[Login]\nInhibitDelayMaxSec=7\n[Logi")
	r.rereadConfig()
	r.expectDelay(7 * time.Second)
	r.expectRefusal(7*time.Second, path)
	if err := os.Remove(filepath.Join(r.Root(), path)); err != nil {
		t.Fatal(err)
	}
	r.raise()
}

func notYetRead(t *testing.T, r *rig) {
	const path = "/etc/systemd/logind.conf.d/zzz.conf"
	r.raise()
	r.write(path, "[Login]\nInhibitDelayMaxSec=8\n")
	r.raise()
	if files := r.logind.Files(); files.Effective != (logindconf.Setting{Max: 8 * time.Second, Source: path}) {
		t.Errorf("Files().Effective = %+v, want 8s by %s", files.Effective, path)
	}
	r.rereadConfig()
	r.expectDelay(8 * time.Second)
	r.expectRefusal(8*time.Second, path)
}

func yields(t *testing.T, r *rig) {
	dropIn := filepath.Join(r.Root(), systemd.DropInPath)
	yield := func(want time.Duration, there bool) {
		t.Helper()
		for range 2 {
			if err := r.logind.YieldMaxDelay(t.Context()); err != nil {
				t.Fatalf("YieldMaxDelay() = %v, want nil", err)
			}
		}
		r.expectDelay(want)
		if _, err := os.Stat(dropIn); there != (err == nil) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Stat(drop-in) = %v after YieldMaxDelay(), want it there: %v", err, there)
		}
	}
	yield(logindconf.DefaultDelay, false)
	r.raise()
	yield(5*time.Minute, true) // no other client requested the delay
	r.write("/etc/systemd/logind.conf.d/99-kubelet.conf", "[Login]\nInhibitDelayMaxSec=120\n")
	yield(5*time.Minute, true) // another client requested only a shorter one
	r.write("/etc/systemd/logind.conf.d/99-kubelet.conf", "[Login]\nInhibitDelayMaxSec=600\n")
	yield(10*time.Minute, false)
}

// readsAlike tests that logindconf and logind read a file in the same way. Each case has another
// value, so that no value of an earlier case can match.
func readsAlike(t *testing.T, r *rig) {
	for i, text := range []string{
		"[Login]\nInhibitDelayMaxSec=%d\x00\x00\x00",
		"\ufeff[Login]\nInhibitDelayMaxSec=%d\n",
		"\x00\x00[Login]\nInhibitDelayMaxSec=%d",
		"[Login]\nInhibitDelayMaxSec=\nInhibitDelayMaxSec=%d",
		"[Login]\nInhibitDelayMaxSec=%d\nInhibitDelayMaxSec=",
		"[Login]\nInhibitDelayMaxSec=%d\nInhibitDelayMaxSec=soon",
		"[Login]\nInhibitDelayMaxSec=%d\n[Sleep]\nInhibitDelayMaxSec=1",
		"[Login]\nInhibitDelayMaxSec=1min \\\n# why\n %ds\n",
		"[Login]\r\nInhibitDelayMaxSec=%d\r\n",
		"[Login]\nnonsense\n=\n[\nInhibitDelayMaxSec=1\n[Login]\nInhibitDelayMaxSec=%d",
		"[Login]\nInhibitDelayMaxSec=\"%d\"\n",
		"InhibitDelayMaxSec=%d",
		"[Login]\nInhibitDelayMaxSec=%d\n[Logi",
		"[Login]\nInhibitDelayMaxSec=%d\nHandle\xff=1\nInhibitDelayMaxSec=1\n",
		"[Login]\n# \xff\nInhibitDelayMaxSec=%d\n",
		"  [Login]  \n\tInhibitDelayMaxSec  =  %d  \n",
		"[Login]\nInhibitDelayMaxSec=%d\n\n[]\nInhibitDelayMaxSec=1\n",
	} {
		const path = "/etc/systemd/logind.conf.d/zzz.conf"
		r.write("/etc/systemd/logind.conf.d/aaa.conf", fmt.Sprintf("[Login]\nInhibitDelayMaxSec=%d\n", 100+i))
		r.write(path, fmt.Sprintf(text, 10+i))
		want := r.logind.Files().Effective
		r.rereadConfig()
		r.eventually(func() bool {
			got, err := r.logind.MaxDelay(t.Context())
			return err == nil && got == want.Max
		}, "MaxDelay() = %v for %q", want.Max, text)
	}
}

func reportsDelay(t *testing.T, r *rig) {
	const path = "/etc/systemd/logind.conf.d/zzz.conf"
	r.raise()
	w := r.watch()
	r.write(path, "[Login]\nInhibitDelayMaxSec=8\n")
	w.expect(shutdown.Altered)
	r.rereadConfig()
	w.expect(shutdown.Altered)
	r.expectDelay(8 * time.Second)
	if err := os.Remove(filepath.Join(r.Root(), path)); err != nil {
		t.Fatal(err)
	}
	w.expect(shutdown.Altered)
	r.raise() // makes logind read them again
	w.expect(shutdown.Altered)
}

// reportsDelaySeenBetween tests that a change is reported if a caller has seen the old value
// between two checks, although nothing changed since the first check.
func reportsDelaySeenBetween(t *testing.T, r *rig) {
	const path, other = "/etc/systemd/logind.conf.d/aaa.conf", "/etc/systemd/logind.conf.d/aab.conf"
	r.raise()
	w := r.watch()
	r.write(other, "[Login]\n")
	w.expect(shutdown.Altered)
	// The next check is a second later, after all of this.
	r.write(path, "[Login") // torn: logind reads nothing after it
	r.rereadConfig()
	r.expectDelay(5 * time.Second)
	if got, err := r.logind.RaiseMaxDelay(t.Context(), 5*time.Minute); got != 5*time.Second || err == nil {
		t.Errorf("RaiseMaxDelay(5m) = %v, %v, want 5s and why", got, err)
	}
	if err := os.Remove(filepath.Join(r.Root(), path)); err != nil {
		t.Fatal(err)
	}
	r.rereadConfig()
	r.expectDelay(5 * time.Minute)
	w.expect(shutdown.Altered)
}

func reportsLocks(t *testing.T, r *rig) {
	w := r.watch()
	other := newLogind(t, r.Bed, systemd.LogindOptions{Who: "kubelet"})
	lock := r.lock(other)
	w.expect(shutdown.Altered)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	w.expect(shutdown.Altered)
}
