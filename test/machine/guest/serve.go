package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hostler.io/hostler/systemd"
	"hostler.io/hostler/test/machine/wire"
)

// retryInterval is the interval of attempts to open the port, or to find a peer.
const retryInterval = 50 * time.Millisecond

// serve executes commands until the machine is down, over a virtio port in a VM, or a socket in a
// container.
func serve() error {
	hello, err := newHello()
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Dir(wire.Socket)); err == nil {
		return serveSocket(hello)
	}
	for {
		port, err := openPort()
		if err == nil {
			err = session(hello, port, port)
			_ = port.Close()
		}
		// There is no peer, or the driver is not loaded yet.
		fmt.Fprintln(os.Stderr, "guest:", err)
		time.Sleep(retryInterval)
	}
}

func serveSocket(hello wire.Hello) error {
	if err := os.Remove(wire.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", wire.Socket)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			_ = session(hello, conn, conn)
		}()
	}
}

// openPort finds the virtio port by its name. udev creates its link later.
func openPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		if name, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(name)) == wire.Port {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(file)), os.O_RDWR, 0)
		}
	}
	return nil, errors.New("no virtio port " + wire.Port)
}

// bootFile is the machine's boot ID. Containers of the machine do not see it: if the machine itself
// is a container, they see the host's.
const bootFile = "/proc/sys/kernel/random/boot_id"

func bootID(file string) (string, error) {
	id, err := os.ReadFile(file)
	return strings.TrimSpace(string(id)), err
}

func newHello() (wire.Hello, error) {
	boot, err := bootID(bootFile)
	if err != nil {
		return wire.Hello{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	manager := systemd.NewManager("")
	for {
		started, err := manager.StartedAt(ctx)
		if err == nil {
			return wire.Hello{Session: rand.Text(), BootID: boot, ManagerStartedAt: started}, nil
		}
		if ctx.Err() != nil {
			return wire.Hello{}, err
		}
		time.Sleep(retryInterval)
	}
}

// session serves one connection.
func session(hello wire.Hello, from io.Reader, to io.Writer) error {
	out, err := wire.NewWriter(to)
	if err != nil {
		return err
	}
	if err := out.Write(wire.Message{Hello: &hello}); err != nil {
		return err
	}
	commands := map[uint64]*command{}
	defer func() {
		for _, c := range commands {
			c.end()
		}
	}()
	return wire.Read(from, func(m wire.Message) {
		if m.Session != hello.Session {
			return
		}
		send := func(answer wire.Message) {
			answer.Session, answer.ID = m.Session, m.ID
			// A client that has disconnected needs no answer.
			_ = out.Write(answer)
		}
		switch {
		case m.Run == nil:
		case m.Run.Ask != "":
			go ask(m.Run.Ask, send)
		default:
			commands[m.ID] = start(*m.Run, send)
		}
		if c := commands[m.ID]; c != nil {
			c.receive(m)
		}
	})
}
