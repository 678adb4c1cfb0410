package systemd_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd"
)

// frozenBus accepts clients, and then reads nothing more, like a dbus-daemon that is stopped or
// waits for a disk.
func frozenBus(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bus")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go welcome(conn)
		}
	}()
	return "unix:path=" + path
}

func welcome(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		switch {
		case strings.Contains(line, "AUTH EXTERNAL"):
			_, _ = conn.Write([]byte("OK 1234\r\n"))
		case strings.HasPrefix(strings.TrimLeft(line, "\x00"), "AUTH"):
			_, _ = conn.Write([]byte("REJECTED EXTERNAL\r\n"))
		case strings.HasPrefix(line, "NEGOTIATE"):
			_, _ = conn.Write([]byte("AGREE_UNIX_FD\r\n"))
		case strings.HasPrefix(line, "BEGIN"):
			hello, err := dbus.DecodeMessage(in)
			if err != nil {
				return
			}
			reply := &dbus.Message{Type: dbus.TypeMethodReply, Headers: map[dbus.HeaderField]dbus.Variant{
				dbus.FieldReplySerial: dbus.MakeVariant(hello.Serial()),
				dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf("")),
			}, Body: []any{":1.1"}}
			_ = reply.EncodeTo(conn, binary.LittleEndian)
			return
		}
	}
}

func TestAFrozenBusBlocksNoCaller(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *systemd.Logind) error{
		"a question": func(ctx context.Context, l *systemd.Logind) error {
			_, err := l.MaxDelay(ctx)
			return err
		},
		"a list": func(ctx context.Context, l *systemd.Logind) error {
			_, err := l.ListInhibitors(ctx)
			return err
		},
		"a watch": func(ctx context.Context, l *systemd.Logind) error { return l.Watch(ctx, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logind := systemd.NewLogind(systemd.LogindOptions{Address: frozenBus(t)})
			asked := make(chan struct{})
			go func() {
				for range 400 { // twice what a socket can hold
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
					if err := ask(ctx, logind); err == nil {
						t.Errorf("%s was answered by a bus that is frozen", name)
					}
					cancel()
					asked <- struct{}{}
				}
				logind.Close()
				close(asked)
			}()
			for n, open := 0, true; open; n++ {
				select {
				case _, open = <-asked:
				case <-time.After(patience):
					t.Fatalf("call %d still hangs %v after its deadline", n+1, patience)
				}
			}
		})
	}
}
