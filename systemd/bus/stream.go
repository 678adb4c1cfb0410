package bus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// stream is the socket of a bus, without the messages of strangers. The bus lets every user send
// signals to one connection. Some make the decoder panic, others take all its time or memory. So a
// signal is decoded only if it is from the bus, or from the owner of a name that this connection
// has asked for. A reply is always to a request: the bus drops others. Requests to this process are
// dropped here.
//
// Reads and writes may be concurrent, as with a socket.
type stream struct {
	*net.UnixConn
	takesFiles bool // whether replies may contain descriptors

	started bool // the authentication has ended; does not change after that

	// The reader owns these.
	senders []string // unique names; a bus does not use one again
	pending []byte   // read, and not yet returned
	body    int64    // bytes of the body that follow pending

	mu     sync.Mutex // guards what follows
	files  []*os.File // of replies
	closed bool
}

// Lengths in bytes.
const (
	fixedHeader = 16
	maxFields   = 64 << 10 // of a header; messages with longer ones are dropped
	maxOwn      = 64 << 10 // of the body of a message of the bus that may report an owner
)

// Lines of the authentication. The first one ends it.
var (
	beginning   = []byte("BEGIN\r\n")
	negotiation = []byte("NEGOTIATE_UNIX_FD\r\n")
	agreement   = []byte("AGREE_UNIX_FD\r\n")
)

// connect connects to the first address of a list that answers. They are of type unix.
func connect(addresses string, takesFiles bool) (*stream, error) {
	var faults []error
	for address := range strings.SplitSeq(addresses, ";") {
		path, err := socketOf(address)
		if err == nil {
			var conn *net.UnixConn
			if conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"}); err == nil {
				return &stream{UnixConn: conn, takesFiles: takesFiles, senders: []string{Name}}, nil
			}
		}
		faults = append(faults, err)
	}
	return nil, errors.Join(faults...)
}

// socketOf returns the path in an address such as unix:path=/run/dbus/system_bus_socket.
func socketOf(address string) (string, error) {
	keys, ok := strings.CutPrefix(address, "unix:")
	for pair := range strings.SplitSeq(keys, ",") {
		key, value, _ := strings.Cut(pair, "=")
		prefix, known := map[string]string{"path": "", "abstract": "@"}[key]
		if !ok || !known {
			continue
		}
		path, err := dbus.UnescapeBusAddressValue(value)
		if err != nil {
			return "", fmt.Errorf("address %q: %w", address, err)
		}
		return prefix + path, nil
	}
	return "", fmt.Errorf("address %q has no path of a socket", address)
}

// Write also notices the end of the authentication, and negotiates descriptors before it.
func (s *stream) Write(p []byte) (int, error) {
	if s.started || !bytes.Equal(p, beginning) {
		return s.UnixConn.Write(p)
	}
	if s.takesFiles {
		if _, err := s.UnixConn.Write(negotiation); err != nil {
			return 0, err
		}
		answer := make([]byte, len(agreement))
		if _, err := io.ReadFull(s.UnixConn, answer); err != nil {
			return 0, err
		}
		if !bytes.Equal(answer, agreement) {
			return 0, fmt.Errorf("the bus refuses to pass descriptors: it answers %q", answer)
		}
	}
	s.started = true
	return s.UnixConn.Write(p)
}

