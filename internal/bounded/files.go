package bounded

import (
	"context"
	"fmt"
	"sync"
)

// Files reads files that other users choose, whose file system may not answer. It does not read a
// file again while an earlier read of it is late, so that reads that hang do not add up, and delay
// only the first caller. The zero value is ready to use. Safe for concurrent use.
type Files struct {
	mu   sync.Mutex
	late map[string]int // how many reads of a path have not returned
}

// A LateError says that a file was not read in time.
type LateError struct {
	Path string
	Err  error // the cause; nil if an earlier read is late
}

func (e *LateError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("read %s: an earlier read has not returned", e.Path)
	}
	return fmt.Sprintf("read %s: %v", e.Path, e.Err)
}

func (e *LateError) Unwrap() error { return e.Err }

// Read returns what read returns for a path, or a *LateError if that takes longer than ctx.
func (f *Files) Read(ctx context.Context, path string, read func(path string) ([]byte, error)) ([]byte, error) {
	f.mu.Lock()
	late := f.late[path]
	f.mu.Unlock()
	if late > 0 {
		return nil, &LateError{Path: path}
	}
	type result struct {
		text []byte
		err  error
	}
	done, counted := make(chan result, 1), false // counted is guarded by mu
	go func() {
		text, err := read(path)
		f.mu.Lock()
		defer f.mu.Unlock()
		if counted {
			if f.late[path]--; f.late[path] == 0 {
				delete(f.late, path)
			}
		}
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		return r.text, r.err
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case r := <-done: // meanwhile
		return r.text, r.err
	default:
	}
	if f.late == nil {
		f.late = map[string]int{}
	}
	f.late[path]++
	counted = true
	return nil, &LateError{Path: path, Err: context.Cause(ctx)}
}
