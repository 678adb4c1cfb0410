package certificate

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"hostler.io/hostler/internal/atomicfile"
	"hostler.io/hostler/internal/trust"
)

// Files in the directory, all of mode 0600.
const (
	// FileCurrent contains certificate and key as PEM, in one file so that both change at once.
	FileCurrent = "hostler-client.pem"
	// FilePending contains the key of a pending request.
	FilePending = "hostler-client.pending.key"

	asideSuffix = ".damaged"
)

// store keeps keys and certificates in a directory.
type store struct{ directory string }

func (s store) path(file string) string { return filepath.Join(s.directory, file) }

// current reads the certificate of that subject; nil if there is none. It renames an invalid file
// and returns an error.
func (s store) current(commonName string) (*tls.Certificate, error) {
	certificate, err := read(s.path(FileCurrent), commonName)
	if damaged, ok := errors.AsType[*damage](err); ok {
		return nil, s.setAside(FileCurrent, damaged.err)
	}
	return certificate, err
}

// Stored reads a node's certificate in the directory, for a host whose agent does not run; nil if
// there is none. It does not rename an invalid file.
func Stored(directory, node string) (*tls.Certificate, error) {
	path := filepath.Join(directory, FileCurrent)
	certificate, err := read(path, commonName(node))
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", path, err)
	}
	return certificate, nil
}

// damage is the error of an invalid file.
type damage struct{ err error }

// Error returns the text of err.
func (d *damage) Error() string { return d.err.Error() }

// read reads the certificate in a file; nil if there is none, *damage if the file is invalid.
func read(path, commonName string) (*tls.Certificate, error) {
	text, err := trust.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if untrusted, ok := errors.AsType[*trust.Error](err); ok {
		return nil, fmt.Errorf("%w: %s", untrusted, untrusted.Hint)
	}
	if err != nil {
		return nil, err
	}
	certificate, err := Parse(text, commonName)
	if err != nil {
		return nil, &damage{err}
	}
	return certificate, nil
}

// Parse reads a certificate for that common name and its key from one PEM.
func Parse(text []byte, commonName string) (*tls.Certificate, error) {
	certificate, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	if certificate.Leaf == nil {
		if certificate.Leaf, err = x509.ParseCertificate(certificate.Certificate[0]); err != nil {
			return nil, err
		}
	}
	if name := certificate.Leaf.Subject.CommonName; name != commonName {
		return nil, fmt.Errorf("it is for %q, not for %q", name, commonName)
	}
	return &certificate, nil
}

// setAside renames a damaged file, so that it is not read again.
func (s store) setAside(file string, why error) error {
	path := s.path(file)
	if err := os.Rename(path, path+asideSuffix); err != nil {
		return fmt.Errorf("%s: %w, and it cannot be moved aside: %w", path, why, err)
	}
	return fmt.Errorf("%s: %w: moved to %s", path, why, path+asideSuffix)
}

// replace stores the certificate with its key as the current one.
func (s store) replace(certificate []byte, key *ecdsa.PrivateKey) error {
	text, err := encode(key)
	if err != nil {
		return err
	}
	if err := s.write(FileCurrent, append(append([]byte{}, certificate...), text...)); err != nil {
		return err
	}
	return s.forget()
}

// pending returns the key of the pending request, or a new key if there is none.
func (s store) pending() (*ecdsa.PrivateKey, error) {
	text, err := trust.ReadFile(s.path(FilePending))
	if err == nil {
		// A damaged key is ignored: no certificate depends on it yet.
		if key, err := decode(text); err == nil {
			return key, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	text, err = encode(key)
	if err != nil {
		return nil, err
	}
	return key, s.write(FilePending, text)
}

// forget deletes the key of the pending request.
func (s store) forget() error {
	err := os.Remove(s.path(FilePending))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func encode(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func decode(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("not a PEM file")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

// write replaces a file.
func (s store) write(file string, text []byte) error {
	return atomicfile.Replace(s.path(file), text)
}
