package storetest

import (
	"errors"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

func checkSettings(b *bench) {
	settings, able := b.Store.(store.Settings)
	if !able {
		return
	}
	const name = "test-setting"
	term := b.wins(b.Store, "a", lasting)
	read := func(value string, own bool) store.Setting {
		b.Helper()
		s, err := settings.Setting(b.ctx, name)
		if err != nil || s.Value != value || s.Own != own {
			b.Errorf("Setting() = %+v, %v, want %q, own %t", s, err, value, own)
		}
		return s
	}
	set := func(before store.Setting, value string, want error) {
		b.Helper()
		if err := settings.Set(b.ctx, name, before, value, term); !errors.Is(err, want) {
			b.Errorf("Set(%+v, %q) = %v, want %v", before, value, err, want)
		}
	}
	person := func(value string) {
		b.Helper()
		if err := b.PutSetting(b.ctx, name, value); err != nil {
			b.Fatal(err)
		}
	}
	none := read("", false)
	set(none, "1m", nil)
	first := read("1m", true)
	set(none, "2m", controlplane.ErrConflict)
	set(first, "2m", nil)
	set(first, "", controlplane.ErrConflict)
	// A person sets the same value, and then another one.
	person("2m")
	for _, value := range []string{"2m", "3m"} {
		person(value)
		theirs := read(value, false)
		if !theirs.Persons() {
			b.Errorf("Persons() of %+v = false, want true", theirs)
		}
		set(theirs, "4m", controlplane.ErrConflict)
		theirs.Own = true
		set(theirs, "", controlplane.ErrConflict)
		read(value, false)
	}
	person("")
	set(read("", false), "5m", nil)
	set(read("5m", true), "", nil)
	again := read("", false)
	if err := b.Store.Resign(b.ctx, term); err != nil {
		b.Fatal(err)
	}
	set(again, "6m", store.ErrDeposed)
	read("", false)
	if _, err := settings.Setting(b.ctx, "../nodes/a"); !errors.Is(err, controlplane.ErrInvalid) {
		b.Errorf("Setting() of a path = %v, want an error that is %q", err, controlplane.ErrInvalid)
	}
}
