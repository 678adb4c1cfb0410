package bounded

import (
	"crypto/rand"
	"encoding/binary"
	"time"
)

// Random returns a random duration from zero to less than most, which is positive. It is drawn from
// crypto/rand: unlike math/rand/v2, a test can make that repeatable.
func Random(most time.Duration) time.Duration {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return time.Duration(binary.LittleEndian.Uint64(b[:]) % uint64(most))
}
