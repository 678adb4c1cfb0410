package controlplanetest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"hostler.io/hostler/controlplane/conformance"
)

// TestAWireInjectsFaultsIntoTheServersAnswers has a server that sends each byte back and reports
// what it has received.
func TestAWireInjectsFaultsIntoTheServersAnswers(t *testing.T) {
	server, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan byte, 100)
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for b := make([]byte, 1); ; {
					if _, err := conn.Read(b); err != nil {
						return
					}
					received <- b[0]
					if _, err := conn.Write(b); err != nil {
						return
					}
				}
			}()
		}
	}()
	wire, err := NewWire(server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", fmt.Sprintf("localhost:%d", wire.Port()))
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	ask := func(conn net.Conn, patience time.Duration) error {
		b := []byte{'x'}
		if _, err := conn.Write(b); err != nil {
			return err
		}
		<-received
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		_, err := conn.Read(b)
		return err
	}
	hinder := func(f conformance.Fault) func() {
		restore, err := wire.InjectFault(f)
		if err != nil {
			t.Fatal(err)
		}
		return restore
	}

	conn := dial()
	if err := ask(conn, time.Minute); err != nil {
		t.Errorf("an answer over the wire = %v, want no error", err)
	}
	restore, started := hinder(conformance.Slow), time.Now()
	if err := ask(conn, time.Minute); err != nil || time.Since(started) < slowDelay {
		t.Errorf("an answer over a slow wire = %v after %v, want it after %v", err, time.Since(started), slowDelay)
	}
	restore()
	restore = hinder(conformance.NoAnswer)
	if err := ask(conn, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an answer over a silent wire = %v, want none", err)
	}
	restore()
	if err := ask(conn, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an answer over a connection that was silent = %v, want none", err)
	}
	conn = dial()
	if err := ask(conn, time.Minute); err != nil {
		t.Errorf("an answer over a new connection = %v, want no error", err)
	}
	restore = hinder(conformance.Lost)
	if err := ask(conn, time.Minute); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("an answer over a wire that loses it = %v, want that the connection breaks", err)
	}
	restore()
	conn = dial()
	if err := ask(conn, time.Minute); err != nil {
		t.Errorf("an answer over a new connection = %v, want no error", err)
	}
	if _, err := wire.InjectFault(conformance.WrongObject); !errors.As(err, new(*conformance.UntriedError)) {
		t.Errorf("InjectFault(WrongObject) = %v, want UntriedError", err)
	}
	if err := errors.Join(wire.Close(), server.Close()); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(conn); err == nil {
		return // the end
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection after Close() = %v, want it cut", err)
	}
}

// greeting starts a server that sends a letter to each client.
func greeting(t *testing.T, letter byte) (address string) {
	t.Helper()
	server, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = conn.Write([]byte{letter})
				_, _ = io.Copy(io.Discard, conn) // until the connection is cut
			}()
		}
	}()
	return server.Addr().String()
}

func TestAWireConnectsToTheTamperedServer(t *testing.T) {
	wire, err := NewWire(greeting(t, 't'))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = wire.Close() })
	wire.Tamper = greeting(t, 'l')
	var last net.Conn
	greets := func(want byte) {
		t.Helper()
		conn, err := net.Dial("tcp", fmt.Sprintf("localhost:%d", wire.Port()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		b := make([]byte, 1)
		if _, err := io.ReadFull(conn, b); err != nil || b[0] != want {
			t.Errorf("who is at the other end says %q, %v, want %q", b, err, want)
		}
		if last != nil {
			if err := last.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := last.Read(b); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the connection before reads %v, want it cut", err)
			}
		}
		last = conn
	}
	greets('t')
	restore, err := wire.InjectFault(conformance.WrongObject)
	if err != nil {
		t.Fatal(err)
	}
	greets('l')
	restore()
	greets('t')
	restore() // a second call changes nothing
	if err := last.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection after another restore() = %v, want it whole", err)
	}
}
