package bounded_test

import (
	"testing"
	"testing/cryptotest"
	"time"

	"hostler.io/hostler/internal/bounded"
)

func TestRandomDurationsAreSpreadAndRepeatable(t *testing.T) {
	const most, n = 10 * time.Second, 1000
	draw := func() (all []time.Duration) {
		cryptotest.SetGlobalRandom(t, 1)
		for range n {
			all = append(all, bounded.Random(most))
		}
		return all
	}
	first, again := draw(), draw()
	parts := map[time.Duration]int{}
	for i, d := range first {
		if d < 0 || d >= most || d != again[i] {
			t.Fatalf("Random(%v) = %v, and %v with the same source, want the same below %v", most, d, again[i], most)
		}
		parts[d/time.Second]++
	}
	for part := range most / time.Second {
		if parts[part] < n/20 {
			t.Errorf("%d of %d durations are between %ds and the next second, want about a tenth", parts[part], n, part)
		}
	}
}
