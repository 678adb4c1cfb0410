package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

const (
	// perAddress and maxConnections bound connections over the network. They allow several programs
	// on a host, and several hosts.
	perAddress     = 32
	maxConnections = 128
	// perUser and allUsers bound connections to what is served only on loopback. They allow several
	// programs on this host.
	perUser  = 8
	allUsers = 32
	// checkTime is how often the files are read while there are no connections.
	checkTime = 10 * time.Second
	// closeTime bounds how long requests may continue after ctx has ended.
	closeTime = 2 * time.Second
)

// Network serves HTTP over the network.
type Network struct {
	Key     string // the configuration key of the address
	Address string
	Files   *Files // nil for no TLS
	// Beyond allows addresses beyond loopback without TLS.
	Beyond bool
	Log    *slog.Logger
	// Heartbeat receives the state of the files, at the start and then every few seconds.
	Heartbeat func(error)
}

// Serve runs the server until ctx ends, and then lets requests finish for a short time. If the
// address is in use, or the files are invalid at the start, it returns an error, and may be called
// again with another server. Each connection serves one request, so that each request is checked
// against the current certificates.
func (n Network) Serve(ctx context.Context, server *http.Server) error {
	if err := n.usable(); err != nil {
		return fmt.Errorf("serve %s: %w", n.Key, err)
	}
	l, err := net.Listen("tcp", n.Address)
	if err != nil {
		return fmt.Errorf("serve %s: %w: %s, or set it to \"\"", n.Key, err, fix(err))
	}
	if at, is := l.Addr().(*net.TCPAddr); n.Files == nil && !n.Beyond && (!is || !at.IP.IsLoopback()) {
		_ = l.Close()
		return fmt.Errorf("serve %s: %s is %s, which is beyond loopback; set it to 127.0.0.1 with a port", n.Key, n.Address, l.Addr())
	}
	server.SetKeepAlivesEnabled(false)
	server.ErrorLog = log.New(serverErrors{n.Log}, "", 0)
	defer server.Close()
	n.Log.Info("serving network API", "address", l.Addr())
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		closing, done := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer done()
		_ = server.Shutdown(closing) // requests that still run are ended above
	})
	defer stop()
	var checks sync.WaitGroup
	defer checks.Wait() // else a late heartbeat could report success after a failure
	checking, end := context.WithCancel(ctx)
	defer end()
	checks.Go(func() { n.check(checking) })
	l = Bound(l, Bounds{Each: perAddress, All: maxConnections, Who: caller, Log: n.Log})
	if n.Files != nil {
		l = tls.NewListener(l, n.Files.config())
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", n.Key, err)
	}
	<-closed
	return ctx.Err()
}

// usable returns an error if the files cannot be used at all.
func (n Network) usable() error {
	if n.Files == nil {
		return nil
	}
	err := n.Files.Refresh()
	if _, ends := n.Files.Validity(); ends.IsZero() {
		return err
	}
	return nil
}

// fix returns how to fix an address at which hostler cannot listen.
func fix(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "run `ss -ltnp` to find the process that uses it, or set another port"
	case errors.Is(err, syscall.EACCES):
		return "set a port above 1023; lower ports require CAP_NET_BIND_SERVICE, which the service lacks (/usr/share/doc/hostler/docs/howto/service-rights.md)"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "run `ip address` and set one of this host's addresses, or [::] for all"
	}
	return "set another address or port"
}

// check passes the state of the files to Heartbeat until ctx ends.
func (n Network) check(ctx context.Context) {
	tick := time.NewTicker(checkTime)
	defer tick.Stop()
	for {
		var err error
		if n.Files != nil {
			err = n.Files.Refresh()
		}
		n.Heartbeat(err)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// serverErrors logs the errors of an HTTP server. Failed handshakes are at debug level, because
// they are not a problem of this host and anybody can cause any number of them.
type serverErrors struct{ log *slog.Logger }

// Write implements io.Writer.
func (c serverErrors) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.Contains(line, []byte("TLS handshake error")) {
		level = slog.LevelDebug
	}
	c.log.Log(context.Background(), level, "network API server error", "error", string(bytes.TrimSpace(line)))
	return len(line), nil
}
