package collect

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/pace"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
)

// idleLimit is how many removals in a row may free nothing before the run ends.
const idleLimit = 2

// imageRun is one run of Images. One goroutine owns it.
type imageRun struct {
	collector *Images
	survey    *survey.Survey
	log       *slog.Logger
	policy    gc.ImagePolicy
	options   gc.Options
	report    *runs.Report
	progress  func(runs.Progress)

	facts     gc.Facts // Filesystems has the latest measurement
	runtimes  map[string]survey.Runtime
	decisions gc.Decisions

	tried         tried
	pace          map[stride]int // current batch size
	ofFilesystems learned[filesystemState]
	ofRuntimes    learned[runtimeState]
}

// tried has the results of the removals of this run.
type tried struct {
	count   int
	skip    map[imageRef]bool  // not tried again in this run
	removed map[imageRef]taken // includes removals whose answer was lost
	stayed  []gc.ImageDecision // with the current reason
}

// filesystemState is the state of a filesystem in a run.
type filesystemState struct {
	before   *gc.Usage // usage at the start
	measured time.Time // time of the last measurement
	writing  float64   // bytes per second that other programs were last seen to write
	idle     int       // removals in a row that freed nothing
	pending  pending   // removals whose result is not yet clear
}

// pending is the sum of removals whose result is not yet clear.
type pending struct {
	images          int
	wholeBytes      uint64 // sum of the image sizes
	estimate, freed gc.Gain
}

// runtimeState is the state of a runtime in a run.
type runtimeState struct {
	down     bool     // no longer used in this run
	refused  bool     // it is down because it answered with an error
	stale    bool     // has removals since the last measurement
	yield    gc.Yield // what removals have freed
	patience pace.Patience
}

// learned has one record for each name. The first use of a name creates it.
type learned[T any] map[string]*T

func (l learned[T]) of(name string) *T {
	if l[name] == nil {
		l[name] = new(T)
	}
	return l[name]
}

func newImageRun(c *Images, o gc.Options, report *runs.Report, progress func(runs.Progress)) *imageRun {
	return &imageRun{
		collector: c, survey: c.options.Survey, log: c.options.Log, policy: c.Policy(), options: o, report: report, progress: progress,
		tried: tried{skip: make(map[imageRef]bool), removed: make(map[imageRef]taken)},
		pace:  make(map[stride]int), ofFilesystems: make(learned[filesystemState]), ofRuntimes: make(learned[runtimeState]),
	}
}

// imageRef identifies an image: runtime and ID.
type imageRef struct{ runtime, id string }

// taken is a removed image with all its references.
type taken struct {
	name string
	refs []string
}

// scan gathers the facts again. It omits images and runtimes that this run no longer tries.
func (r *imageRun) scan(ctx context.Context) {
	facts, failed := r.survey.Scan(ctx, r.options)
	r.options.LeaveAlone = r.collector.ExcludedRuntimes(r.report)
	for _, err := range failed {
		r.lose(err.Runtime, err)
		for _, u := range r.facts.Filesystems {
			if u.Runtime == err.Runtime { // the last measurement remains valid
				facts.Filesystems = append(facts.Filesystems, u)
			}
		}
	}
	facts.Images = slices.DeleteFunc(facts.Images, func(img gc.ImageFact) bool {
		return r.ofRuntimes.of(img.Runtime).down || r.tried.skip[imageRef{img.Runtime, img.ID}]
	})
	r.facts = facts
	r.runtimes = byName(r.survey.Runtimes())
	for _, rt := range r.ofRuntimes {
		rt.stale = false
	}
	for _, u := range facts.Filesystems {
		r.ofFilesystems.of(u.Name()).measured = time.Now()
	}
}

// plan plans with the latest facts. If space is lacking, it reads the layers of images first.
func (r *imageRun) plan(ctx context.Context) gc.Decisions {
	if err := r.survey.AddLayers(ctx, &r.facts, r.policy, r.options); err != nil {
		r.log.Debug("cannot read layers of images", "error", err)
	}
	d := gc.Plan(r.facts, gc.Policy{Images: r.policy}, time.Now(), r.options)
	for _, filesystem := range d.Outdated {
		if r.tried.count == 0 { // later plans of a run do not have all images
			r.survey.Fruitless.Forget(filesystem)
		}
	}
	return d
}

