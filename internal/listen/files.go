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

// Paths are the PEM files of a listener. Without a ClientCA, clients need no certificate.
type Paths struct {
	Certificate, Key, ClientCA string
	Section                    string // the section of the configuration that names the files
}

// Files hold the certificates of a listener. Every connection reads the files again. If the new
// content is invalid, the previous content stays effective. Files are safe for concurrent use.
type Files struct {
	paths Paths
	log   *slog.Logger

	mu        sync.Mutex // guards the fields below
	effective *tls.Config
	read      [3][]byte         // the sources of the effective configuration: certificate, key and authorities
	leaf      *x509.Certificate // the certificate in it
	fault     error             // why the last content is not effective, or is invalid; nil if there is no problem
}

// NewFiles returns the files at those paths, without reading them.
func NewFiles(p Paths, log *slog.Logger) *Files { return &Files{paths: p, log: log} }

// FilesError says why the files cannot be used, or why callers would not accept them.
type FilesError struct{ Err error }

// Error names the file and the fix.
func (e *FilesError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *FilesError) Unwrap() error { return e.Err }

// Refresh loads the current content of the files. It returns why that content, or the effective
// certificate, is invalid. It logs when a problem begins and when it ends.
func (f *Files) Refresh() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	before, now := f.fault, time.Now()
	trouble := "cannot load certificates of the network API"
	if f.fault = f.load(now); f.fault == nil {
		trouble, f.fault = "certificate of the network API is not valid", f.checkValidity(f.leaf, now)
	}
	if f.fault != nil {
		f.fault = &FilesError{f.fault}
	}
	switch {
	case f.fault == nil && before != nil:
		f.log.Info("certificates of the network API valid again")
	case f.fault != nil && (before == nil || before.Error() != f.fault.Error()):
		f.log.Error(trouble, "error", f.fault, "kept", f.effective != nil)
	}
	return f.fault
}

// load loads the files if they changed. A certificate that is expired or not yet valid does not
// replace a valid one. The caller holds f.mu.
func (f *Files) load(now time.Time) error {
	var texts [3][]byte
	for i, path := range []string{f.paths.Certificate, f.paths.Key, f.paths.ClientCA} {
		if path == "" {
			continue
		}
		text, err := trust.ReadRegularFile(path) // not ReadFile: status would wait for a FIFO, too
		if err != nil {
			return field.Errorf(f.paths.Section, "%w: %s", err, missingHint(path, err))
		}
		texts[i] = text
	}
	if f.effective != nil && slices.EqualFunc(texts[:], f.read[:], bytes.Equal) {
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
	if f.effective != nil {
		if err := f.checkValidity(leaf, now); err != nil && f.checkValidity(f.leaf, now) == nil {
			return err
		}
		f.log.Info("loaded certificates of the network API", "ends", leaf.NotAfter)
	}
	f.read, f.leaf = texts, leaf
	f.effective = &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   callers,
		ClientCAs:    authorities,
		NextProtos:   []string{"http/1.1"}, // HTTP/2 would allow more requests than connections

		SessionTicketsDisabled: true, // a ticket would stay valid after its authority is removed
	}
	return nil
}

// pool returns the certificates of a text, which must contain nothing else.
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

// checkValidity returns an error if a certificate is expired or not yet valid.
func (f *Files) checkValidity(leaf *x509.Certificate, now time.Time) error {
	const fix = "replace it and its key; hostler reloads them"
	switch {
	case now.After(leaf.NotAfter):
		return field.Errorf(f.paths.Section+".certificate", "%s expired on %s: %s", f.paths.Certificate, leaf.NotAfter.UTC().Format(time.RFC3339), fix)
	case now.Before(leaf.NotBefore):
		return field.Errorf(f.paths.Section+".certificate", "%s is not valid before %s: check the clock with `date`", f.paths.Certificate, leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}

// Validity returns the validity period of the certificate in use, or zero times if there is none.
func (f *Files) Validity() (begins, ends time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.leaf == nil {
		return time.Time{}, time.Time{}
	}
	return f.leaf.NotBefore, f.leaf.NotAfter
}

// config returns a configuration for a listener. Each handshake uses the current content of the
// files.
func (f *Files) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		err := f.Refresh()
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.effective == nil {
			return nil, err
		}
		return f.effective, nil
	}}
}

// missingHint returns how to fix a file that cannot be read.
func missingHint(path string, err error) string {
	if errors.Is(err, fs.ErrNotExist) && (strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/var/tmp/")) {
		return hint(err) + "; not below /tmp, because the service has its own /tmp"
	}
	return hint(err)
}

// hint returns how to fix an invalid file.
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
