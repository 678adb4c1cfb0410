package state_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"hostler.io/hostler/internal/state"
)

func TestANewerMajorVersionIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	newer, err := state.OpenVersion(path, 2, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	write(t, newer.Bucket("a"), map[string]string{"k": "v"})
	closeDB(t, newer)

	var log journal
	db, err := state.Open(path, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	want(t, db.Bucket("a"), map[string]string{})
	aside := db.Health().SetAside
	if !strings.HasPrefix(aside, path+".v2-") {
		t.Errorf("SetAside = %q, want %s.v2-…", aside, path)
	}
	closeDB(t, db)
	if log.count("newer hostler") != 1 {
		t.Errorf("log = %s, want one warning that names the newer version", log.String())
	}
	newer, err = state.OpenVersion(aside, 2, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer closeDB(t, newer)
	want(t, newer.Bucket("a"), map[string]string{"k": "v"})
}

func TestAnOlderVersionIsMigratedForward(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	db := open(t, path)
	write(t, db.Bucket("a"), map[string]string{"k": "v"})
	closeDB(t, db)

	step := func(n string) func(*bbolt.Tx) error {
		return func(tx *bbolt.Tx) error {
			b := tx.Bucket([]byte("a"))
			return b.Put([]byte("k"), append(bytes.Clone(b.Get([]byte("k"))), n...))
		}
	}
	for range 2 { // the second time there is nothing left to do
		db, err := state.OpenVersion(path, 3, []func(*bbolt.Tx) error{step("2"), step("3")}, quiet())
		if err != nil {
			t.Fatal(err)
		}
		want(t, db.Bucket("a"), map[string]string{"k": "v23"})
		closeDB(t, db)
	}

	broken := func(*bbolt.Tx) error { return errors.New("no idea") }
	db, err := state.OpenVersion(path, 4, []func(*bbolt.Tx) error{nil, nil, broken}, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer closeDB(t, db)
	want(t, db.Bucket("a"), map[string]string{})
	if aside := db.Health().SetAside; aside == "" {
		t.Error("SetAside after a migration that failed is empty, want the old file")
	}
}

func TestAForeignDatabaseIsSetAside(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	foreign, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = foreign.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("theirs"))
		return err
	})
	if err := errors.Join(err, foreign.Close()); err != nil {
		t.Fatal(err)
	}
	db := open(t, path)
	defer closeDB(t, db)
	if db.Health().SetAside == "" {
		t.Error("SetAside is empty, want the foreign file")
	}
}