// remember stores the filesystems on which this run has freed nothing, for later runs.
func (r *imageRun) remember() {
	for name, fs := range r.ofFilesystems {
		if fs.idle < idleLimit {
			continue
		}
		r.survey.Fruitless.Remember(name, r.decisions.Fruitless(r.usage(name), time.Now(), func(key gc.ImageKey) bool {
			_, removed := r.tried.removed[imageRef{key.Runtime, key.ID}]
			return removed
		}))
	}
}

// begin records the usage at the start, and how much must be freed.
func (r *imageRun) begin() {
	for _, fs := range r.filesystems() {
		usage := r.usage(fs.Filesystem)
		r.ofFilesystems.of(fs.Filesystem).before = &usage
		r.report.RequestedBytes += fs.BytesToFree
		r.report.RequestedInodes += fs.InodesToFree
		if fs.Short() {
			r.report.On(fs.Filesystem, fs.Device)
		}
		if fs.BytesToFree > 0 {
			r.options.StartedSpace = append(slices.Clip(r.options.StartedSpace), fs.Filesystem)
		}
		if fs.InodesToFree > 0 {
			r.options.StartedInodes = append(slices.Clip(r.options.StartedInodes), fs.Filesystem)
		}
	}
}

// filesystems returns how much must be freed, by the latest measurement.
func (r *imageRun) filesystems() []gc.FilesystemDecision {
	return gc.Filesystems(r.facts.Filesystems, r.policy, r.options)
}

// short reports whether any filesystem lacks space.
func (r *imageRun) short() bool {
	return slices.ContainsFunc(r.filesystems(), gc.FilesystemDecision.Short)
}

// requested reports whether a filesystem lacked space at the start of the run.
func (r *imageRun) requested() bool {
	return len(r.options.StartedSpace)+len(r.options.StartedInodes) > 0
}

// blind reports whether a filesystem that lacked space no longer reports a valid usage.
func (r *imageRun) blind() bool {
	return slices.ContainsFunc(r.filesystems(), func(fs gc.FilesystemDecision) bool {
		return fs.Message != "" && (slices.Contains(r.options.StartedSpace, fs.Filesystem) || slices.Contains(r.options.StartedInodes, fs.Filesystem))
	})
}

// unmeasured reports whether any filesystem reports no valid usage.
func (r *imageRun) unmeasured() bool {
	return slices.ContainsFunc(r.filesystems(), func(fs gc.FilesystemDecision) bool { return fs.Message != "" })
}

// shortFor reports whether a filesystem of the runtime lacks space.
func (r *imageRun) shortFor(runtimeName string) bool {
	return slices.ContainsFunc(r.filesystems(), func(fs gc.FilesystemDecision) bool {
		return fs.Short() && slices.Contains(fs.Runtimes, runtimeName)
	})
}

// usage returns the latest measurement of a filesystem.
func (r *imageRun) usage(filesystem string) gc.Usage {
	i := slices.IndexFunc(r.facts.Filesystems, func(u gc.Usage) bool { return u.Name() == filesystem })
	return r.facts.Filesystems[i]
}

// carryOut executes the decisions in order. It reports whether the run may continue with another
// plan.
func (r *imageRun) carryOut(ctx context.Context, d gc.Decisions) bool {
	r.decisions = d
	var queue []*gc.ImageDecision
	for i := range d.Images {
		if d.Images[i].Action == gc.Remove {
			queue = append(queue, &d.Images[i])
		}
	}
	total := r.tried.count + len(queue)
	for len(queue) > 0 && ctx.Err() == nil {
		if first := queue[0]; r.ofRuntimes.of(first.Runtime).down || first.Reason == gc.LRU && !r.needs(ctx, first) {
			queue = queue[1:]
			continue
		}
		n := r.batch(queue)
		r.remove(ctx, queue[:n], total)
		queue = queue[n:]
	}
	if r.requested() {
		r.settle(ctx) // otherwise the next check would miss space that is freed late, and remove too much
	}
	if ctx.Err() != nil {
		r.report.Ended = runs.WhyDone(ctx)
		return false
	}
	end := r.outcome()
	r.report.Ended = string(end)
	return end == endNothingLeft || end == endNotNeeded
}

