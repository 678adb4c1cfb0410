//go:build integration

package systemd_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd"
	"hostler.io/hostler/systemd/systemdtest"
	"hostler.io/hostler/test/lab"
)

func TestMain(m *testing.M) {
	lab.Main(m, lab.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
}

// realBed is a real systemd-logind on a real dbus-daemon.
type realBed struct {
	login *lab.Login
	seen  int // number of starts that AwaitDown has returned
}

func newRealBed(t *testing.T) *realBed {
	t.Helper()
	// logind would restore a scheduled shutdown of an earlier logind.
	check(t, os.RemoveAll("/run/systemd/shutdown"))
	return &realBed{login: lab.LoginFor(t, lab.LoginOptions{})}
}

func (b *realBed) Address() string { return "unix:path=" + lab.BusSocket }
func (b *realBed) Root() string    { return "/" }

func (b *realBed) KillLogind(t testing.TB) { check(t, b.login.Logind.Kill()) }

func (b *realBed) StartLogind(t testing.TB) { check(t, b.login.StartLogind(context.Background())) }

func (b *realBed) KillBus(t testing.TB) {
	check(t, errors.Join(b.login.Bus.Kill(), b.login.Logind.Kill()))
}

func (b *realBed) StartBus(t testing.TB) {
	check(t, errors.Join(b.login.StartBus(context.Background()), b.login.StartLogind(context.Background())))
}

func (b *realBed) AwaitDown(t testing.TB) time.Time {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if started := b.login.Manager.StartedUnits(); len(started) > b.seen {
			b.seen++
			return started[b.seen-1].Time
		}
	}
	t.Fatal("logind has not brought the system down")
	return time.Time{}
}

