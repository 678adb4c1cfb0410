package docker_test

import (
	"encoding/binary"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/runtime"
)

// frame is a part of stream 1 or 2 in Docker's multiplexed format.
func frame(stream byte, text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{stream, 0, 0, 0}, uint32(len(text))), text...)
}

func TestALogIsWhatDockerKept(t *testing.T) {
	sent := slices.Concat(frame(1, "one\n"), frame(2, "two\n"), frame(1, "three\n"))
	config := object{}
	s := newServer(t, "1.45", nil)
	s.set("/containers/a/json", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(object{"Id": "a", "Config": config, "State": object{}})
	}))
	s.set("/containers/a/logs", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(sent) }))
	r, c := s.client(t), runtime.Container{ID: "a", Name: "web"}
	if text, err := r.Log(t.Context(), c, 3, 100); err != nil || string(text) != "one\ntwo\nthree\n" {
		t.Errorf("Log() = %q, %v, want both streams as they came", text, err)
	}
	if calls := s.asked(); !slices.ContainsFunc(calls, func(call string) bool {
		return strings.HasPrefix(call, "GET /containers/a/logs?") && strings.Contains(call, "tail=3") && !strings.Contains(call, "follow")
	}) {
		t.Errorf("Docker received %q, want a request for three lines", calls)
	}
	if text, err := r.Log(t.Context(), c, 3, 8); err != nil || string(text) != "o\nthree\n" {
		t.Errorf("Log() of 8 bytes = %q, %v, want the end", text, err)
	}
	sent, config["Tty"] = []byte("\x01raw\n"), true
	if text, err := r.Log(t.Context(), c, 3, 100); err != nil || string(text) != "\x01raw\n" {
		t.Errorf("Log() of a terminal = %q, %v, want it as it is", text, err)
	}
	sent = []byte(strings.Repeat("long\n", 1<<20))
	if text, err := r.Log(t.Context(), c, 3, 10); err != nil || string(text) != "long\nlong\n" {
		t.Errorf("Log() of too many lines = %q, %v, want the last ones", text, err)
	}
	sent, config["Tty"] = []byte("neither one nor two"), false
	if text, err := r.Log(t.Context(), c, 3, 100); err == nil || !strings.Contains(err.Error(), `read log of container "web"`) {
		t.Errorf("Log() of what makes no sense = %q, %v, want an error", text, err)
	}
	if _, err := r.Log(t.Context(), runtime.Container{ID: "gone", Name: "gone"}, 10, 100); err == nil {
		t.Error("Log() of a missing container = nil, want an error")
	}
}
