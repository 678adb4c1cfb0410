// Package atomicfile writes files that only root can read. After a crash or a power cut at any
// moment, either the whole old file or the whole new file exists.
//
// It owns the procedure and ignores the content.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
)

// Replace writes the concatenated parts to path, replaces an existing file, and creates the folder
// if it is missing. After an error, path usually has its old content. If only the sync of the
// folder failed, path has the new content, but a power cut may restore the old one.
func Replace(path string, parts ...[]byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// The name is fixed, so that the next write overwrites a temporary file left by a crash.
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

// SyncFolder syncs a folder, so that its entries survive a power cut.
func SyncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
