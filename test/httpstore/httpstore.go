// Package httpstore is an HTTP server that stores files, as many web servers do: GET, PUT and
// DELETE with ETags, and a listing of a folder. The example of a plugin
// (docs/examples/plugin-https) uses it. It does not know what it stores.
package httpstore

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// pageSize is the maximum number of entries in a listing. It is small, so that listings have
	// several pages.
	pageSize = 5
	// maxValue is the largest accepted body.
	maxValue = 4 << 20
)

// Store is the server. It is an http.Handler, safe for concurrent use.
type Store struct {
	born string // begins every ETag, so that no ETag is used again after a restart

	mu    sync.Mutex // guards the fields below
	files map[string]file
	last  int
}

// file is a stored file and its expiry; zero means never.
type file struct {
	etag  string
	value []byte
	ends  time.Time
}

// New returns an empty Store.
func New() *Store { return &Store{born: rand.Text()[:8], files: map[string]file{}} }

// Value returns the file at a path such as "nodes/n"; nil if there is none.
func (s *Store) Value(path string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, _ := s.file(path)
	return f.value
}

// file returns a file that has not expired. The caller holds mu.
func (s *Store) file(path string) (file, bool) {
	f, found := s.files[path]
	if found && !f.ends.IsZero() && !time.Now().Before(f.ends) {
		delete(s.files, path)
		return file{}, false
	}
	return f, found
}

// ServeHTTP implements http.Handler.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxValue))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	if strings.HasSuffix(path, "/") && r.Method == http.MethodGet {
		s.list(w, path, r.URL.Query().Get("after"))
		return
	}
	now, found := s.file(path)
	if wanted := r.Header.Get("If-Match"); wanted != "" && wanted != now.etag || found && r.Header.Get("If-None-Match") == "*" {
		http.Error(w, "another is there", http.StatusPreconditionFailed)
		return
	}
	switch {
	case r.Method == http.MethodPut:
		s.last++
		f := file{etag: fmt.Sprintf("%q", fmt.Sprintf("%s-%d", s.born, s.last)), value: value}
		if age, has := strings.CutPrefix(r.Header.Get("Cache-Control"), "max-age="); has {
			seconds, err := strconv.Atoi(age)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			f.ends = time.Now().Add(time.Duration(seconds) * time.Second)
		}
		s.files[path] = f
		w.Header().Set("ETag", f.etag)
	case !found:
		http.NotFound(w, r)
	case r.Method == http.MethodGet:
		w.Header().Set("ETag", now.etag)
		_, _ = w.Write(now.value) // fails if the client has disconnected
	case r.Method == http.MethodDelete:
		delete(s.files, path)
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, "no such method", http.StatusMethodNotAllowed)
	}
}

// list answers with the files below a folder that follow a path. The caller holds mu.
func (s *Store) list(w http.ResponseWriter, folder, after string) {
	type entry struct {
		Path  string          `json:"path"`
		ETag  string          `json:"etag"`
		Value json.RawMessage `json:"value"`
	}
	listing := []entry{}
	for _, path := range slices.Sorted(maps.Keys(s.files)) {
		if f, found := s.file(path); found && strings.HasPrefix(path, folder) && path > after && len(listing) < pageSize {
			listing = append(listing, entry{path, f.etag, f.value})
		}
	}
	if err := json.NewEncoder(w).Encode(listing); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
