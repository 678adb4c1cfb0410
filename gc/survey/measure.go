package survey

import (
	"context"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/runtime"
)

const (
	// settleFirst is the first pause between two measurements. Each further pause doubles.
	settleFirst = 25 * time.Millisecond
	// SettleLimit bounds the wait for space that btrfs and xfs free asynchronously.
	SettleLimit = 2 * time.Second
)

// Meter measures filesystems. Both methods return at the latest when ctx ends.
type Meter interface {
	// Usage returns the current usage of the filesystem.
	Usage(ctx context.Context, fs runtime.Filesystem) (gc.Usage, error)
	// Sync makes the filesystem finish pending work, such as freeing space.
	Sync(ctx context.Context, fs runtime.Filesystem) error
}

// Weigher is an optional interface of a Meter. It measures what fills a filesystem.
type Weigher interface {
	// Folders returns the largest folders of a runtime's filesystem, largest first, by bytes or by
	// inodes. It returns at the latest when ctx ends.
	Folders(ctx context.Context, fs runtime.Filesystem, byInodes bool) ([]gc.Folder, error)
}

// Settle measures a filesystem after removals. It syncs, and waits until something was freed and
// then nothing more is freed, at most for SettleLimit. If the free space shrinks, other programs
// write. Settle does not wait for that, but returns their speed.
func (s *Survey) Settle(ctx context.Context, before gc.Usage) (gc.Usage, Writing) {
	// A failed sync only delays the freeing, and the wait covers that.
	_, _ = runtime.Within(ctx, Timeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Meter.Sync(ctx, before.Filesystem)
	})
	last := s.measure(ctx, before.Filesystem)
	peak, peakAt := last, time.Now()
	pause, waited := settleFirst, time.Duration(0)
	for waited < SettleLimit && last.Err == nil && bounded.Sleep(ctx, pause) == nil {
		waited += pause
		pause = min(2*pause, SettleLimit-waited)
		next := s.measure(ctx, before.Filesystem)
		still := !Gained(last, next)
		last = next
		if !still {
			peak, peakAt = next, time.Now()
		}
		if still && Gained(before, next) {
			break
		}
	}
	return last, writingSince(peak, peakAt, last)
}

// Writing is how fast other programs take space on a filesystem, per second, measured while nothing
// was removed; zero if they did not.
type Writing struct {
	Bytes, Inodes float64
	peak          gc.Usage // measurement after the last gain
	peakAt        time.Time
}

func writingSince(peak gc.Usage, at time.Time, last gc.Usage) Writing {
	w := Writing{peak: peak, peakAt: at}
	if seconds := time.Since(at).Seconds(); seconds > 0 && peak.Problem() == "" && last.Problem() == "" {
		w.Bytes = float64(peak.AvailableBytes-min(peak.AvailableBytes, last.AvailableBytes)) / seconds
		w.Inodes = float64(peak.InodesFree-min(peak.InodesFree, last.InodesFree)) / seconds
	}
	return w
}

// Won returns what removals freed between two measurements; since is the time of the first. Other
// programs may write as fast as removals free, so that the difference is zero. Their writes are
// estimated from their speed after the removals. They are added if the result is clearly above the
// difference.
func (w Writing) Won(before, after gc.Usage, since time.Time) (bytes, inodes uint64) {
	if before.Problem() != "" || after.Problem() != "" {
		return 0, 0
	}
	seconds := max(0, w.peakAt.Sub(since).Seconds())
	won := func(before, peak, after uint64, speed float64) uint64 {
		written := speed * seconds
		hidden := float64(peak) + written - float64(before)
		if written > 0 && hidden > written/4 {
			return uint64(hidden)
		}
		return after - min(after, before)
	}
	return won(before.AvailableBytes, w.peak.AvailableBytes, after.AvailableBytes, w.Bytes),
		won(before.InodesFree, w.peak.InodesFree, after.InodesFree, w.Inodes)
}

// Gained reports whether space was freed.
func Gained(before, after gc.Usage) bool {
	return after.AvailableBytes > before.AvailableBytes || after.InodesFree > before.InodesFree
}
