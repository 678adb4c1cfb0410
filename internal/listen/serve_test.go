package listen_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/logtest"
	"hostler.io/hostler/test/lab"
)

// rig is a network API server with its files and two authorities.
type rig struct {
	t              *testing.T
	own, other     *lab.Authority
	ownCA, otherCA []byte
	paths          listen.Paths
	files          *listen.Files
	log            logtest.Book
	heartbeats     chan error
	address        string
	patience       time.Duration // timeout for clients that send nothing
}

func newRig(t *testing.T) *rig {
	t.Helper()
	folder := t.TempDir()
	h := &rig{t: t, heartbeats: make(chan error, 100), patience: time.Hour}
	h.paths = listen.Paths{Certificate: filepath.Join(folder, "a.crt"), Key: filepath.Join(folder, "a.key"), ClientCA: filepath.Join(folder, "ca.crt"), Section: "api.tls"}
	for authority, text := range map[**lab.Authority]*[]byte{&h.own: &h.ownCA, &h.other: &h.otherCA} {
		a, pair, err := lab.NewAuthority("authority")
		if err != nil {
			t.Fatal(err)
		}
		*authority, *text = a, pair.Certificate
	}
	h.files = listen.NewFiles(h.paths, h.log.Logger())
	h.install(time.Hour)
	h.write(h.paths.ClientCA, h.ownCA)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h.address = l.Addr().String()
	l.Close()
	return h
}

func (h *rig) write(path string, text []byte) {
	h.t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		h.t.Fatal(err)
	}
}

// install installs a certificate with that lifetime, and returns its serial number.
func (h *rig) install(life time.Duration) string {
	h.t.Helper()
	template := lab.Leaf("server", x509.ExtKeyUsageServerAuth, life)
	pair, err := h.own.Sign(template)
	if err != nil {
		h.t.Fatal(err)
	}
	h.write(h.paths.Key, pair.Key)
	h.write(h.paths.Certificate, pair.Certificate)
	return template.SerialNumber.String()
}

// client creates a client certificate.
func (h *rig) client(by *lab.Authority, life time.Duration, use x509.ExtKeyUsage) *tls.Certificate {
	h.t.Helper()
	pair, err := by.Sign(lab.Leaf("prometheus", use, life))
	if err != nil {
		h.t.Fatal(err)
	}
	c, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		h.t.Fatal(err)
	}
	return &c
}

// friend returns a certificate that the server accepts.
func (h *rig) friend() *tls.Certificate {
	return h.client(h.own, time.Hour, x509.ExtKeyUsageClientAuth)
}

// serves runs the server until the test ends, and waits until it serves.
func (h *rig) serves() {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.t.Context())
	ended := make(chan error, 1)
	server := &http.Server{ReadHeaderTimeout: h.patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello %s, by %s", r.TLS.VerifiedChains[0][0].Subject.CommonName, r.Proto)
		if r.TLS.DidResume {
			fmt.Fprint(w, ", as before")
		}
	})}
	go func() { ended <- h.network().Serve(ctx, server) }()
	h.t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			h.t.Errorf("Serve() = %v, want it to end with its context", err)
		}
	})
	select {
	case err := <-h.heartbeats:
		if err != nil {
			h.t.Fatalf("Heartbeat(%v), want all well", err)
		}
	case err := <-ended:
		h.t.Fatalf("Serve() = %v", err)
	case <-time.After(bound):
		h.t.Fatal("nothing is served")
	}
}

func (h *rig) network() listen.Network {
	return listen.Network{Key: "api.listen", Address: h.address, Files: h.files, Log: h.log.Logger(), Heartbeat: func(err error) { h.heartbeats <- err }}
}

// asks makes a request over a new connection, and returns the response and the serial number of the
// server's certificate.
func (h *rig) asks(with *tls.Certificate, change func(*tls.Config)) (text, serial string, err error) {
	h.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(h.ownCA)
	config := &tls.Config{RootCAs: roots}
	if with != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return with, nil }
	}
	if change != nil {
		change(config)
	}
	client := http.Client{Timeout: bound, Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DisableKeepAlives: false}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + h.address)
	if err != nil {
		return "", "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if !resp.Close {
		h.t.Error("the connection would be good for another request, by authorities that may have gone by then")
	}
	return string(body), resp.TLS.PeerCertificates[0].SerialNumber.String(), err
}

