package plugin

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"syscall"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/trust"
)

// maxPath is the longest path that a socket can have (unix(7)).
const maxPath = 107

// untrustedError reports that users other than root and hostler's own may serve the socket.
type untrustedError struct {
	path string
	why  string
	fix  string
}

func (e *untrustedError) Error() string { return e.path + " " + e.why + ": " + e.fix }

// Unwrap returns its classes: no request was sent.
func (e *untrustedError) Unwrap() []error {
	return []error{controlplane.ErrUnavailable, controlplane.ErrUntrusted}
}

// trusted refuses a socket that other users could serve or write to. A missing socket is accepted: it
// may appear later.
func trusted(path string) error {
	_, info, err := trust.Path(path)
	untrusted, refused := errors.AsType[*trust.Error](err)
	switch {
	case refused:
		return &untrustedError{untrusted.Subject, untrusted.Why + ", but its server acts for this host", untrusted.Hint}
	case err != nil:
		return nil // connect reports the error
	case info.Mode().Type() != fs.ModeSocket:
		return &untrustedError{path, "is not a socket", "remove the file; a plugin listens on a unix socket"}
	}
	return nil
}

// dial connects to the plugin, and records the error.
func (s *Store) dial(ctx context.Context) (net.Conn, error) {
	conn, err := connect(ctx, s.o.Socket)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused = err; err == nil {
		s.dials.Add(1)
	}
	return conn, err
}

// connect connects to a trusted socket of a trusted server.
func connect(ctx context.Context, path string) (net.Conn, error) {
	if err := trusted(path); err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("socket does not exist: is the plugin running?")
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, errors.New("nothing listens on it: is the plugin running?")
	case err != nil:
		return nil, err
	}
	if err := served(conn, path); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// served refuses a server that does not run as the owner of the trusted socket: the file may have
// been replaced since it was checked.
func served(conn net.Conn, path string) error {
	err := trust.ServedByRoot(conn, path)
	if untrusted, refused := errors.AsType[*trust.Error](err); refused {
		return &untrustedError{untrusted.Subject, untrusted.Why, "run the plugin as root, or as the user that hostler runs as"}
	}
	return err
}
