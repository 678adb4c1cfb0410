package debian

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
)

// File is a file that a machine has in addition to its root.
type File struct {
	Path string // relative to the machine's root
	Mode os.FileMode
	Data []byte
	Link string // if set, the file is a symbolic link
}

// Files are the files that a machine has in addition to its root.
type Files []File

// WriteTo writes the files into a machine's root at dir.
func (files Files) WriteTo(dir string) error {
	for _, f := range files {
		path := filepath.Join(dir, f.Path)
		if f.Link == "" {
			if err := writeFile(path, f.Data, f.Mode); err != nil {
				return err
			}
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.Symlink(f.Link, path)); err != nil {
			return err
		}
	}
	return nil
}

// writeFile writes a file and the folders above it. It replaces a link.
func writeFile(path string, data []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.WriteFile(path, data, mode)
}

// Pack writes the files as an archive. The initramfs unpacks it from a second disk at the first
// boot.
func (files Files) Pack(to io.Writer) error {
	out := tar.NewWriter(to)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: int64(f.Mode), Size: int64(len(f.Data))}
		if f.Link != "" {
			header = &tar.Header{Typeflag: tar.TypeSymlink, Name: f.Path, Linkname: f.Link, Mode: 0o777}
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(f.Data); err != nil {
			return err
		}
	}
	return out.Close()
}
