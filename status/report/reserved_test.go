package report

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"hostler.io/hostler/status"
)

// The test increases the reservation, which has the same effect as a host that shrinks.
func TestAHostThatShrinksBelowWhatIsReservedReportsItOnce(t *testing.T) {
	bubble(t, func(t *testing.T, d *desk) {
		options := d.o.Node()
		d.o.Node = func() status.Options { d.mu.Lock(); defer d.mu.Unlock(); return options }
		reserve := func(memory string) {
			d.set(func() { options.Reserved.Memory = resource.MustParse(memory) })
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		const gone = `level=WARN msg="reserved resources exceed the host's capacity, nothing left for pods"`
		const back = `level=INFO msg="reserved resources fit the host's capacity again"`
		d.start(t)
		for _, step := range []struct {
			memory     string
			gone, back int // how often each was logged
			left       int64
		}{
			{"1Mi", 0, 0, (1000180 - 1024 - 100<<10) << 10},
			{"1Gi", 1, 0, 0},
			{"2Gi", 1, 0, 0},
			{"1Mi", 1, 1, (1000180 - 1024 - 100<<10) << 10},
			{"1Gi", 2, 1, 0},
		} {
			reserve(step.memory)
			if g, b := d.log.Count(gone), d.log.Count(back); g != step.gone || b != step.back {
				t.Errorf("with %s reserved the log says %d and %d times, want %d and %d: %s", step.memory, g, b, step.gone, step.back, d.log)
			}
			left := d.stored(t).Status.Allocatable["memory"]
			if left.Value() != step.left {
				t.Errorf("with %s reserved %d bytes are allocatable, want %d", step.memory, left.Value(), step.left)
			}
		}
	})
}
