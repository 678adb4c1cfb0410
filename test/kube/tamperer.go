package kube

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
)

// Tamperer is a proxy in front of the API server, with a server certificate of the cluster's own
// CA. It forwards requests with the identity of the client, and applies a Tamper to each successful
// answer. It can refuse requests.
type Tamperer struct {
	Address string // HOST:PORT on loopback; its certificate is valid for localhost

	server  *http.Server
	serving sync.WaitGroup

	mu      sync.Mutex // guards what follows
	tamper  Tamper
	refusal func(*http.Request) int
	renewed chan struct{} // closed when there is another refusal
}

// Tamper changes an answer, or one event of a watch, which is JSON of an API object. It may also
// change the header, but not that of a watch. Nil changes nothing.
type Tamper func(header http.Header, body []byte) []byte

// NewTamperer starts a Tamperer in front of the API server. The caller closes it.
func (c *Cluster) NewTamperer() (*Tamperer, error) {
	pair, err := c.ca.server("127.0.0.1")
	if err != nil {
		return nil, err
	}
	own, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, err
	}
	target, err := url.Parse(c.Server)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start a liar before %s: %w", c.Server, err)
	}
	l := &Tamperer{Address: listener.Addr().String(), renewed: make(chan struct{})}
	quiet := slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo) // for connections that are closed
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			accepted := r.In.Header.Get("Accept")
			r.Out.Header.Set("Accept", strings.ReplaceAll(cmp.Or(accepted, "application/json"), "application/vnd.kubernetes.protobuf", "application/json"))
			impersonate(r.Out.Header, r.In.TLS.PeerCertificates[0])
		},
		Transport: c.client.Transport, FlushInterval: -1, ModifyResponse: l.answer, ErrorLog: quiet,
	}
	roots := c.client.Transport.(*http.Transport).TLSClientConfig.RootCAs
	l.server = &http.Server{
		Handler: l.refuser(proxy), ErrorLog: quiet,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{own}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots},
	}
	l.serving.Go(func() { _ = l.server.ServeTLS(listener, "", "") }) // returns when it is closed
	return l, nil
}

// impersonate sends the request as administrator on behalf of the client, because the API server
// does not see the client's certificate.
func impersonate(header http.Header, client *x509.Certificate) {
	header.Set("Impersonate-User", client.Subject.CommonName)
	for _, group := range client.Subject.Organization {
		header.Add("Impersonate-Group", group)
	}
}

// Use sets the Tamper for further answers; nil changes nothing.
func (l *Tamperer) Use(tamper Tamper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tamper = tamper
}

// Refuse ends all requests, and answers further ones with the HTTP status that refusal returns; with
// 0, it forwards them. Nil forwards all.
func (l *Tamperer) Refuse(refusal func(*http.Request) int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refusal = refusal
	close(l.renewed)
	l.renewed = make(chan struct{})
}

// refuser applies the refusal.
func (l *Tamperer) refuser(forward http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.mu.Lock()
		refusal, renewed := l.refusal, l.renewed
		l.mu.Unlock()
		code := 0
		if refusal != nil {
			code = refusal(r)
		}
		if code != 0 {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"refused by a test","code":%d}`, code)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		l.serving.Go(func() {
			select {
			case <-renewed:
				cancel()
			case <-ctx.Done():
			}
		})
		forward.ServeHTTP(w, r.WithContext(ctx))
	})
}

// apply returns the changed body.
func (l *Tamperer) apply(header http.Header, body []byte) []byte {
	l.mu.Lock()
	tamper := l.tamper
	l.mu.Unlock()
	if tamper == nil {
		return body
	}
	return tamper(header, body)
}

// answer changes an answer.
func (l *Tamperer) answer(r *http.Response) error {
	if r.StatusCode < 200 || r.StatusCode > 299 {
		return nil
	}
	if r.Request.URL.Query().Get("watch") == "true" {
		r.Body = l.watch(r.Body)
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return err
	}
	body = l.apply(r.Header, body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// watch changes each event when it arrives.
func (l *Tamperer) watch(truth io.ReadCloser) io.ReadCloser {
	read, write := io.Pipe()
	l.serving.Go(func() {
		defer truth.Close()
		for changes := json.NewDecoder(truth); ; {
			var change json.RawMessage
			err := changes.Decode(&change)
			if err == nil {
				_, err = write.Write(append(l.apply(http.Header{}, change), '\n'))
			}
			if err != nil {
				_ = write.CloseWithError(err)
				return
			}
		}
	})
	return struct {
		io.Reader
		io.Closer
	}{read, closers{read, truth}}
}

// closers are closed together.
type closers []io.Closer

func (all closers) Close() (err error) {
	for _, c := range all {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Close stops it and closes all connections.
func (l *Tamperer) Close() error {
	err := l.server.Close()
	l.serving.Wait()
	return err
}
