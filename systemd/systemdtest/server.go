package systemdtest

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

const (
	busName  = "org.freedesktop.DBus"
	busPath  = dbus.ObjectPath("/org/freedesktop/DBus")
	busError = "org.freedesktop.DBus.Error."
)

// server accepts D-Bus connections on a unix socket: as a bus with names and matches, or as a
// single peer like systemd's private socket.
type server struct {
	path string
	peer *service // answers all calls; nil on a bus

	mu       sync.Mutex
	listener *net.UnixListener
	clients  map[*client]bool
	names    map[string]*service // by well-known name
	serials  int                 // for unique names
	held     map[string]chan struct{}
	// subscribed is called with the member of each match rule, before the client gets an answer;
	// may be nil.
	subscribed func(member string)
}

// service is a service on the bus in this process.
type service struct {
	name    string
	unique  string
	objects map[dbus.ObjectPath]object
	find    func(dbus.ObjectPath) (object, bool) // finds further objects; may be nil
}

// object maps the names of interfaces to the interfaces.
type object map[string]iface

type iface struct {
	methods    map[string]method
	properties map[string]func() any
}

// method is called with arguments of exactly its signature. It returns the answer, or a
// *dbus.Error. Descriptors in the answer are closed after they are sent.
type method struct {
	in   string
	call func(args []any) ([]any, *dbus.Error)
}

func newServer(path string, peer *service) *server {
	return &server{path: path, peer: peer, clients: map[*client]bool{}, names: map[string]*service{}, held: map[string]chan struct{}{}}
}

func (s *server) start() error {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.listener = listener
	s.mu.Unlock()
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return // stopped
			}
			s.admit(&client{server: s, conn: conn})
		}
	}()
	return nil
}

func (s *server) admit(c *client) {
	s.mu.Lock()
	s.clients[c] = true
	s.mu.Unlock()
	go c.serve()
}

// stop closes all connections, and forgets the names.
func (s *server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		s.listener.Close()
		s.listener = nil
	}
	for c := range s.clients {
		c.conn.Close()
	}
	clear(s.names)
}

// hold blocks every call of member until release is called.
func (s *server) hold(member string) (release func()) {
	gate := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[member] = gate
	return sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.held, member)
		close(gate)
	})
}

// own gives svc its name and a new unique one; disown removes both.
func (s *server) own(svc *service) {
	s.mu.Lock()
	s.serials++
	svc.unique = fmt.Sprintf(":0.%d", s.serials)
	unique := svc.unique
	s.names[svc.name] = svc
	s.mu.Unlock()
	s.emit(nil, busPath, busName, "NameOwnerChanged", svc.name, "", unique)
}

func (s *server) disown(svc *service) {
	s.mu.Lock()
	unique, owned := svc.unique, s.names[svc.name] == svc
	delete(s.names, svc.name)
	s.mu.Unlock()
	if owned {
		s.emit(nil, busPath, busName, "NameOwnerChanged", svc.name, unique, "")
	}
}

// emit sends a signal from a service or, without one, from the bus itself. On a bus, clients with a
// match get it, else every client.
func (s *server) emit(from *service, path dbus.ObjectPath, iface, member string, body ...any) {
	s.mu.Lock()
	sender := busName
	if from != nil {
		sender = from.unique
	}
	var receivers []*client
	for c := range s.clients {
		if s.peer != nil {
			receivers = append(receivers, c)
		}
		for _, rule := range c.rules {
			if s.matches(rule, sender, path, iface, member, body) {
				receivers = append(receivers, c)
				break // once, even if several rules match
			}
		}
	}
	s.mu.Unlock()
	for _, c := range receivers {
		c.send(signal(sender, path, iface, member, body))
	}
}

func signal(sender string, path dbus.ObjectPath, iface, member string, body []any) *dbus.Message {
	headers := map[dbus.HeaderField]dbus.Variant{
		dbus.FieldPath:      dbus.MakeVariant(path),
		dbus.FieldInterface: dbus.MakeVariant(iface),
		dbus.FieldMember:    dbus.MakeVariant(member),
	}
	if sender != "" { // a peer has no name
		headers[dbus.FieldSender] = dbus.MakeVariant(sender)
	}
	return &dbus.Message{Type: dbus.TypeSignal, Body: body, Headers: headers}
}

// find returns the service for a destination. The caller holds mu.
func (s *server) find(destination string) *service {
	if s.peer != nil {
		return s.peer
	}
	for _, svc := range s.names {
		if svc.name == destination || svc.unique == destination {
			return svc
		}
	}
	return nil
}

// authenticate is the server's side of the D-Bus handshake, with EXTERNAL as the only mechanism.
func (c *client) authenticate(in *bufio.Reader) error {
	if zero, err := in.ReadByte(); err != nil || zero != 0 {
		return errors.New("no leading null byte")
	}
	authenticated := false
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		words := strings.Fields(line)
		answer := "ERROR"
		switch {
		case len(words) == 0:
		case words[0] == "AUTH" && (len(words) < 2 || words[1] != "EXTERNAL"):
			answer = "REJECTED EXTERNAL"
		case words[0] == "AUTH" && len(words) == 2:
			answer = "DATA"
		case words[0] == "AUTH" || words[0] == "DATA":
			answer = "REJECTED EXTERNAL"
			if len(words) == 1 || c.isUser(words[len(words)-1]) {
				authenticated = true
				answer = "OK 00000000000000000000000000000000"
			}
		case words[0] == "NEGOTIATE_UNIX_FD" && authenticated:
			answer = "AGREE_UNIX_FD"
		case words[0] == "BEGIN" && authenticated:
			return nil
		}
		if _, err := c.conn.Write([]byte(answer + "\r\n")); err != nil {
			return err
		}
	}
}

// isUser reports whether the hex-encoded user ID is the one of the peer's process.
func (c *client) isUser(encoded string) bool {
	claimed, err := hex.DecodeString(encoded)
	if err != nil {
		return false
	}
	socket, ok := c.conn.(*net.UnixConn)
	if !ok { // a pipe is always in the same process
		return string(claimed) == strconv.Itoa(os.Geteuid())
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	uid := -1
	err = raw.Control(func(fd uintptr) {
		if peer, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			uid = int(peer.Uid)
		}
	})
	return err == nil && string(claimed) == strconv.Itoa(uid) && uid == os.Geteuid()
}
