package journald_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/systemd/journald"
)

// journal returns a socket that receives entries like journald's.
func journal(t *testing.T, path string) *net.UnixConn {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// entry reads an entry, strictly.
func entry(t *testing.T, c *net.UnixConn) map[string]string {
	t.Helper()
	buffer := make([]byte, 64<<10)
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, err := c.Read(buffer)
	if err != nil {
		t.Fatalf("no entry came: %v", err)
	}
	fields, rest := map[string]string{}, buffer[:n]
	for len(rest) > 0 {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		name, value, short := strings.Cut(string(line), "=")
		if !whole {
			t.Fatalf("the entry %q does not end with a newline", buffer[:n])
		}
		if !short {
			length := binary.LittleEndian.Uint64(after)
			value, after = string(after[8:8+length]), after[8+length:]
			if after[0] != '\n' {
				t.Fatalf("the value of %s does not end where it says: %q", name, buffer[:n])
			}
			after = after[1:]
		}
		if strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
			t.Fatalf("journald takes no field of the name %q", name)
		}
		fields[name], rest = value, after
	}
	return fields
}

func logTo(socket string, stream io.Writer) *slog.Logger {
	sender := &journald.Sender{Socket: socket, Stream: stream}
	return slog.New(journald.New(sender.Send, slog.LevelInfo))
}

func TestAttributesAreFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	c := journal(t, path)
	var fallback bytes.Buffer
	log := logTo(path, &fallback).With("component", "image-gc")
	log.Debug("not this")
	log.Warn("image removed", "image", "nginx:1", "freedBytes", 5, "took", time.Second, "error", errors.New("one\ntwo"))
	want := map[string]string{
		"MESSAGE":  `level=WARN msg="image removed" component=image-gc image=nginx:1 freedBytes=5 took=1s error="one\ntwo"`,
		"PRIORITY": "4", "SYSLOG_IDENTIFIER": "hostler",
		"HOSTLER_LOOP": "image-gc", "HOSTLER_IMAGE": "nginx:1", "HOSTLER_FREED_BYTES": "5", "HOSTLER_TOOK": "1s", "HOSTLER_ERROR": "one\ntwo",
	}
	if got := entry(t, c); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the entry is %q, want %q", got, want)
	}
	if fallback.Len() > 0 {
		t.Errorf("what the journal took was written again: %s", &fallback)
	}
	for level, want := range map[slog.Level]string{slog.LevelInfo: "6", slog.LevelError: "3"} {
		log.Log(t.Context(), level, "x")
		if got := entry(t, c)["PRIORITY"]; got != want {
			t.Errorf("the priority of %s is %s, want %s", level, got, want)
		}
	}
}

func TestNamesOfFields(t *testing.T) {
	for key, want := range map[string]string{
		"pod": "HOSTLER_POD", "component": "HOSTLER_LOOP", "requestedBytes": "HOSTLER_REQUESTED_BYTES", "bootID": "HOSTLER_BOOT_ID",
		"a.b c": "HOSTLER_A_B_C", "größe": "HOSTLER_GR__E", strings.Repeat("x", 99): "HOSTLER_" + strings.Repeat("X", 56),
	} {
		if got := journald.FieldName(key); got != want {
			t.Errorf("FieldName(%q) = %q, want %q", key, got, want)
		}
	}
}

// MESSAGE is a line of slog's own handler, which passes slog's test suite.
func TestMessageIsALineOfATextLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	c := journal(t, path)
	h := logTo(path, &bytes.Buffer{}).Handler()
	slogtest.Run(t, func(t *testing.T) slog.Handler { return h }, func(t *testing.T) map[string]any {
		result := map[string]any{slog.TimeKey: time.Time{}}
		if strings.HasSuffix(t.Name(), "zero-time") {
			delete(result, slog.TimeKey)
		}
		for pair := range strings.SplitSeq(entry(t, c)["MESSAGE"], " ") {
			key, value, _ := strings.Cut(pair, "=")
			at, names := result, strings.Split(key, ".")
			for _, name := range names[:len(names)-1] {
				if _, found := at[name]; !found {
					at[name] = map[string]any{}
				}
				at = at[name].(map[string]any)
			}
			at[names[len(names)-1]] = value
		}
		return result
	})
}

// A log matters when something is wrong: if the journal does not accept a record, it is written to
// the stream as if there were no journal.
func TestRefusedRecordsAreWrittenToTheStream(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	var fallback bytes.Buffer
	log := logTo(path, &fallback)
	says := func(want string) {
		t.Helper()
		if got := fallback.String(); got != want {
			t.Errorf("elsewhere is written %q, want %q", got, want)
		}
		fallback.Reset()
	}
	log.Info("before it is there")
	says("level=INFO msg=\"before it is there\"\n")

	c := journal(t, path)
	log.Info("there")
	if got := entry(t, c)["MESSAGE"]; got != "level=INFO msg=there" {
		t.Errorf("the journal got %q", got)
	}
	log.Info("huge", "error", strings.Repeat("x", 8<<20))
	if got := fallback.Len(); got < 8<<20 {
		t.Errorf("%d bytes of an entry beyond what a socket takes are written elsewhere, want all", got)
	}
	fallback.Reset()

	c.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	log.Info("gone")
	says("level=INFO msg=gone\n")
	c = journal(t, path)
	log.Info("back")
	if got := entry(t, c)["MESSAGE"]; got != "level=INFO msg=back" {
		t.Errorf("the journal that is back got %q", got)
	}
	says("")
}

func TestConnectedToTheJournal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var s unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &s); err != nil {
		t.Fatal(err)
	}
	stream := fmt.Sprintf("%d:%d", s.Dev, s.Ino)
	for name, c := range map[string]struct{ got, want bool }{
		"the stream":                          {journald.Connected(f, stream), true},
		"another one, of the service above":   {journald.Connected(f, stream+"0"), false},
		"no variable":                         {journald.Connected(f, ""), false},
		"no file":                             {journald.Connected(&bytes.Buffer{}, stream), false},
		"a stream that is not written to now": {journald.Connected(os.Stdin, stream), false},
	} {
		if c.got != c.want {
			t.Errorf("Connected() with %s = %t, want %t", name, c.got, c.want)
		}
	}
}
