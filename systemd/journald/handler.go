// Package journald writes the agent's log to systemd's journal, with a field for each attribute. It
// owns the protocol and the names of fields, and does not select what is logged. Entries that the
// journal does not accept are written to the log's stream.
package journald

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Socket is the journal's socket (systemd-journald.service(8)).
const Socket = "/run/systemd/journal/socket"

// Prefix begins the names of fields.
const Prefix = "HOSTLER_"

// Connected reports whether w writes to the journal, by the variable JOURNAL_STREAM that systemd
// sets for its services (systemd.exec(5)). A comparison with w is needed, because child processes
// inherit the variable, and may write somewhere else.
func Connected(w io.Writer, stream string) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		return false
	}
	return stream == strconv.FormatUint(s.Dev, 10)+":"+strconv.FormatUint(s.Ino, 10)
}

// Record is a log record, as a journal entry and as a line of text.
type Record struct {
	Entry []byte // for the journal's socket; nil if the record is for the stream only
	Line  []byte // with a newline
}

// Handler formats records for the journal. MESSAGE is the line of a text log without the time,
// which the journal adds. It is safe for concurrent use if its receiver is.
type Handler struct {
	text   slog.Handler // writes to line
	fields []byte       // fields of WithAttrs
	group  string       // prefix of names
	out    *out
}

// out is shared by the handlers of one log.
type out struct {
	receive func(Record)

	mu   sync.Mutex // guards line
	line bytes.Buffer
}

// New returns a handler that passes each record to receive.
func New(receive func(Record), level slog.Leveler) *Handler {
	o := &out{receive: receive}
	return &Handler{out: o, text: slog.NewTextHandler(&o.line, &slog.HandlerOptions{Level: level, ReplaceAttr: WithoutTime})}
}

// WithoutTime removes a record's time, for slog.HandlerOptions.
func WithoutTime(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) == 0 && attr.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return attr
}

// Enabled reports whether records of a level are written.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.text.Enabled(ctx, level)
}

// WithAttrs returns a handler that adds attrs to each record.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.text = h.text.WithAttrs(attrs)
	next.fields = bytes.Clone(h.fields)
	for _, attr := range attrs {
		next.fields = appendAttr(next.fields, h.group, attr)
	}
	return &next
}

// WithGroup returns a handler that adds a prefix to the names of attributes.
func (h *Handler) WithGroup(name string) slog.Handler {
	next := *h
	next.text = h.text.WithGroup(name)
	if name != "" {
		next.group = h.group + name + "_"
	}
	return &next
}

// Handle formats a record and passes it on.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	line, err := h.line(ctx, r)
	if err != nil {
		return err
	}
	entry := appendField(nil, "PRIORITY", priority(r.Level))
	entry = appendField(entry, "SYSLOG_IDENTIFIER", "hostler")
	entry = appendField(entry, "MESSAGE", string(bytes.TrimSuffix(line, []byte("\n"))))
	entry = append(entry, h.fields...)
	r.Attrs(func(attr slog.Attr) bool {
		entry = appendAttr(entry, h.group, attr)
		return true
	})
	h.out.receive(Record{Entry: entry, Line: line})
	return nil
}

// line formats a record as text.
func (h *Handler) line(ctx context.Context, r slog.Record) ([]byte, error) {
	h.out.mu.Lock()
	defer h.out.mu.Unlock()
	h.out.line.Reset()
	err := h.text.Handle(ctx, r)
	return bytes.Clone(h.out.line.Bytes()), err
}

// priority returns the number of a level in syslog(3).
func priority(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "3"
	case l >= slog.LevelWarn:
		return "4"
	case l >= slog.LevelInfo:
		return "6"
	}
	return "7"
}

// appendAttr appends an attribute as a field, or the attributes of a group as one field each.
func appendAttr(entry []byte, group string, attr slog.Attr) []byte {
	value := attr.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		if attr.Key != "" {
			group += attr.Key + "_"
		}
		for _, a := range value.Group() {
			entry = appendAttr(entry, group, a)
		}
		return entry
	}
	if attr.Key == "" {
		return entry
	}
	return appendField(entry, FieldName(group+attr.Key), value.String())
}

// FieldName returns the field name of an attribute: HOSTLER_FREED_BYTES for freedBytes. The
// component is named LOOP, because most components are loops.
func FieldName(key string) string {
	if key == "component" {
		key = "loop"
	}
	var b strings.Builder
	b.WriteString(Prefix)
	small := false // whether the previous letter is lowercase
	for _, r := range key {
		switch {
		case r >= 'A' && r <= 'Z' && small:
			b.WriteString("_" + string(r))
		case r >= 'a' && r <= 'z':
			b.WriteRune(r - 'a' + 'A')
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			b.WriteRune(r)
		default:
			b.WriteByte('_')
		}
		small = r >= 'a' && r <= 'z'
	}
	const longest = 64 // journald drops fields with longer names
	name := b.String()
	return name[:min(len(name), longest)]
}

// appendField appends a field in the journal's native protocol. A value with several lines has its
// length before it (https://systemd.io/JOURNAL_NATIVE_PROTOCOL).
func appendField(entry []byte, name, value string) []byte {
	entry = append(entry, name...)
	if !strings.Contains(value, "\n") {
		return append(append(append(entry, '='), value...), '\n')
	}
	entry = binary.LittleEndian.AppendUint64(append(entry, '\n'), uint64(len(value)))
	return append(append(entry, value...), '\n')
}
