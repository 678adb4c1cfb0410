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
	// FileCurrent holds certificate and key as PEM, so that both change at once.
	FileCurrent = "hostler-client.pem"
	// FilePending holds the key of a request that is in progress.
	FilePending = "hostler-client.pending.key"

	asideSuffix = ".damaged"
)

// store keeps keys and certificates in a directory.
type store struct{ directory string }

func (s store) path(file string) string { return filepath.Join(s.directory, file) }

// current reads the certificate of that subject; nil if there is none. One that
// makes no sense is set aside, and told of by the error.
func (s store) current(commonName string) (*tls.Certificate, error) {
	certificate, err := read(s.path(FileCurrent), commonName)
	if damaged, ok := errors.AsType[*damage](err); ok {
		return nil, s.setAside(FileCurrent, damaged.err)
	}
	return certificate, err
}

// Stored reads the certificate of that node in the directory, for a host whose agent
// does not run; nil if there is none. Nothing is set aside.
func Stored(directory, node string) (*tls.Certificate, error) {
	path := filepath.Join(directory, FileCurrent)
	certificate, err := read(path, commonName(node))
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", path, err)
	}
	return certificate, nil
}

// damage is what makes a file invalid.
type damage struct{ err error }

// Error says it.
func (d *damage) Error() string { return d.err.Error() }

// read is the certificate in a file; nil if there is none, *damage if it makes no
// sense.
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

// Parse reads a certificate for that common name with its key, both in one PEM.
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

// setAside keeps a damaged file from being read again.
func (s store) setAside(file string, why error) error {
	path := s.path(file)
	if err := os.Rename(path, path+asideSuffix); err != nil {
		return fmt.Errorf("%s: %w, and it cannot be moved aside: %w", path, why, err)
	}
	return fmt.Errorf("%s: %w: moved to %s", path, why, path+asideSuffix)
}

// replace makes the certificate with its key the current one.
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

// pending returns the key for the request in progress, a new one if there is none.
func (s store) pending() (*ecdsa.PrivateKey, error) {
	text, err := trust.ReadFile(s.path(FilePending))
	if err == nil {
		// A damaged one is as good as none: nobody relies on it yet.
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

// forget gives the key of the request in progress up.
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
