package systemdtest_test

import (
	"errors"
	"testing"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/systemdtest"
)

func TestFakeIsAsStrictAsLogind(t *testing.T) {
	const (
		login   = "org.freedesktop.login1"
		manager = "org.freedesktop.login1.Manager."
		units   = "org.freedesktop.systemd1.Manager."
		get     = "org.freedesktop.DBus.Properties.Get"
	)
	cases := []struct {
		name, destination, path, method string
		args                            []any
		want                            string // name of the error, empty for none
	}{
		{"a lock", login, "/org/freedesktop/login1", manager + "Inhibit", []any{"shutdown:sleep", "a", "b", "delay"}, ""},
		{"nobody of that name", "org.freedesktop.login2", "/org/freedesktop/login1", manager + "Inhibit", nil, "org.freedesktop.DBus.Error.ServiceUnknown"},
		{"another path", login, "/org/freedesktop/login2", manager + "Inhibit", nil, "org.freedesktop.DBus.Error.UnknownObject"},
		{"another interface", login, "/org/freedesktop/login1", "org.freedesktop.login1.Seat.Inhibit", nil, "org.freedesktop.DBus.Error.UnknownInterface"},
		{"another method", login, "/org/freedesktop/login1", manager + "inhibit", nil, "org.freedesktop.DBus.Error.UnknownMethod"},
		{"an argument too few", login, "/org/freedesktop/login1", manager + "Inhibit", []any{"shutdown", "a", "b"}, "org.freedesktop.DBus.Error.InvalidArgs"},
		{"another type", login, "/org/freedesktop/login1", manager + "Reboot", []any{"false"}, "org.freedesktop.DBus.Error.InvalidArgs"},
		{"another mode", login, "/org/freedesktop/login1", manager + "Inhibit", []any{"shutdown", "a", "b", "wait"}, "org.freedesktop.DBus.Error.InvalidArgs"},
		{"a delay of what is not delayed", login, "/org/freedesktop/login1", manager + "Inhibit", []any{"idle", "a", "b", "delay"}, "org.freedesktop.DBus.Error.InvalidArgs"},
		{"another property", login, "/org/freedesktop/login1", get, []any{"org.freedesktop.login1.Manager", "InhibitDelayMaxSec"}, "org.freedesktop.DBus.Error.UnknownProperty"},
		{"a reload that the unit lacks", "org.freedesktop.systemd1", "/org/freedesktop/systemd1", units + "ReloadUnit", []any{"systemd-logind.service", "replace"}, "org.freedesktop.systemd1.JobTypeNotApplicable"},
		{"a signal that logind dies of", "org.freedesktop.systemd1", "/org/freedesktop/systemd1", units + "KillUnit", []any{"systemd-logind.service", "main", int32(15)}, "org.freedesktop.DBus.Error.InvalidArgs"},
		{"a match rule of nobody's making", "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.AddMatch", []any{"signal=yes"}, "org.freedesktop.DBus.Error.MatchRuleInvalid"},
		{"a second Hello", "org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus.Hello", nil, "org.freedesktop.DBus.Error.AccessDenied"},
	}
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	conn, err := dbus.Connect(fake.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := conn.Object(c.destination, dbus.ObjectPath(c.path)).Call(c.method, 0, c.args...).Err
			var fault dbus.Error
			errors.As(err, &fault)
			if fault.Name != c.want || (err == nil) != (c.want == "") {
				t.Errorf("%s(%v) = %v (%s), want %q", c.method, c.args, err, fault.Name, c.want)
			}
		})
	}
}

func TestFakeWantsHelloFirst(t *testing.T) {
	fake := systemdtest.NewFake(t, systemdtest.FakeOptions{})
	conn, err := dbus.Dial(fake.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.Auth(nil); err != nil {
		t.Fatal(err)
	}
	var fault dbus.Error
	err = conn.Object("org.freedesktop.login1", "/org/freedesktop/login1").Call("org.freedesktop.login1.Manager.ListInhibitors", 0).Err
	if !errors.As(err, &fault) || fault.Name != "org.freedesktop.DBus.Error.AccessDenied" {
		t.Errorf("ListInhibitors() = %v before Hello, want AccessDenied", err)
	}
}
