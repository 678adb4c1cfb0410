package collect

import (
	"cmp"
	"context"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

const (
	// settleFirst is the first pause between two measurements; each pause
	// doubles the one before.
	settleFirst = 25 * time.Millisecond
	// settleLimit bounds the wait for space that btrfs and xfs free late.
	settleLimit = 2 * time.Second
)

// Meter measures filesystems. Both methods return when ctx ends, at the latest.
type Meter interface {
	// Usage is how full the filesystem is now.
	Usage(ctx context.Context, fs runtime.Filesystem) (gc.Usage, error)
	// Sync makes the filesystem do what it put off, freeing included.
	Sync(ctx context.Context, fs runtime.Filesystem) error
}

// Weigher is what a Meter may be as well: able to tell what fills a filesystem.
type Weigher interface {
	// Folders names the largest folders of a runtime's root, largest first, in
	// bytes or in inodes. It returns when ctx ends, at the latest.
	Folders(ctx context.Context, fs runtime.Filesystem, byInodes bool) ([]gc.Folder, error)
}

// settle measures a filesystem after removals: it syncs, waits until something
// has become free and then until nothing more does, or until settleLimit. Less
// becoming free than before is others' writing, which is not waited for and is
// told.
func (s *Survey) settle(ctx context.Context, before gc.Usage) (gc.Usage, writing) {
	// A failed sync only makes the figures late, and the wait is for that.
	_, _ = within(ctx, lookTimeout, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, s.Meter.Sync(ctx, before.Filesystem)
	})
	last := s.measure(ctx, before.Filesystem)
	peak, peakAt := last, time.Now()
	pause, waited := settleFirst, time.Duration(0)
	for waited < settleLimit && last.Err == nil && sleep(ctx, pause) {
		waited += pause
		pause = min(2*pause, settleLimit-waited)
		next := s.measure(ctx, before.Filesystem)
		still := !gained(last, next)
		last = next
		if !still {
			peak, peakAt = next, time.Now()
		}
		if still && gained(before, next) {
			break
		}
	}
	return last, writingSince(peak, peakAt, last)
}

// writing is how fast something else takes room on a filesystem, as seen while
// nothing was being removed, per second; zero where nothing was seen.
type writing struct {
	bytes, inodes float64
	peak          gc.Usage // before that
	peakAt        time.Time
}

func writingSince(peak gc.Usage, at time.Time, last gc.Usage) writing {
	w := writing{peak: peak, peakAt: at}
	if seconds := time.Since(at).Seconds(); seconds > 0 && peak.Problem() == "" && last.Problem() == "" {
		w.bytes = float64(peak.AvailableBytes-min(peak.AvailableBytes, last.AvailableBytes)) / seconds
		w.inodes = float64(peak.InodesFree-min(peak.InodesFree, last.InodesFree)) / seconds
	}
	return w
}

// won is what removals brought between two measurements, the first of them taken
// at a time. Where others write as fast as removals free, the figure alone would
// say that they bring nothing: what others wrote at the speed seen afterwards is
// added, and counts if it is clearly not all there is to it.
func (w writing) won(before, after gc.Usage, since time.Time) (bytes, inodes uint64) {
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
	return won(before.AvailableBytes, w.peak.AvailableBytes, after.AvailableBytes, w.bytes),
		won(before.InodesFree, w.peak.InodesFree, after.InodesFree, w.inodes)
}

// gained tells whether room was won.
func gained(before, after gc.Usage) bool {
	return after.AvailableBytes > before.AvailableBytes || after.InodesFree > before.InodesFree
}

// sleep waits and tells whether it was not interrupted.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// finally is the time for what is to be done also where a run was cut short: to
// measure what it freed, and to look for harm. It is settleLimit there.
func finally(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), settleLimit)
}

// book adds what became free between two measurements to the report.
func (r *Report) book(before, after gc.Usage) {
	if before.Problem() != "" || after.Problem() != "" {
		return
	}
	if gained(before, after) {
		r.on(before.Name(), before.Device)
	}
	r.FreedBytes += after.AvailableBytes - min(after.AvailableBytes, before.AvailableBytes)
	r.FreedInodes += after.InodesFree - min(after.InodesFree, before.InodesFree)
}

// gauge measures filesystems before the first and after the last removal.
type gauge struct {
	survey  *Survey
	started map[string]bool     // by runtime
	before  map[string]gc.Usage // once for each filesystem, wherever it is mounted
}

func newGauge(s *Survey) *gauge {
	return &gauge{survey: s, started: make(map[string]bool), before: make(map[string]gc.Usage)}
}

// start measures where the runtime keeps things, once. What cannot be measured
// is not: removals do not depend on it.
func (g *gauge) start(ctx context.Context, rt Runtime) {
	if g.started[rt.Name()] {
		return
	}
	g.started[rt.Name()] = true
	usages, err := g.survey.usages(ctx, rt)
	if err != nil {
		return
	}
	for _, u := range usages {
		id := cmp.Or(u.ID, u.Name())
		if _, known := g.before[id]; !known {
			g.before[id] = u
		}
	}
}

func (g *gauge) finish(ctx context.Context, r *Report) {
	if len(r.Removed) == 0 {
		return
	}
	ctx, done := finally(ctx)
	defer done()
	for _, before := range g.before {
		after, _ := g.survey.settle(ctx, before)
		r.book(before, after)
	}
}
