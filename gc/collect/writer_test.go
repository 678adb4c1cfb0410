package collect_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime/runtimetest"
)

// Another program fills the disk as fast as images are removed, or faster. The difference alone
// would mean that removals free nothing.
func TestCollectIsNotMisledByAnotherWriter(t *testing.T) {
	tests := []struct {
		name      string
		perSecond uint64 // write speed of the other program
		own       uint64 // real size of each image
		removed   int
		ended     string
	}{
		{"images bring much, the writer is as fast", 100 * mib, 100 * mib, 20, "nothing more to remove"},
		{"images bring nothing, the writer is as fast", 100 * mib, 0, 2, "two removals in a row freed nothing"},
		{"images bring nothing, nobody writes", 0, 0, 2, "two removals in a row freed nothing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, runtimetest.Options{CapacityBytes: 100_000 * mib, ReportsLayers: tt.own > 0})
				base := runtimetest.Layer{ID: "base", Bytes: 2000 * mib}
				for i := range 20 {
					layers := []runtimetest.Layer{base}
					if tt.own > 0 {
						layers = append(layers, runtimetest.Layer{ID: fmt.Sprint(i), Bytes: tt.own})
					}
					h.pull(fmt.Sprintf("i%d", i), layers...)
				}
				h.pull("user", base)
				h.fake.RunPod(runtimetest.PodSpec{Name: "p", Containers: []runtimetest.ContainerSpec{{Name: "c", Image: "sha256:user"}}})
				h.fill(90)
				h.fake.Inject(runtimetest.RemoveImage, runtimetest.Fault{Delay: time.Second})
				began := time.Now()
				h.meter.change = func(u *gc.Usage) {
					u.AvailableBytes -= min(u.AvailableBytes, uint64(time.Since(began).Seconds()*float64(tt.perSecond)))
				}
				r := h.collect(h.images(), gc.Options{})
				if len(r.Removed) != tt.removed || r.Ended != tt.ended {
					t.Errorf("Collect() removed %d images and ended because %q, want %d, %q", len(r.Removed), r.Ended, tt.removed, tt.ended)
				}
				if tt.perSecond > 0 && (len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "other processes write to it")) {
					t.Errorf("Collect() warnings = %q, want the other writer named", r.Warnings)
				}
			})
		})
	}
}
