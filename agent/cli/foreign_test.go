package cli_test

import (
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"hostler.io/hostler/internal/sanitize"
)

// screens are commands that show names and messages from other sources.
var screens = []string{
	"status", "status -o wide", "ps", "ps -o wide", "ps --last-shutdown", "images", "images -o wide", "gc plan", "gc plan -o wide", "gc run",
	"gc history", "gc history -o wide", "shutdown plan", "shutdown report", "drain --yes", "doctor", "ps -o json", "status -o yaml",
}

// A name or message from another source must stay one text on a terminal. It must not move the
// cursor, change the title, or add a row. A manipulated agent must not either, but it may add rows.
func FuzzScreens(f *testing.F) {
	for _, text := range []string{
		"\x1b[31mred", "\x1b]0;title\x07", "\u009b2J", "\u202egnp.exe", "\nforged row", "\tforged\tcells", "\r\x1b[Kforged", "\xff\xfe", "%s%n", "\u2028", "\x00", "\x7f",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, clean := range []bool{true, false} {
			b := fullBackend()
			for _, answer := range []any{&b.status, &b.pods, &b.images, &b.plan, &b.report, &b.history, &b.phases, &b.drained, &b.doctor, &b.steps} {
				v := reflect.ValueOf(answer).Elem()
				mark(v, text)
				if clean {
					v.Set(reflect.ValueOf(sanitize.Clean(v.Interface())))
				}
			}
			b.hosts = fleets()["well"].hosts
			for i := range b.hosts {
				if i > 0 {
					mark(reflect.ValueOf(&b.hosts[i].Node.Status).Elem(), text)
					b.hosts[i].Node = sanitize.Clean(b.hosts[i].Node)
				}
			}
			socket := serve(t, b)
			for _, command := range append([]string{"nodes", "nodes -o wide"}, screens...) {
				got := hostler(socket, strings.Fields(command)...)
				for stream, screen := range map[string]string{"stdout": got.stdout, "stderr": got.stderr} {
					if i := strings.IndexFunc(screen, func(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }); i >= 0 || !utf8.ValidString(screen) {
						t.Errorf("hostler %s with %q wrote to %s what a terminal obeys: %q", command, text, stream, screen[max(0, i-20):min(len(screen), max(0, i)+20)])
					}
				}
			}
		}
	})
}

// mark appends text to each string of a value, except to those that control a command.
func mark(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() && v.CanSet() {
			v.SetString(v.String() + text)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				mark(v.Field(i), text)
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			mark(v.Index(i), text)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			mark(v.Elem(), text)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			elem := reflect.New(v.Type().Elem()).Elem()
			elem.Set(v.MapIndex(key))
			mark(elem, text)
			v.SetMapIndex(key, elem)
		}
	}
}

// The name of a pod may contain a line break, for example from an image's label. It must not create
// a row.
func TestAForgedRowIsNone(t *testing.T) {
	b := fullBackend()
	b.pods.Pods[0].Name = "web\nshop   db-9   Running"
	b.pods = sanitize.Clean(b.pods)
	for line := range strings.Lines(hostler(serve(t, b), "ps").stdout) {
		if strings.HasPrefix(line, "shop   db-9") {
			t.Errorf("ps shows a row that a name forged: %q", line)
		}
	}
}
