package listen

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/internal/field"
	"hostler.io/hostler/internal/trust"
)

// Paths are the files of a listener, all of PEM. Without a ClientCA, clients need no certificate.
type Paths struct {
	Certificate, Key, ClientCA string
	Section                    string // of the configuration, that names the files
}

// Files are what is in them: with every connection they are read again. What makes no
// sense leaves effective what did. They are safe for concurrent use.
type Files struct {
	paths Paths
	log   *slog.Logger

	mu      sync.Mutex // guards what follows
	inForce *tls.Config
	read    [3][]byte         // what it is made of: certificate, key and authorities
	leaf    *x509.Certificate // that of it
	fault   error             // why what was read last is not effective, or invalid; nil if all is well
}

// NewFiles returns the files at those paths, of which none is read yet.
func NewFiles(p Paths, log *slog.Logger) *Files { return &Files{paths: p, log: log} }

// FilesError is why the files cannot be used as they are, or are not valid for callers.
type FilesError struct{ Err error }

// Error names the file and what to do.
func (e *FilesError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FilesError) Unwrap() error { return e.Err }

// Refresh takes up what the files hold now, and returns why that, or the certificate that
// is effective, is invalid. Trouble is logged when it begins and when it ends.
func (f *Files) Refresh() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, now := f.fault, time.Now()
	trouble := "cannot load certificates of the network API"
	if f.fault = f.takeUp(now); f.fault == nil {
		trouble, f.fault = "certificate of the network API is not valid", f.age(f.leaf, now)
	}
	if f.fault != nil {
		f.fault = &FilesError{f.fault}
	}
	switch {
	case f.fault == nil && before != nil:
		f.log.Info("certificates of the network API valid again")
	case f.fault != nil && (before == nil || before.Error() != f.fault.Error()):
		f.log.Error(trouble, "error", f.fault, "kept", f.inForce != nil)
	}
	return f.fault
}

// takeUp has f.mu. A certificate that is over, or not good yet, takes no good one's place.
func (f *Files) takeUp(now time.Time) error {
	var texts [3][]byte
	for i, path := range []string{f.paths.Certificate, f.paths.Key, f.paths.ClientCA} {
		if path == "" {
			continue
		}
		text, err := trust.ReadRegularFile(path) // status would wait for a FIFO as well
		if err != nil {
			return field.Errorf(f.paths.Section, "%w: %s", err, absent(path, err))
		}
		texts[i] = text
	}
	if f.inForce != nil && slices.EqualFunc(texts[:], f.read[:], bytes.Equal) {
		return nil
	}
	pair, err := tls.X509KeyPair(texts[0], texts[1])
	if err != nil {
		return field.Errorf(f.paths.Section, "certificate %s with key %s: %w: %s", f.paths.Certificate, f.paths.Key, err, hint(err))
	}
	callers, authorities := tls.NoClientCert, (*x509.CertPool)(nil)
	if f.paths.ClientCA != "" {
		callers = tls.RequireAndVerifyClientCert
		authorities, err = pool(texts[2])
	}
	if err != nil {
		return field.Errorf(f.paths.Section+".clientCA", "%s: %w: %s", f.paths.ClientCA, err, hint(err))
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		return field.Errorf(f.paths.Section+".certificate", "%s: %w: %s", f.paths.Certificate, err, hint(err))
	}
	if f.inForce != nil {
		if err := f.age(leaf, now); err != nil && f.age(f.leaf, now) == nil {
			return err
		}
		f.log.Info("loaded certificates of the network API", "ends", leaf.NotAfter)
	}
	f.read, f.leaf = texts, leaf
	f.inForce = &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   callers,
		ClientCAs:    authorities,
		NextProtos:   []string{"http/1.1"}, // what bounds connections bounds requests

		SessionTicketsDisabled: true, // a ticket would outlive the authorities it was given by
	}
	return nil
}

// pool is that of all certificates in a text, which holds nothing else.
func pool(text []byte) (*x509.CertPool, error) {
	p, found := x509.NewCertPool(), false
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			return nil, fmt.Errorf("its PEM block %s is not a certificate", block.Type)
		}
		p.AddCert(c)
		found = true
	}
	if !found {
		return nil, errors.New("it contains no certificate")
	}
	return p, nil
}

// age is what is wrong with a certificate at a time.
func (f *Files) age(leaf *x509.Certificate, now time.Time) error {
	const fix = "replace it and its key; hostler reloads them"
	switch {
	case now.After(leaf.NotAfter):
		return field.Errorf(f.paths.Section+".certificate", "%s expired on %s: %s", f.paths.Certificate, leaf.NotAfter.UTC().Format(time.RFC3339), fix)
	case now.Before(leaf.NotBefore):
		return field.Errorf(f.paths.Section+".certificate", "%s is not valid before %s: check the clock with `date`", f.paths.Certificate, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// Life is when the certificate in use begins and ends; zero while none is.
func (f *Files) Life() (begins, ends time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaf == nil {
		return time.Time{}, time.Time{}
	}
	return f.leaf.NotBefore, f.leaf.NotAfter
}

// config is for a listener: each handshake goes by what the files hold then.
func (f *Files) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		err := f.Refresh()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.inForce == nil {
			return nil, err
		}
		return f.inForce, nil
	}}
}

// absent says what to do about a file that cannot be read.
func absent(path string, err error) string {
	if errors.Is(err, fs.ErrNotExist) && (strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/var/tmp/")) {
		return hint(err) + "; not below /tmp, because the service has its own /tmp"
	}
	return hint(err)
}

// hint says what to do about a file that is invalid.
func hint(err error) string {
	untrusted, ok := errors.AsType[*trust.Error](err)
	switch {
	case ok:
		return untrusted.Hint
	case errors.Is(err, fs.ErrNotExist):
		return "create the file, or correct its name"
	case errors.Is(err, fs.ErrPermission):
		return "make it readable for the agent"
	}
	return "correct the file; hostler reloads it"
}
