// Package flood sends answers that are larger than a client should accept. It stops at a limit: a
// client that accepts everything fails its test, but does not harm the host.
package flood

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	goruntime "runtime"
	"testing"
)

// Most is the maximum number of bytes that are sent.
const Most = 128 << 20

// Write writes begin, and then filling repeatedly until the client stops reading. It returns the
// number of written bytes.
func Write(w io.Writer, begin, filling string) int {
	taken, err := w.Write([]byte(begin))
	for text := bytes.Repeat([]byte(filling), (64<<10)/len(filling)); err == nil && taken < Most; {
		var n int
		n, err = w.Write(text)
		taken += n
	}
	return taken
}

// Bomb returns what Write writes, compressed. It compresses one part and repeats it as members of
// the archive (RFC 1952, section 2.2), because compressing everything takes too long.
func Bomb(begin, filling string) []byte {
	member := func(content []byte) []byte {
		var compressed bytes.Buffer
		z := gzip.NewWriter(&compressed)
		_, _ = z.Write(content) // cannot fail in memory
		_ = z.Close()
		return compressed.Bytes()
	}
	content := bytes.Repeat([]byte(filling), (1<<20)/len(filling))
	return append(member([]byte(begin)), bytes.Repeat(member(content), Most/len(content))...)
}

// Drop answers with a bomb.
func Drop(w http.ResponseWriter, status int, bomb []byte) {
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	_, _ = w.Write(bomb) // fails if the client has disconnected
}

// Message answers a gRPC call with a message whose header claims that many bytes.
func Message(w http.ResponseWriter, claimed int) int {
	w.Header().Set("Content-Type", "application/grpc")
	return Write(w, string(binary.BigEndian.AppendUint32([]byte{0}, uint32(claimed))), "\x00")
}

// Serve serves HTTP and calls of gRPC, without TLS, until the test ends.
func Serve(t testing.TB, l net.Listener, handler http.Handler) {
	t.Helper()
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // returns when it is closed
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
}

// Allocated returns how many bytes all goroutines allocate while f runs.
func Allocated(f func()) uint64 {
	var before, after goruntime.MemStats
	goruntime.ReadMemStats(&before)
	f()
	goruntime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
