package bus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// sent is a signal from a sender.
func sent(sender, member string, body ...any) *dbus.Message {
	m := &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath("/a")),
		dbus.FieldInterface: dbus.MakeVariant("a.b"),
		dbus.FieldMember:    dbus.MakeVariant(member),
		dbus.FieldSender:    dbus.MakeVariant(sender),
	}}
	if len(body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(body...))
	}
	return m
}

// answer is a reply.
func answer(sender string, body ...any) *dbus.Message {
	m := sent(sender, "", body...)
	m.Type = dbus.TypeMethodReply
	delete(m.Headers, dbus.FieldMember)
	m.Headers[dbus.FieldReplySerial] = dbus.MakeVariant(uint32(1))
	return m
}

// pair returns a stream that has authenticated, and its other end.
func pair(t *testing.T) (*stream, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.UnixConn
	for i, fd := range fds {
		file := os.NewFile(uintptr(fd), "pair")
		conn, err := net.FileConn(file)
		file.Close()
		if err != nil {
			t.Fatal(err)
		}
		ends[i] = conn.(*net.UnixConn)
		t.Cleanup(func() { ends[i].Close() })
	}
	return &stream{UnixConn: ends[0], takesFiles: true, started: true, senders: []string{Name}}, ends[1]
}

// write sends a message with descriptors, as the bus does: with the first byte.
func write(t *testing.T, to *net.UnixConn, order binary.ByteOrder, m *dbus.Message, files ...*os.File) {
	t.Helper()
	var text bytes.Buffer
	fds, err := m.EncodeToWithFDs(&text, order)
	if err != nil {
		t.Error(err)
	}
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	if len(fds) == 0 {
		if _, err := to.Write(text.Bytes()); err != nil {
			t.Error(err)
		}
		return
	}
	if _, _, err := to.WriteMsgUnix(text.Bytes(), unix.UnixRights(fds...), nil); err != nil {
		t.Error(err)
	}
}

// open returns how many descriptors this process has.
func open(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func TestOnlySignalsOfTheBusAndOfOwnersAreDecoded(t *testing.T) {
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		s, peer := pair(t)
		before := open(t)
		null, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer peer.Close()
			defer null.Close()
			write(t, peer, order, sent(":1.9", "Stranger", dbus.MakeVariant(int32(1))))
			write(t, peer, order, sent(":1.9", "Stranger", []dbus.UnixFD{dbus.UnixFD(null.Fd())})) // godbus panics on it
			write(t, peer, order, sent(":1.9", "Stranger"), slices.Repeat([]*os.File{null}, 16)...)
			long := sent(":1.9", "Long")
			long.Headers[dbus.FieldPath] = dbus.MakeVariant(dbus.ObjectPath("/" + strings.Repeat("x", maxFields)))
			write(t, peer, order, long)
			write(t, peer, order, sent(":1.9", "Large", bytes.Repeat([]byte{1}, 1<<20)))
			write(t, peer, order, sent(":1.5", "Early"))
			write(t, peer, order, answer(Name, ":1.5"))
			write(t, peer, order, sent(":1.5", "First", "text"))
			write(t, peer, order, sent(Name, "NameOwnerChanged", "org.freedesktop.login1", ":1.5", ":1.6"))
			write(t, peer, order, sent(":1.6", "Second"))
			write(t, peer, order, sent(":1.6", "NameOwnerChanged", "org.freedesktop.login1", ":1.5", ":1.9")) // not from the bus
			write(t, peer, order, sent(":1.9", "Stranger"))
			call := sent(":1.6", "Call")
			call.Type = dbus.TypeMethodCall
			write(t, peer, order, call)
			write(t, peer, order, answer(":1.9", "text"), null)
		}()
		var got []string
		for {
			m, err := dbus.DecodeMessage(s)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			member, _ := m.Headers[dbus.FieldMember].Value().(string)
			got = append(got, member)
		}
		if want := []string{"", "First", "NameOwnerChanged", "Second", "NameOwnerChanged", ""}; !slices.Equal(got, want) {
			t.Errorf("messages = %q, want %q", got, want)
		}
		file, err := s.file()
		if err != nil {
			t.Fatalf("the descriptor of the answer: %v", err)
		}
		file.Close()
		if after := open(t); after != before-1 { // without that of the peer
			t.Errorf("%d descriptors are open, want %d", after, before-1)
		}
		s.Close()
	}
}

// A second sender, or another type of it, is no name.
func TestHeadersThatAreNotRead(t *testing.T) {
	valid := []byte{byte(dbus.FieldSender), 1, 's', 0, 2, 0, 0, 0, ':', '1', 0}
	if m, err := parse(valid, binary.LittleEndian); err != nil || m.sender != ":1" {
		t.Errorf("parse(%v) = %+v, %v, want the sender :1", valid, m, err)
	}
	for name, fields := range map[string][]byte{
		"two senders":         slices.Concat(valid, make([]byte, 5), valid),
		"an array":            {byte(dbus.FieldSender), 2, 'a', 'h', 0, 0, 0, 0},
		"a text that is long": {byte(dbus.FieldSender), 1, 's', 0, 3, 0, 0, 0, ':', '1', 0},
		"half a field":        valid[:6],
		"a code alone":        valid[:1],
	} {
		if m, err := parse(fields, binary.LittleEndian); err == nil {
			t.Errorf("parse() of %s = %+v, want an error", name, m)
		}
	}
	if m, err := parse([]byte{byte(dbus.FieldSender), 1, 'u', 0, 7, 0, 0, 0}, binary.LittleEndian); err != nil || m.sender != "" {
		t.Errorf("parse() of a number = %+v, %v, want no sender", m, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{byte(dbus.FieldSender), 1, 's', 0, 2, 0, 0, 0, ':', '1', 0}, false)
	f.Add([]byte{byte(dbus.FieldSignature), 1, 'g', 0, 1, 's', 0}, true)
	f.Fuzz(func(t *testing.T, fields []byte, big bool) {
		var order binary.ByteOrder = binary.LittleEndian
		if big {
			order = binary.BigEndian
		}
		m, err := parse(fields, order)
		if err == nil && len(m.sender)+len(m.member) > len(fields) {
			t.Errorf("parse(%v) = %+v, want texts of it", fields, m)
		}
	})
}
