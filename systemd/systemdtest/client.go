package systemdtest

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// client is a connection to the server.
type client struct {
	server *server
	conn   net.Conn // a *net.UnixConn, or one end of a pipe
	slow   *slow    // nil if it gets answers at once
	unique string   // set by Hello; guarded by server.mu

	rules []map[string]string // guarded by server.mu

	writing sync.Mutex
	serial  uint32 // guarded by writing
}

// serve answers calls one after the other, until the connection ends.
func (c *client) serve() {
	gone := make(chan struct{})
	defer func() {
		close(gone)
		c.conn.Close()
		c.server.mu.Lock()
		delete(c.server.clients, c)
		c.server.mu.Unlock()
	}()
	in := bufio.NewReader(c.conn)
	if err := c.authenticate(in); err != nil {
		return
	}
	for {
		msg, err := dbus.DecodeMessage(in)
		if err != nil {
			return
		}
		c.server.mu.Lock()
		gate := c.server.held[text(msg, dbus.FieldMember)]
		c.server.mu.Unlock()
		switch {
		case gate != nil:
			go func() {
				<-gate
				c.handle(msg)
			}()
		case c.slow != nil: // a caller's write must not wait for slow answers
			go c.slow.answer(gone, func() { c.handle(msg) })
		default:
			c.handle(msg)
		}
	}
}

// slow delays each answer; one after the other for all clients.
type slow struct {
	takes time.Duration
	turn  chan struct{} // has an element during an answer
}

// answer calls how after the delay, unless the client has disconnected.
func (s *slow) answer(gone <-chan struct{}, how func()) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-gone:
		return
	}
	select {
	case <-time.After(s.takes):
		how()
	case <-gone:
	}
}

// text returns a header field as a string, for all D-Bus string types.
func text(msg *dbus.Message, field dbus.HeaderField) string {
	switch value := msg.Headers[field].Value().(type) {
	case string:
		return value
	case dbus.ObjectPath:
		return string(value)
	case dbus.Signature:
		return value.String()
	}
	return ""
}

func (c *client) handle(msg *dbus.Message) {
	destination := text(msg, dbus.FieldDestination)
	if msg.Type != dbus.TypeMethodCall {
		c.forward(destination, msg)
		return
	}
	var answer []any
	var fault *dbus.Error
	if destination == busName && c.server.peer == nil {
		answer, fault = c.bus(msg)
	} else {
		answer, fault = c.dispatch(destination, msg)
	}
	for _, value := range answer {
		if fd, ok := value.(dbus.UnixFD); ok {
			defer unix.Close(int(fd))
		}
	}
	if msg.Flags&dbus.FlagNoReplyExpected != 0 {
		return
	}
	reply := &dbus.Message{Type: dbus.TypeMethodReply, Body: answer, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldReplySerial: dbus.MakeVariant(msg.Serial()),
		dbus.FieldSender:      dbus.MakeVariant(cmp.Or(destination, busName)),
	}}
	if fault != nil {
		reply.Type, reply.Body = dbus.TypeError, fault.Body
		reply.Headers[dbus.FieldErrorName] = dbus.MakeVariant(fault.Name)
	}
	c.send(reply)
}

// dispatch finds the service and returns its answer.
func (c *client) dispatch(destination string, msg *dbus.Message) ([]any, *dbus.Error) {
	c.server.mu.Lock()
	greeted := c.unique != "" || c.server.peer != nil
	svc := c.server.find(destination)
	c.server.mu.Unlock()
	if !greeted {
		return nil, fault(busError+"AccessDenied", "client tried to send a message without first having called Hello")
	}
	if svc == nil {
		return nil, fault(busError+"ServiceUnknown", "the name %s was not provided", destination)
	}
	return svc.answer(msg)
}

