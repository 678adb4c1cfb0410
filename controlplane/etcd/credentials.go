package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/credentials"

	"hostler.io/hostler/controlplane/dial"
	"hostler.io/hostler/controlplane/etcd/endpoint"
	"hostler.io/hostler/internal/trust"
)

// check returns an error for options that can never work.
func (o Options) check() error {
	if len(o.Endpoints) == 0 {
		return errors.New("no endpoint given: set " + o.key("endpoints"))
	}
	for _, e := range o.Endpoints {
		if err := endpoint.Check(e, o.Insecure, o.key("insecure")); err != nil {
			return fmt.Errorf("%s: %w", o.key("endpoints"), err)
		}
	}
	if err := endpoint.CheckPrefix(o.Prefix); err != nil {
		return fmt.Errorf("%s: %w", o.key("prefix"), err)
	}
	if (o.Certificate == "") != (o.Key == "") {
		return errors.New(o.key("tls") + ": set both certificate and key")
	}
	if (o.Username == "") != (o.PasswordFile == "") {
		return errors.New(o.key("") + ": set both username and passwordFile")
	}
	return nil
}

// tlsConfig reads the files and returns their TLS configuration.
func (o Options) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		text, err := trust.ReadFile(o.CA)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", o.key("tls.ca"), err, dial.FileHint(err))
		}
		if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: %s contains no certificate: store the servers' certificate authorities there as PEM", o.key("tls.ca"), o.CA)
		}
	}
	if o.Certificate == "" {
		return config, nil
	}
	pair, err := o.pair()
	if err != nil {
		return nil, fmt.Errorf("%s: certificate %s with key %s: %w: %s", o.key("tls"), o.Certificate, o.Key, err, dial.FileHint(err))
	}
	// Present the certificate even if the server names other authorities. Then the server's error says
	// why it rejects this certificate, and not only that one is missing.
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	return config, nil
}

// pair is the certificate with its key.
func (o Options) pair() (tls.Certificate, error) {
	certificate, err := trust.ReadFile(o.Certificate)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := trust.ReadFile(o.Key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(certificate, key)
}

// password reads the password file; empty without one.
func (o Options) password() (string, error) {
	if o.PasswordFile == "" {
		return "", nil
	}
	text, err := trust.ReadFile(o.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", o.key("passwordFile"), err, dial.FileHint(err))
	}
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return "", fmt.Errorf("%s: %s is empty: write the password of user %q there", o.key("passwordFile"), o.PasswordFile, o.Username)
	}
	return string(text), nil
}

// handshakes makes TLS handshakes and reports why one failed. gRPC only passes on a text.
type handshakes struct {
	credentials.TransportCredentials
	failed func(error)
}

// ClientHandshake implements credentials.TransportCredentials.
func (h *handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		h.failed(err)
		return nil, nil, err
	}
	return &refusable{conn, h.failed}, info, nil
}

// Clone implements credentials.TransportCredentials.
func (h *handshakes) Clone() credentials.TransportCredentials {
	return &handshakes{h.TransportCredentials.Clone(), h.failed}
}

// refusable is a connection whose server can still reject the client certificate. In TLS 1.3 the
// server does so after the client's handshake. The client may then see a failed write before it has
// read the reason.
type refusable struct {
	net.Conn
	refused func(error)
}

// lastResponse limits the wait for the alert of a server that has rejected the certificate.
const lastResponse = time.Second

// Read implements net.Conn.
func (r *refusable) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	if alert, ok := errors.AsType[*net.OpError](err); ok && alert.Op == "remote error" {
		r.refused(err)
	}
	return n, err
}

// Write implements net.Conn.
func (r *refusable) Write(b []byte) (int, error) {
	n, err := r.Conn.Write(b)
	if err != nil && r.SetReadDeadline(time.Now().Add(lastResponse)) == nil {
		_, _ = r.Read(make([]byte, 1)) // reports the alert
	}
	return n, err
}

// token is sent with each request after authentication.
type token struct{ text atomic.Pointer[string] }

func (t *token) set(text string) { t.text.Store(&text) }

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t *token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text := t.text.Load()
	if text == nil {
		return nil, nil
	}
	return map[string]string{rpctypes.TokenFieldNameGRPC: *text}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. It returns false because the
// configuration may allow plain http.
func (t *token) RequireTransportSecurity() bool { return false }