func (b *realBed) AbortShutdown(t testing.TB) { check(t, b.login.Manager.CancelJobs()) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLogindOverTheRealOne(t *testing.T) {
	systemdtest.Run(t, func(t *testing.T) systemdtest.Bed { return newRealBed(t) })
}

func TestManagerOverThePrivateSocket(t *testing.T) {
	bed := newRealBed(t)
	check(t, bed.login.Bus.Kill())
	manager := systemd.NewManager(lab.PrivateSocket)
	if got, err := manager.Stopping(t.Context()); got || err != nil {
		t.Errorf("Stopping() = %v, %v, want false", got, err)
	}
	if got, err := manager.StartedAt(t.Context()); err != nil || time.Since(got) > time.Hour {
		t.Errorf("StartedAt() = %v, %v, want when the bed was started", got, err)
	}
	bed.login.Manager.SetProperty("SystemState", "stopping")
	if got, err := manager.Stopping(t.Context()); !got || err != nil {
		t.Errorf("Stopping() = %v, %v, want true", got, err)
	}
}

func TestManagerReportsUnits(t *testing.T) {
	bed := newRealBed(t)
	bed.login.Manager.SetUnit("hostler.service", map[string]any{
		"UnitFileState": "enabled", "FragmentPath": "/usr/lib/systemd/system/hostler.service", "DropInPaths": []string{"/etc/a.conf"}, "NeedDaemonReload": true,
		"Before": []string{"shutdown.target"}, "After": []string{"containerd.service", "libpod-d.scope"}, "JobTimeoutUSec": uint64(math.MaxUint64),
		"Type": "notify", "NotifyAccess": "main", "TimeoutStopUSec": uint64(30_000_000), "FileDescriptorStoreMax": uint32(2), "MainPID": uint32(812),
	})
	bed.login.Manager.SetUnit("reboot.target", map[string]any{"JobTimeoutUSec": uint64(1_800_000_000), "ActiveState": "inactive"})
	bed.login.Manager.SetUnit("cri-containerd-a.scope", map[string]any{"Before": []string{"hostler.service", "shutdown.target"}})
	bed.login.Manager.SetUnit("libpod-b.scope", map[string]any{"Before": []string{"shutdown.target"}})
	bed.login.Manager.SetUnit("libpod-c.scope", map[string]any{"ActiveState": "failed"})
	bed.login.Manager.SetUnit("session-1.scope", nil)
	check(t, bed.login.Bus.Kill())
	manager := systemd.NewManager(lab.PrivateSocket)

	bed.login.Manager.SetUnit("libpod-d.scope", nil) // its order is only in hostler.service
	var got []systemd.Unit
	var scopes map[string]bool
	var scopesErr error
	check(t, manager.Ask(t.Context(), func(ctx context.Context, talk *systemd.Talk) {
		got = talk.Units(ctx, "hostler.service", "reboot.target", "none.service")
		scopes, scopesErr = talk.Scopes(ctx, "hostler.service", "cri-containerd-*.scope", "libpod-*.scope")
	}))
	want := []systemd.Unit{
		{
			Name: "hostler.service", LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled",
			FragmentPath: "/usr/lib/systemd/system/hostler.service", DropInPaths: []string{"/etc/a.conf"}, NeedDaemonReload: true,
			Before: []string{"shutdown.target"}, After: []string{"containerd.service", "libpod-d.scope"},
			Type: "notify", NotifyAccess: "main", TimeoutStop: 30 * time.Second, FileDescriptorStoreMax: 2, MainPID: 812, CanStart: true,
		},
		{Name: "reboot.target", LoadState: "loaded", ActiveState: "inactive", Before: []string{}, After: []string{}, JobTimeout: 30 * time.Minute, CanStart: true},
		{Name: "none.service", LoadState: "not-found", ActiveState: "inactive", Before: []string{}, After: []string{}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("Units() = %+v, want %+v", got, want)
	}
	if want := map[string]bool{"cri-containerd-a.scope": true, "libpod-b.scope": false, "libpod-d.scope": true}; scopesErr != nil || !maps.Equal(scopes, want) {
		t.Errorf("Scopes() = %v, %v, want %v", scopes, scopesErr, want)
	}
	const template = "/etc/systemd/system/podman-compose@.service"
	for name, unit := range map[string]map[string]any{
		"web.service":                     {"UnitFileState": "generated", "ActiveState": "active"},
		"masked.service":                  {"LoadState": "masked", "UnitFileState": "masked", "ActiveState": "inactive", "WantedBy": []string{"default.target"}},
		"until-then.service":              {"UnitFileState": "enabled-runtime", "WantedBy": []string{"default.target"}},
		"pod.service":                     {"UnitFileState": "generated", "WantedBy": []string{"multi-user.target"}},
		"podman-compose@nobodys.service":  {"UnitFileState": "disabled", "FragmentPath": template},
		"podman-compose@enabled.service":  {"UnitFileState": "enabled", "FragmentPath": template},
		"podman-compose@required.service": {"UnitFileState": "static", "FragmentPath": template, "RequiredBy": []string{"shop.target"}},
		"podman-compose@own.service":      {"UnitFileState": "disabled", "FragmentPath": "/etc/systemd/system/podman-compose@own.service"},
	} {
		bed.login.Manager.SetUnit(name, unit)
	}
	units, err := manager.UnitsThatAre(t.Context(), "hostler.service", "web.service", "pod.service", "masked.service", "until-then.service", "none.service", "no name of a unit",
		"podman-compose@nobodys.service", "podman-compose@enabled.service", "podman-compose@required.service", "podman-compose@own.service")
	atBoot, fromTemplate := map[string]bool{}, []string{}
	for name, unit := range units {
		atBoot[name] = unit.AtBoot()
		if unit.FromTemplate() {
			fromTemplate = append(fromTemplate, name)
		}
	}
	slices.Sort(fromTemplate)
	if want := map[string]bool{
		"hostler.service": true, "web.service": false, "pod.service": true, "masked.service": false, "until-then.service": false,
		"podman-compose@nobodys.service": false, "podman-compose@enabled.service": true, "podman-compose@required.service": true, "podman-compose@own.service": false,
	}; err != nil || !maps.Equal(atBoot, want) {
		t.Errorf("UnitsThatAre() = %v, %v, want those started at boots to be %v", atBoot, err, want)
	}
	if want := []string{"podman-compose@enabled.service", "podman-compose@nobodys.service", "podman-compose@required.service"}; !slices.Equal(fromTemplate, want) {
		t.Errorf("UnitsThatAre() has %v from templates, want %v", fromTemplate, want)
	}
	if web := units["web.service"]; !web.Runs() || units["masked.service"].Runs() {
		t.Errorf("UnitsThatAre() = %+v, want web.service to run, and masked.service not to run", web)
	}
	nobody := systemd.NewManager(t.TempDir() + "/none")
	if units, err := nobody.UnitsThatAre(t.Context(), "hostler.service"); len(units) > 0 || err != nil {
		t.Errorf("UnitsThatAre() = %v, %v without systemd, want none", units, err)
	}
	if err := nobody.Ask(t.Context(), func(context.Context, *systemd.Talk) { t.Error("nobody is asked") }); !errors.Is(err, systemd.ErrNotSystemd) {
		t.Errorf("Ask() = %v without systemd, want %v", err, systemd.ErrNotSystemd)
	}
}

// TestSignalsOfStrangersHarmNobody lets another client of the bus send signals that the D-Bus library does not survive, or only
// with much time, memory or descriptors.
func TestSignalsOfStrangersHarmNobody(t *testing.T) {
	bed := newRealBed(t)
	logind := systemd.NewLogind(systemd.LogindOptions{Address: bed.Address(), Root: bed.Root()})
	t.Cleanup(func() { check(t, logind.Close()) })
	events := startWatch(t, logind)
	stranger, err := dbus.Connect(bed.Address())
	check(t, err)
	defer stranger.Close()
	null, err := os.Open(os.DevNull)
	check(t, err)
	defer null.Close()
	fd := dbus.UnixFD(null.Fd())
	type octets struct{ A, B, C, D, E, F, G, H byte }
	many := slices.Repeat([]any{fd}, 16)
	before, err := os.ReadDir("/proc/self/fd")
	check(t, err)

	others := []string{stranger.Names()[0], ""} // and the manager of this test, which is in this process
	check(t, stranger.BusObject().Call("org.freedesktop.DBus.GetNameOwner", 0, "org.freedesktop.systemd1").Store(&others[1]))
	for _, body := range [][]any{{[]dbus.UnixFD{fd}}, many, {make([]octets, 1<<17)}} {
		var names []string
		check(t, stranger.BusObject().Call("org.freedesktop.DBus.ListNames", 0).Store(&names))
		for range 4 {
			for _, name := range names {
				if slices.Contains(others, name) || !strings.HasPrefix(name, ":") {
					continue
				}
				stranger.Send(&dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
					dbus.FieldDestination: dbus.MakeVariant(name),
					dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath("/org/freedesktop/login1")),
					dbus.FieldInterface:   dbus.MakeVariant("org.freedesktop.login1.Manager"),
					dbus.FieldMember:      dbus.MakeVariant("PrepareForShutdown"),
					dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(body...)),
				}}, nil)
			}
		}
		lock, err := logind.Inhibit(t.Context(), "to see it held")
		check(t, err)
		check(t, lock.Close())
		if _, err := logind.MaxDelay(t.Context()); err != nil {
			t.Errorf("MaxDelay() after signals of a stranger = %v, want an answer", err)
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // a descriptor is closed after the answer
		after, err := os.ReadDir("/proc/self/fd")
		check(t, err)
		if len(after) <= len(before) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d descriptors are open after the signals, and %d before, want no more", len(after), len(before))
		}
	}
	_, err = logind.RaiseMaxDelay(t.Context(), 5*time.Minute)
	check(t, err)
	_, err = logind.Inhibit(t.Context(), "to see it held")
	check(t, err)
	check(t, stranger.Object("org.freedesktop.login1", "/org/freedesktop/login1").Call("org.freedesktop.login1.Manager.Reboot", 0, false).Err)
	for {
		if event := next(t, events); event.Type == shutdown.Prepare {
			break
		}
	}
	check(t, logind.ReleaseAll())
	bed.AwaitDown(t)
}