func TestOnlyVerifiedClientsAreServed(t *testing.T) {
	h := newRig(t)
	h.serves()
	if text, _, err := h.asks(h.friend(), nil); err != nil || text != "hello prometheus, by HTTP/1.1" {
		t.Errorf("a client with a certificate receives %q, %v", text, err)
	}
	for name, c := range map[string]struct {
		with   *tls.Certificate
		change func(*tls.Config)
	}{
		"without a certificate":           {nil, nil},
		"with one of another authority":   {h.client(h.other, time.Hour, x509.ExtKeyUsageClientAuth), nil},
		"with one that is over":           {h.client(h.own, -time.Hour, x509.ExtKeyUsageClientAuth), nil},
		"with one that is for servers":    {h.client(h.own, time.Hour, x509.ExtKeyUsageServerAuth), nil},
		"by TLS 1.2, with a good one":     {h.friend(), func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }},
		"as one that trusts another host": {h.friend(), func(c *tls.Config) { c.ServerName = "other.example" }},
	} {
		if text, _, err := h.asks(c.with, c.change); err == nil {
			t.Errorf("a client %s receives %q, want it refused", name, text)
		}
	}
	if h.log.Count("level=WARN") > 0 || h.log.Count("level=ERROR") > 0 {
		t.Errorf("those who are refused fill the log:\n%s", h.log.String())
	}
}

// Otherwise, a client could use authorities that were removed meanwhile.
func TestEachConnectionUsesTheCurrentAuthorities(t *testing.T) {
	h := newRig(t)
	h.serves()
	known := tls.NewLRUClientSessionCache(10)
	for range 2 {
		if text, _, err := h.asks(h.friend(), func(c *tls.Config) { c.ClientSessionCache = known }); err != nil || text != "hello prometheus, by HTTP/1.1" {
			t.Errorf("a client with a known session receives %q, %v, want it verified again", text, err)
		}
	}
}

func TestOneHostHasSoManyConnections(t *testing.T) {
	h := newRig(t)
	h.serves()
	var last net.Conn
	for range 33 {
		c, err := net.Dial("tcp", h.address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		last = c
	}
	if err := last.SetReadDeadline(time.Now().Add(bound)); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("one connection more than 32 is held")
	}
	if h.log.Count("refusing connections") != 1 {
		t.Errorf("the log does not say that connections are refused:\n%s", h.log.String())
	}
}

func TestSilentConnectionsAreClosed(t *testing.T) {
	h := newRig(t)
	h.patience = 200 * time.Millisecond
	h.serves()
	c, err := net.Dial("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(bound)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("one who does not begin to shake hands holds the connection")
	}
}

func TestChangedFilesAreLoaded(t *testing.T) {
	h := newRig(t)
	friend := h.friend()
	h.serves()
	_, before, err := h.asks(friend, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := h.install(2 * time.Hour)
	if _, got, err := h.asks(friend, nil); err != nil || got != want || got == before {
		t.Errorf("the next connection has certificate %s, %v, want the new one, %s", got, err, want)
	}
	begins, ends := h.files.Validity()
	if left := time.Until(ends); begins.After(time.Now()) || left < time.Hour || left > 2*time.Hour {
		t.Errorf("Ends() is in %v, want that of the new one", left)
	}
	h.write(h.paths.ClientCA, h.otherCA)
	if text, _, err := h.asks(friend, nil); err == nil {
		t.Errorf("a client of the removed authority receives %q", text)
	}
	if _, _, err := h.asks(h.client(h.other, time.Hour, x509.ExtKeyUsageClientAuth), nil); err != nil {
		t.Errorf("a client of the new authority receives %v", err)
	}
}

func TestAnInvalidFileLeavesTheOldOneEffective(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(h *rig)
		want   string
	}{
		"no certificate":            {func(h *rig) { h.write(h.paths.Certificate, []byte("what")) }, "correct the file"},
		"the key of another one":    {func(h *rig) { old := must(os.ReadFile(h.paths.Key)); h.install(time.Hour); h.write(h.paths.Key, old) }, "private key does not match public key"},
		"one that has ended":        {func(h *rig) { h.install(-time.Hour) }, " expired on "},
		"no key at all":             {func(h *rig) { os.Remove(h.paths.Key) }, "create the file, or correct its name"},
		"no authority":              {func(h *rig) { h.write(h.paths.ClientCA, nil) }, "it contains no certificate"},
		"a key among the authority": {func(h *rig) { h.write(h.paths.ClientCA, append(must(os.ReadFile(h.paths.Key)), h.ownCA...)) }, "EC PRIVATE KEY is not a certificate"},
		"half an authority behind 1": {func(h *rig) {
			h.write(h.paths.ClientCA, append(h.ownCA, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"...))
		}, "is not a certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newRig(t)
			h.serves()
			_, before, err := h.asks(h.friend(), nil)
			if err != nil {
				t.Fatal(err)
			}
			c.damage(h)
			if _, got, err := h.asks(h.friend(), nil); err != nil || got != before {
				t.Errorf("the next connection has certificate %s, %v, want that of before, %s", got, err, before)
			}
			if err := h.files.Refresh(); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "api.tls") {
				t.Errorf("Refresh() = %v, want %q", err, c.want)
			}
			if got := h.log.Count("level=ERROR"); got != 1 {
				t.Errorf("the log has %d errors, want that it is not taken up, once:\n%s", got, h.log.String())
			}
			want := h.install(time.Hour)
			h.write(h.paths.ClientCA, h.ownCA)
			if _, got, err := h.asks(h.friend(), nil); err != nil || got != want || h.log.Count("valid again") != 1 {
				t.Errorf("after the fix the certificate is %s, %v, want %s; log:\n%s", got, err, want, h.log.String())
			}
		})
	}
}

