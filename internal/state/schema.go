package state

import (
	"encoding/json"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
)

// The bucket and the key under which the file says what it is.
const (
	schemaBucket = "_hostler"
	schemaKey    = "schema"
)

// schema is the shape of the file. A minor version adds what older agents may
// ignore; a major version changes what they would misread, and comes with the
// migration from the one before.
type schema struct {
	major, minor int
	// migrations[i] turns major version i+1 into i+2, in one transaction with
	// the others and with the new version's number.
	migrations []func(*bbolt.Tx) error
}

func currentSchema() schema { return schema{major: 1, minor: 0} }

// version is the stored form of a schema's number.
type version struct {
	Major int `json:"major"`
	Minor int `json:"minor"`
}

// stored reads the file's version; the zero version for an empty file.
func (s schema) stored(tx *bbolt.Tx) (version, error) {
	bucket := tx.Bucket([]byte(schemaBucket))
	if bucket == nil {
		if key, _ := tx.Cursor().First(); key != nil {
			return version{}, errors.New("not a hostler state file")
		}
		return version{}, nil
	}
	var v version
	if err := json.Unmarshal(bucket.Get([]byte(schemaKey)), &v); err != nil {
		return version{}, fmt.Errorf("schema version: %w", err)
	}
	if v.Major < 1 || v.Minor < 0 {
		return version{}, fmt.Errorf("schema version %d.%d makes no sense", v.Major, v.Minor)
	}
	return v, nil
}

// migrate brings the file from an older version to this one.
func (s schema) migrate(tx *bbolt.Tx, from version) error {
	for major := from.Major; major >= 1 && major < s.major; major++ {
		if err := s.migrations[major-1](tx); err != nil {
			return fmt.Errorf("migrate from version %d to %d: %w", major, major+1, err)
		}
	}
	bucket, err := tx.CreateBucketIfNotExists([]byte(schemaBucket))
	if err != nil {
		return err
	}
	value, err := json.Marshal(version{Major: s.major, Minor: s.minor})
	if err != nil {
		return err
	}
	return bucket.Put([]byte(schemaKey), value)
}

// older tells whether a file of version v has something to migrate.
func (s schema) older(v version) bool {
	return v.Major < s.major || v.Major == s.major && v.Minor < s.minor
}