// answer finds the method, checks the call strictly, and calls the method.
func (svc *service) answer(msg *dbus.Message) ([]any, *dbus.Error) {
	path, name, member := text(msg, dbus.FieldPath), text(msg, dbus.FieldInterface), text(msg, dbus.FieldMember)
	object, ok := svc.objects[dbus.ObjectPath(path)]
	if !ok && svc.find != nil {
		object, ok = svc.find(dbus.ObjectPath(path))
	}
	if !ok {
		return nil, fault(busError+"UnknownObject", "unknown object %q", path)
	}
	var found method
	switch name + "." + member {
	case "org.freedesktop.DBus.Properties.Get":
		found = object.get()
	case "org.freedesktop.DBus.Properties.GetAll":
		found = object.getAll()
	default:
		iface, ok := object[name]
		if !ok {
			return nil, fault(busError+"UnknownInterface", "unknown interface %q", name)
		}
		if found, ok = iface.methods[member]; !ok {
			return nil, fault(busError+"UnknownMethod", "unknown method %s", member)
		}
	}
	if in := text(msg, dbus.FieldSignature); in != found.in {
		return nil, fault(busError+"InvalidArgs", "%s takes %q, not %q", member, found.in, in)
	}
	return found.call(msg.Body)
}

// handler lets a connection to a real bus answer as a service.
type handler struct{ service *service }

// LookupObject implements dbus.Handler: answer finds everything.
func (h handler) LookupObject(dbus.ObjectPath) (dbus.ServerObject, bool) { return h, true }

// LookupInterface implements dbus.ServerObject.
func (h handler) LookupInterface(string) (dbus.Interface, bool) { return h, true }

// LookupMethod implements dbus.Interface.
func (h handler) LookupMethod(string) (dbus.Method, bool) { return h, true }

// DecodeArguments implements dbus.ArgumentDecoder: answer uses the message.
func (handler) DecodeArguments(_ *dbus.Conn, _ string, msg *dbus.Message, _ []any) ([]any, error) {
	return []any{msg}, nil
}

// Call implements dbus.Method.
func (h handler) Call(args ...any) ([]any, error) {
	answer, fault := h.service.answer(args[0].(*dbus.Message))
	if fault != nil {
		return nil, fault
	}
	return answer, nil
}

// NumArguments, NumReturns, ArgumentValue and ReturnValue implement dbus.Method. They are only used
// without DecodeArguments.
func (handler) NumArguments() int     { return 0 }
func (handler) NumReturns() int       { return 0 }
func (handler) ArgumentValue(int) any { return nil }
func (handler) ReturnValue(int) any   { return nil }

// get returns org.freedesktop.DBus.Properties.Get of the object.
func (o object) get() method {
	return method{in: "ss", call: func(args []any) ([]any, *dbus.Error) {
		iface, ok := o[args[0].(string)]
		if !ok {
			return nil, fault(busError+"UnknownInterface", "unknown interface %q", args[0])
		}
		read, ok := iface.properties[args[1].(string)]
		if !ok {
			return nil, fault(busError+"UnknownProperty", "unknown property %q", args[1])
		}
		return []any{dbus.MakeVariant(read())}, nil
	}}
}

// getAll returns org.freedesktop.DBus.Properties.GetAll of the object. Without an interface it
// returns the properties of all, as systemd does.
func (o object) getAll() method {
	return method{in: "s", call: func(args []any) ([]any, *dbus.Error) {
		of := args[0].(string)
		if _, ok := o[of]; !ok && of != "" {
			return nil, fault(busError+"UnknownInterface", "unknown interface %q", of)
		}
		values := map[string]dbus.Variant{}
		for name, iface := range o {
			for property, read := range iface.properties {
				if of == "" || of == name {
					values[property] = dbus.MakeVariant(read())
				}
			}
		}
		return []any{values}, nil
	}}
}

func fault(name, format string, args ...any) *dbus.Error {
	return dbus.NewError(name, []any{fmt.Sprintf(format, args...)})
}

