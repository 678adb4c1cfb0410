package lab

import (
	"errors"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// activator listens on Podman's socket as systemd does with podman.socket. It starts the service at
// a connection, passes the socket to it, and listens again when the service ends.
type activator struct {
	listener *net.UnixListener
	daemon   *Daemon
	ended    chan struct{}

	mu     sync.Mutex
	starts int
	closed bool
}

func activate(d *Daemon) (*activator, error) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: podmanSocket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	file, err := listener.File()
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	d.files = []*os.File{file} // the service's third descriptor
	a := &activator{listener: listener, daemon: d, ended: make(chan struct{})}
	go a.run()
	return a, nil
}

func (a *activator) run() {
	defer close(a.ended)
	waiting := []unix.PollFd{{Fd: int32(a.daemon.files[0].Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(waiting, 100) // milliseconds, so that close is noticed
		a.mu.Lock()
		if a.closed || err != nil && !errors.Is(err, unix.EINTR) {
			a.mu.Unlock()
			return
		}
		var done chan struct{}
		if n > 0 {
			a.starts++
			if err := a.daemon.Start(); err != nil {
				a.mu.Unlock()
				return // the client gets no answer
			}
			done = a.daemon.done
		}
		a.mu.Unlock()
		if done != nil {
			<-done
		}
	}
}

// Starts returns how often a connection has started the service.
func (p *Podman) Starts() int {
	p.socket.mu.Lock()
	defer p.socket.mu.Unlock()
	return p.socket.starts
}

func (a *activator) close() error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	err := errors.Join(a.listener.Close(), a.daemon.Kill())
	<-a.ended
	return errors.Join(err, a.daemon.files[0].Close())
}
