package bounded_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/internal/bounded"
)

// A file that hangs must not be read again, must not delay a second caller, and must hide no other file.
func TestAFileThatHangsDelaysOneReaderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var files bounded.Files
		var reads atomic.Int32
		recovered := make(chan struct{})
		read := func(path string) ([]byte, error) {
			if path == "hangs" {
				reads.Add(1)
				<-recovered
			}
			return []byte(path), nil
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errLate)
		defer cancel()
		if _, err := files.Read(ctx, "hangs", read); !errors.Is(err, errLate) {
			t.Errorf("Read() = %v, want that it is late", err)
		}
		began := time.Now()
		_, err := files.Read(t.Context(), "hangs", read)
		if _, late := errors.AsType[*bounded.LateError](err); !late || reads.Load() != 1 || time.Since(began) > 0 {
			t.Errorf("Read() = %v after %v and %d reads, want an error at once, and one read", err, time.Since(began), reads.Load())
		}
		if text, err := files.Read(t.Context(), "other", read); string(text) != "other" || err != nil {
			t.Errorf("Read() of another file = %q, %v, want its content", text, err)
		}
		close(recovered)
		synctest.Wait()
		if text, err := files.Read(t.Context(), "hangs", read); string(text) != "hangs" || err != nil {
			t.Errorf("Read() after the file system recovers = %q, %v, want the content", text, err)
		}
	})
}