// Read returns the next bytes of accepted messages.
func (s *stream) Read(p []byte) (int, error) {
	if !s.started {
		return s.UnixConn.Read(p)
	}
	for len(s.pending) == 0 && s.body == 0 {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	if len(s.pending) > 0 {
		n := copy(p, s.pending)
		s.pending = s.pending[n:]
		return n, nil
	}
	n, err := s.UnixConn.Read(p[:min(int64(len(p)), s.body)])
	s.body -= int64(n)
	return n, err
}

// message is what is read of a header.
type message struct {
	kind           dbus.Type
	sender, member string
}

// next reads a message up to its body, and drops it unless it is accepted.
func (s *stream) next() error {
	received := &received{conn: s.UnixConn}
	defer received.close()
	head := make([]byte, fixedHeader)
	if _, err := io.ReadFull(received, head); err != nil {
		return err
	}
	var order binary.ByteOrder
	switch head[0] {
	case 'l':
		order = binary.LittleEndian
	case 'B':
		order = binary.BigEndian
	default:
		return fmt.Errorf("the bus sends a message in byte order %q", head[0])
	}
	body, length := int64(order.Uint32(head[4:])), int64(order.Uint32(head[12:]))
	padded := (length + 7) &^ 7
	if padded > maxFields {
		return s.drop(padded + body)
	}
	head = append(head, make([]byte, padded)...)
	if _, err := io.ReadFull(s.UnixConn, head[fixedHeader:]); err != nil {
		return err
	}
	m, err := parse(head[fixedHeader:fixedHeader+length], order)
	m.kind = dbus.Type(head[1])
	if err != nil || !s.accepts(m) {
		return s.drop(body)
	}
	s.pending, s.body = head, body
	if m.kind == dbus.TypeMethodReply {
		s.keep(received)
	}
	if m.sender == Name && body <= maxOwn {
		return s.learn(m)
	}
	return nil
}

func (s *stream) drop(length int64) error {
	_, err := io.CopyN(io.Discard, s.UnixConn, length)
	return err
}

// accepts reports whether a message may be decoded.
func (s *stream) accepts(m message) bool {
	switch m.kind {
	case dbus.TypeMethodReply, dbus.TypeError:
		return true
	case dbus.TypeSignal:
		return slices.Contains(s.senders, m.sender)
	}
	return false
}

// learn reads a message of the bus. The bus reports the owner of a name as the last value, in a
// reply and once it changes.
func (s *stream) learn(m message) error {
	head := len(s.pending)
	s.pending = append(s.pending, make([]byte, s.body)...)
	s.body = 0
	if _, err := io.ReadFull(s.UnixConn, s.pending[head:]); err != nil {
		return err
	}
	if m.kind != dbus.TypeMethodReply && m.member != "NameOwnerChanged" {
		return nil
	}
	decoded, err := dbus.DecodeMessage(bytes.NewReader(s.pending))
	if err != nil {
		return err
	}
	if len(decoded.Body) == 0 {
		return nil
	}
	owner, ok := decoded.Body[len(decoded.Body)-1].(string)
	if ok && strings.HasPrefix(owner, ":") && !slices.Contains(s.senders, owner) {
		s.senders = append(s.senders, owner)
	}
	return nil
}

var errHeader = errors.New("the header of a message is invalid")

// parse reads the fields of a header. Each is a code and a variant, and begins at a multiple of 8.
func parse(fields []byte, order binary.ByteOrder) (m message, err error) {
	for len(fields) > 0 {
		// The variant: the length of its signature, which is 1, the signature, 0, and the value.
		const start = 4
		if len(fields) < start+1 || fields[1] != 1 || fields[3] != 0 {
			return m, errHeader
		}
		value, length := int64(start), int64(0) // of the text without its end, which is 0
		switch kind := fields[2]; {
		case kind == 'g':
			value, length = value+1, int64(fields[value])+1
		case len(fields) < start+4:
			return m, errHeader
		case kind == 's' || kind == 'o':
			value, length = value+4, int64(order.Uint32(fields[value:]))+1
		case kind == 'u':
			value += 4
		default:
			return m, errHeader
		}
		end := value + length
		if end > int64(len(fields)) {
			return m, errHeader
		}
		text := string(fields[value:max(value, end-1)])
		switch dbus.HeaderField(fields[0]) {
		case dbus.FieldSender:
			if m.sender != "" {
				return m, errHeader
			}
			m.sender = text
		case dbus.FieldMember:
			m.member = text
		}
		fields = fields[min((end+7)&^7, int64(len(fields))):]
	}
	return m, nil
}

// received are the descriptors that came with a message, which are those of its first byte.
type received struct {
	conn  *net.UnixConn
	files []*os.File
}

// Read collects descriptors.
func (r *received) Read(p []byte) (int, error) {
	control := make([]byte, 2<<10) // for the most that Linux passes at once
	n, length, _, _, err := r.conn.ReadMsgUnix(p, control)
	if err != nil {
		return n, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:length])
	for _, m := range messages {
		numbers, fault := unix.ParseUnixRights(&m)
		err = errors.Join(err, fault)
		for _, fd := range numbers {
			r.files = append(r.files, os.NewFile(uintptr(fd), "descriptor from the bus"))
		}
	}
	return n, err
}

// close closes the descriptors that nobody has taken.
func (r *received) close() {
	for _, f := range r.files {
		f.Close()
	}
}

// keep takes the descriptors of a reply.
func (s *stream) keep(r *received) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.files, r.files = append(s.files, r.files...), nil
	}
}

// file returns the descriptor that the one reply contained.
func (s *stream) file() (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.files) != 1 {
		return nil, fmt.Errorf("the answer has %d descriptors, want 1", len(s.files))
	}
	file := s.files[0]
	s.files = nil
	return file, nil
}

// Close also closes descriptors that nobody has taken.
func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	(&received{files: s.files}).close()
	s.files = nil
	return s.UnixConn.Close()
}
