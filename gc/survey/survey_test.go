package survey_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
)

// placed is a runtime whose images are on a filesystem with an ID.
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

// meter measures the filesystem of a Fake.
type meter struct{ *runtimetest.Fake }

func (m meter) Usage(_ context.Context, fs runtime.Filesystem) (gc.Usage, error) {
	u := m.Fake.Usage()
	return gc.Usage{Filesystem: fs, CapacityBytes: u.CapacityBytes, AvailableBytes: u.AvailableBytes, Inodes: u.Inodes, InodesFree: u.InodesFree}, nil
}

func (meter) Sync(context.Context, runtime.Filesystem) error { return nil }

// forgetful is a store that stores nothing.
type forgetful struct{}

func (forgetful) Load(any)              {}
func (forgetful) SaveLazily(func() any) {}

// of returns a survey of runtimes. The filesystem of the first one is full.
func of(t *testing.T, full *runtimetest.Fake, others ...survey.Runtime) *survey.Survey {
	t.Helper()
	full.SetOtherBytes(95 << 30)
	tracker, err := lastused.New(lastused.Options{
		Store: forgetful{}, Runtimes: func() []lastused.Runtime { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return &survey.Survey{Runtimes: func() []survey.Runtime { return others }, Meter: meter{full}, Uses: tracker}
}

// If two runtimes share a filesystem, what it lacks counts once.
func TestFactsNameAFilesystemAlikeWhereverItIsMounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := runtimetest.NewFake(runtimetest.Options{Mountpoint: "/var/lib/fake", Device: "/dev/fake"})
		other := runtimetest.NewFake(runtimetest.Options{Name: "other", Path: "/data/images", Mountpoint: "/data/images", Device: "/dev/fake"})
		for _, tt := range []struct {
			ids  [2]string
			want int
		}{{[2]string{"8:1", "8:1"}, 1}, {[2]string{"8:1", "8:2"}, 2}, {[2]string{"", ""}, 2}} {
			facts, err := of(t, one, placed{one, tt.ids[0]}, placed{other, tt.ids[1]}).Facts(t.Context(), gc.Options{Images: true})
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

// A runtime that does not answer has no facts. The others have all.
func TestFactsLeaveOutARuntimeThatDoesNotAnswer(t *testing.T) {
	for _, op := range []runtimetest.Op{runtimetest.Info, runtimetest.Images, runtimetest.Pods, runtimetest.ImageFilesystems} {
		t.Run(string(op), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, other := runtimetest.NewFake(runtimetest.Options{}), runtimetest.NewFake(runtimetest.Options{Name: "other"})
				one.AddImage(runtimetest.ImageSpec{ID: "sha256:a"})
				other.AddImage(runtimetest.ImageSpec{ID: "sha256:b"})
				one.Inject(op, runtimetest.Fault{Hang: true})
				facts, err := of(t, one, one, other).Facts(t.Context(), gc.Options{Images: true})
				var failed runtime.MemberError
				if !errors.As(err, &failed) || failed.Runtime != "fake" || !errors.Is(err, runtime.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Facts() = %v, want the runtime named", err)
				}
				if len(facts.Images) != 1 || facts.Images[0].Runtime != "other" || len(facts.Filesystems) != 1 || strings.Contains(err.Error(), "other") {
					t.Errorf("Facts() = %+v, %v, want those of the other runtime", facts, err)
				}
			})
		})
	}
}

// Space that is freed late is waited for, within a limit.
func TestSettle(t *testing.T) {
	tests := []struct {
		name   string
		late   time.Duration
		freed  bool
		atMost time.Duration
	}{
		{"at once", 0, true, 200 * time.Millisecond},
		{"half a second later", 500 * time.Millisecond, true, survey.SettleLimit},
		{"an hour later", time.Hour, false, survey.SettleLimit},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := runtimetest.NewFake(runtimetest.Options{FreesAfter: tt.late})
				img := fake.AddImage(runtimetest.ImageSpec{Layers: []runtimetest.Layer{{ID: "l", Bytes: 1 << 20}}})
				s := of(t, fake, fake)
				before, err := s.Usages(t.Context(), fake)
				if err == nil {
					err = fake.RemoveImage(t.Context(), img)
				}
				if err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				after, _ := s.Settle(t.Context(), before[0])
				if got := survey.Gained(before[0], after); got != tt.freed || time.Since(start) > tt.atMost {
					t.Errorf("Settle() in %v sees room gained: %t, want %t in at most %v", time.Since(start), got, tt.freed, tt.atMost)
				}
			})
		})
	}
}