// ending is why a run ends, as text for its report.
type ending string

const (
	endNothingLeft ending = "nothing more to remove"
	endNotNeeded   ending = "no space is needed"
	endDown        ending = "a runtime does not answer"
	endRefused     ending = "a runtime returned an error"
	endReached     ending = "low threshold reached"
	endBlind       ending = "a filesystem reports no valid usage any more"
	endIdle        ending = "two removals in a row freed nothing"
)

func (r *imageRun) outcome() ending {
	down, refused, stuck := false, false, false
	for _, rt := range r.ofRuntimes {
		down, refused = down || rt.down && !rt.refused, refused || rt.refused
	}
	for _, fs := range r.ofFilesystems {
		stuck = stuck || fs.idle >= idleLimit
	}
	switch {
	case down:
		return endDown
	case refused:
		return endRefused
	case r.requested() && !r.short():
		if r.blind() {
			return endBlind
		}
		return endReached
	case stuck:
		return endIdle
	case r.tried.count == 0 && !r.requested() && !r.options.AllUnused && !r.unmeasured():
		return endNotNeeded
	}
	return endNothingLeft
}

// needs reports whether an image must still be removed to free space. Earlier removals may have
// freed more than estimated, or nothing. That includes removals of other runtimes on the same
// filesystem.
func (r *imageRun) needs(ctx context.Context, d *gc.ImageDecision) bool {
	r.settle(ctx)
	return r.shortFor(d.Runtime) && r.ofFilesystems.of(d.Filesystem).idle < idleLimit
}

// settle measures the filesystems of runtimes with removals since their last measurement.
func (r *imageRun) settle(ctx context.Context) {
	for _, name := range slices.Sorted(maps.Keys(r.ofRuntimes)) {
		if r.ofRuntimes[name].stale {
			r.measure(ctx, name)
		}
	}
}

// measure updates the usage of a runtime's filesystems. It returns what was freed since the last
// measurement, corrected for the writes of other processes.
func (r *imageRun) measure(ctx context.Context, runtimeName string) (bytes, inodes uint64) {
	r.ofRuntimes.of(runtimeName).stale = false
	done := make(map[string]bool)
	for _, fs := range slices.Clone(r.facts.Filesystems) {
		if fs.Runtime != runtimeName || fs.Problem() != "" || done[fs.Name()] {
			continue
		}
		done[fs.Name()] = true
		after, others := r.survey.Settle(ctx, fs)
		if after.Err != nil && ctx.Err() != nil {
			r.ofRuntimes.of(runtimeName).stale = true
			continue
		}
		wonBytes, wonInodes := others.Won(fs, after, r.ofFilesystems.of(fs.Name()).measured)
		bytes, inodes = bytes+wonBytes, inodes+wonInodes
		r.ofFilesystems.of(fs.Name()).writing, r.ofFilesystems.of(fs.Name()).measured = others.Bytes, time.Now()
		for i := range r.facts.Filesystems {
			if u := &r.facts.Filesystems[i]; u.Name() == fs.Name() {
				own := u.Filesystem
				*u = after
				u.Filesystem = own
			}
		}
	}
	return bytes, inodes
}

// lose marks a runtime as down for the rest of the run.
func (r *imageRun) lose(name string, err error) {
	if !r.ofRuntimes.of(name).down {
		r.ofRuntimes.of(name).down = true
		r.ofRuntimes.of(name).refused = !errors.Is(err, runtime.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded)
		r.report.FailRuntime(name, err)
	}
}

func imageRemoval(d *gc.ImageDecision) runs.Removal {
	return runs.Removal{Kind: runs.KindImage, ID: d.ID, Names: d.Names, Runtime: d.Runtime, Reason: d.Reason, SizeBytes: d.SizeBytes}
}
