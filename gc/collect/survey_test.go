package collect_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// placed is a runtime whose images lie on a filesystem that has an ID.
type placed struct {
	*runtimetest.Fake
	id string
}

func (p placed) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	list, err := p.Fake.ImageFilesystems(ctx)
	for i := range list {
		list[i].ID = p.id
	}
	return list, err
}

// What two runtimes lack on one filesystem they lack once.
func TestFactsNameAFilesystemAlikeWhereverItIsMounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, runtimetest.Options{})
		h.fill(95)
		other := runtimetest.NewFake(runtimetest.Options{Name: "other", Path: "/data/images", Mountpoint: "/data/images", Device: "/dev/fake"})
		for _, tt := range []struct {
			ids  [2]string
			want int
		}{{[2]string{"8:1", "8:1"}, 1}, {[2]string{"8:1", "8:2"}, 2}, {[2]string{"", ""}, 2}} {
			h.survey.Runtimes = func() []collect.Runtime {
				return []collect.Runtime{placed{h.fake, tt.ids[0]}, placed{other, tt.ids[1]}}
			}
			facts, err := h.survey.Facts(t.Context(), gc.Options{Images: true})
			if err != nil {
				t.Fatal(err)
			}
			d := gc.Plan(facts, gc.DefaultPolicy(), time.Now(), gc.Options{Images: true}).Filesystems
			if len(d) != tt.want {
				t.Errorf("Plan() where the filesystems have the IDs %q = %+v, want %d", tt.ids, d, tt.want)
			}
		}
	})
}