// Reading a FIFO would block, and reading zeros would never end.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	h := newRig(t)
	fifo, long := filepath.Join(t.TempDir(), "fifo"), filepath.Join(t.TempDir(), "long")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	h.write(long, append(h.ownCA, make([]byte, 1<<20)...))
	const correct = "correct the file"
	for path, c := range map[string]struct{ message, hint string }{
		fifo: {"not a regular file", correct}, long: {"more than 1048576 bytes", correct},
		"/dev/null": {"other than root", "use a regular file"}, t.TempDir(): {"not a regular file", correct},
	} {
		paths := h.paths
		paths.ClientCA = path
		reported := make(chan error, 1)
		go func() { reported <- listen.NewFiles(paths, h.log.Logger()).Refresh() }()
		select {
		case err := <-reported:
			if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), c.message) || !strings.Contains(err.Error(), c.hint) {
				t.Errorf("Refresh() with clientCA %s = %v, want it refused with %q and the hint %q", path, err, c.message, c.hint)
			}
		case <-time.After(bound):
			t.Errorf("Refresh() waits for clientCA %s", path)
		}
	}
}

func TestAnExpiredCertificateIsReported(t *testing.T) {
	h := newRig(t)
	h.install(-time.Hour)
	if err := h.files.Refresh(); err == nil || !strings.Contains(err.Error(), h.paths.Certificate+" expired on ") || !strings.Contains(err.Error(), "replace it and its key") {
		t.Errorf("Refresh() = %v, want that it is over, and what to do", err)
	}
	if h.log.Count("is not valid") != 1 {
		t.Errorf("the log does not say that it is over, once:\n%s", h.log.String())
	}
	if _, ends := h.files.Validity(); ends.IsZero() {
		t.Error("Validity() has no end, want the time when the certificate expired")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.network().Serve(ctx, &http.Server{}) }()
	select {
	case err := <-h.heartbeats:
		if err == nil || !strings.Contains(err.Error(), " expired on ") {
			t.Errorf("Heartbeat(%v), want that it is over: the loop is not well", err)
		}
	case <-time.After(bound):
		t.Error("no heartbeat while the certificate has expired")
	}
	cancel()
	<-ended
}

func TestErrorsOfServeHaveAHint(t *testing.T) {
	h := newRig(t)
	taken, err := net.Listen("tcp", h.address)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for address, want := range map[string]string{
		h.address:      "address already in use: run `ss -ltnp` to find the process that uses it, or set another port, or set it to \"\"",
		"192.0.2.7:0":  "cannot assign requested address: run `ip address` and set one of",
		"192.0.2.7:no": "set another address or port, or set it to \"\"",
	} {
		n := h.network()
		n.Address = address
		if err := n.Serve(t.Context(), &http.Server{}); err == nil || !strings.Contains(err.Error(), "serve api.listen: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("Serve() at %s = %v, want %q", address, err, want)
		}
	}
	h.files = listen.NewFiles(listen.Paths{Certificate: "/no/such.crt", Key: "/no/such.key", ClientCA: "/no/ca.crt", Section: "api.tls"}, h.log.Logger())
	if err := h.network().Serve(t.Context(), &http.Server{}); err == nil || !strings.Contains(err.Error(), "/no/such.crt") || !strings.Contains(err.Error(), "create the file") {
		t.Errorf("Serve() without files = %v, want a hint", err)
	}
}

// listening waits until the server listens, or until it has stopped.
func (h *rig) listening(want bool) {
	h.t.Helper()
	for end := time.Now().Add(bound); time.Now().Before(end); {
		c, err := net.Dial("tcp", h.address)
		if err == nil {
			c.Close()
		}
		if (err == nil) == want {
			return
		}
	}
	h.t.Errorf("that somebody listens is not %t", want)
}

func TestRequestsInProgressAreAnswered(t *testing.T) {
	h := newRig(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended, beaten := make(chan error, 1), false
	release := make(chan struct{})
	n := h.network()
	n.Heartbeat = func(error) { <-release; beaten = true } // like a slow heartbeat
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		h.listening(false)
		_, _ = io.WriteString(w, "done")
	})}
	go func() { ended <- n.Serve(ctx, server) }()
	h.listening(true)
	if text, _, err := h.asks(h.friend(), nil); err != nil || text != "done" {
		t.Errorf("a client that asked before the end receives %q, %v, want the answer", text, err)
	}
	close(release)
	if err := <-ended; !errors.Is(err, context.Canceled) || !beaten {
		t.Errorf("Serve() = %v, last heartbeat returned: %t, want that it was cancelled, after the last heartbeat", err, beaten)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