// bus answers for the bus itself.
func (c *client) bus(msg *dbus.Message) ([]any, *dbus.Error) {
	member := text(msg, dbus.FieldMember)
	wants := map[string]string{"Hello": "", "AddMatch": "s", "RemoveMatch": "s", "GetNameOwner": "s"}
	in, ok := wants[member]
	if !ok || text(msg, dbus.FieldInterface) != busName || text(msg, dbus.FieldPath) != string(busPath) {
		return nil, fault(busError+"UnknownMethod", "unknown method %s", member)
	}
	if text(msg, dbus.FieldSignature) != in {
		return nil, fault(busError+"InvalidArgs", "%s takes %q", member, in)
	}
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if (c.unique == "") != (member == "Hello") {
		return nil, fault(busError+"AccessDenied", "Hello comes first, and once")
	}
	switch member {
	case "Hello":
		s.serials++
		c.unique = fmt.Sprintf(":1.%d", s.serials)
		return []any{c.unique}, nil
	case "GetNameOwner":
		if svc := s.find(msg.Body[0].(string)); svc != nil {
			return []any{svc.unique}, nil
		}
		return nil, fault(busError+"NameHasNoOwner", "could not get owner of name %q", msg.Body[0])
	}
	rule, err := parseRule(msg.Body[0].(string))
	if err != nil {
		return nil, fault(busError+"MatchRuleInvalid", "%v", err)
	}
	if member == "AddMatch" {
		c.rules = append(c.rules, rule)
		if reported := s.subscribed; reported != nil {
			func() {
				s.mu.Unlock()
				defer s.mu.Lock()
				reported(rule["member"])
			}()
		}
		return nil, nil
	}
	i := slices.IndexFunc(c.rules, func(r map[string]string) bool { return fmt.Sprint(r) == fmt.Sprint(rule) })
	if i < 0 {
		return nil, fault(busError+"MatchRuleNotFound", "no such rule")
	}
	c.rules = slices.Delete(c.rules, i, i+1)
	return nil, nil
}

// parseRule parses key='value' pairs of the D-Bus specification.
func parseRule(text string) (map[string]string, error) {
	rule := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || !slices.Contains([]string{"type", "sender", "path", "interface", "member", "arg0"}, key) ||
			len(value) < 2 || value[0] != '\'' || value[len(value)-1] != '\'' {
			return nil, fmt.Errorf("invalid match rule %q", text)
		}
		rule[key] = value[1 : len(value)-1]
	}
	return rule, nil
}

// matches reports whether a rule matches a signal. The caller holds mu.
func (s *server) matches(rule map[string]string, sender string, path dbus.ObjectPath, iface, member string, body []any) bool {
	for key, want := range rule {
		var is string
		switch key {
		case "type":
			is = "signal"
		case "sender":
			is = sender
			if svc := s.find(want); svc != nil {
				want = svc.unique
			}
		case "path":
			is = string(path)
		case "interface":
			is = iface
		case "member":
			is = member
		case "arg0":
			if len(body) > 0 {
				is, _ = body[0].(string)
			}
		}
		if is != want {
			return false
		}
	}
	return true
}

// forward sends a message to one client, like a bus for a unique name.
func (c *client) forward(destination string, msg *dbus.Message) {
	c.server.mu.Lock()
	var to *client
	for other := range c.server.clients {
		if destination != "" && other.unique == destination {
			to = other
		}
	}
	msg.Headers[dbus.FieldSender] = dbus.MakeVariant(c.unique)
	c.server.mu.Unlock()
	if to != nil {
		to.send(msg)
	}
}

// send writes a message with its descriptors. If the client is gone, its reader notices.
func (c *client) send(msg *dbus.Message) {
	if len(msg.Body) > 0 {
		msg.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(msg.Body...))
	}
	if count, err := msg.CountFds(); err == nil && count > 0 {
		msg.Headers[dbus.FieldUnixFDs] = dbus.MakeVariant(uint32(count))
	}
	var out bytes.Buffer
	fds, err := msg.EncodeToWithFDs(&out, binary.LittleEndian)
	if err != nil {
		panic(fmt.Sprintf("systemdtest: encode %v: %v", msg.Headers, err))
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	c.serial++
	binary.LittleEndian.PutUint32(out.Bytes()[8:], c.serial) // the package encodes 0, which no bus sends
	if socket, ok := c.conn.(*net.UnixConn); ok {
		_, _, _ = socket.WriteMsgUnix(out.Bytes(), rights, nil)
	} else {
		_, _ = c.conn.Write(out.Bytes())
	}
}
