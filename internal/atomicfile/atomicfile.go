// Package atomicfile writes files that root alone reads and that outlive a crash or a power
// cut at any moment: there is the old one or the new one, whole.
//
// It owns how that is done. It refuses to know what is in them.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes a file of these parts in place of the one at path, if there is one, and makes
// the folder where there is none. After an error there is the old one, or, where only the folder could
// not be synced, the new one, in whose place a power cut may bring back the old.
func Replace(path string, parts ...[]byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// Always of the same name: what a crash leaves is written over, and does not pile up.
	temporary, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if err == nil {
			_, err = temporary.Write(part)
		}
	}
	if err == nil {
		err = errors.Join(temporary.Chmod(0o600), temporary.Sync())
	}
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return SyncFolder(filepath.Dir(path))
}

// SyncFolder has the names in a folder outlive a power cut.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
