package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/gc/pace"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
)

const (
	// maxBatch is the maximum number of images to remove before the next measurement. A measurement
	// syncs the filesystem, which takes as long as several removals.
	maxBatch = 64
	// maxAtOnce bounds parallel removals on one runtime. containerd answers a removal after its own
	// garbage collection, which runs once for all waiting removals. More would be faster, but then
	// the check of what is in use would be older.
	maxAtOnce = 8
)

// attempt is the removal of one image in a batch. Its own goroutine writes the result, until done
// is closed.
type attempt struct {
	*gc.ImageDecision
	refs []string
	done chan struct{}

	reason  gc.Reason // why it is kept; empty if it is not
	detail  string
	err     error
	unknown bool // it is unknown whether the image is in use
	window  time.Duration
}

// stride identifies removals with a common batch size: those of one runtime that must free space,
// or those that do not need to.
type stride struct {
	runtime  string
	forSpace bool
}

func strideOf(d *gc.ImageDecision) stride { return stride{d.Runtime, d.Reason == gc.LRU} }

// batch returns how many images at the start of the queue to remove in parallel. All are of one
// runtime. The number starts at one. It grows until removals free nothing.
func (r *imageRun) batch(queue []*gc.ImageDecision) int {
	first := queue[0]
	n := 1
	for n < len(queue) && n < r.pace[strideOf(first)] && strideOf(queue[n]) == strideOf(first) {
		n++
	}
	if first.Reason != gc.LRU {
		return n // they are removed whatever they free
	}
	var usages []gc.Usage
	for _, u := range r.facts.Filesystems {
		if u.Runtime == first.Runtime {
			usages = append(usages, u)
		}
	}
	return gc.Batch(queue[:n], usages, r.policy, r.options, r.ofRuntimes.of(first.Runtime).yield)
}

// remove removes a batch of images, except those that are in use since the plan, and measures the
// result.
func (r *imageRun) remove(ctx context.Context, batch []*gc.ImageDecision, total int) {
	name := batch[0].Runtime
	var taken []*attempt
	for chunk := range slices.Chunk(batch, maxAtOnce) {
		if ctx.Err() == nil && !r.ofRuntimes.of(name).down {
			taken = append(taken, r.removeAtOnce(ctx, r.runtimes[name], chunk, total)...)
		}
	}
	if len(taken) > 0 {
		r.assess(ctx, taken)
	}
}

// removeAtOnce checks again which images are in use, removes the others in parallel, and returns
// the removed ones.
func (r *imageRun) removeAtOnce(ctx context.Context, rt survey.Runtime, images []*gc.ImageDecision, total int) (taken []*attempt) {
	asked := time.Now()
	now, err := queryInUse(ctx, rt)
	attempts := make([]*attempt, len(images))
	wait := &r.ofRuntimes.of(images[0].Runtime).patience
	for i, d := range images {
		a := &attempt{ImageDecision: d, refs: gc.References(nil, d.Image), done: make(chan struct{}), err: err, unknown: err != nil}
		attempts[i] = a
		if err == nil { // without an answer, remove nothing
			a.reason, a.detail = r.protection(a, now)
		}
		if err != nil || a.reason != "" {
			close(a.done)
			continue
		}
		go func() {
			defer close(a.done)
			a.remove(ctx, rt, wait)
			a.window = time.Since(asked)
		}()
	}
	for _, a := range attempts {
		<-a.done
	}
	verify(ctx, rt, attempts)
	for _, a := range attempts {
		if r.conclude(ctx, rt, a, total) {
			taken = append(taken, a)
		}
	}
	return taken
}

// remove removes the image from the runtime.
func (a *attempt) remove(ctx context.Context, rt survey.Runtime, wait *pace.Patience) {
	a.err = wait.Within(ctx, 0, func(ctx context.Context) error { return rt.RemoveImage(ctx, *a.Image) })
	if errors.Is(a.err, runtime.ErrInUse) {
		a.reason, a.detail, a.err = gc.InUse, a.err.Error(), nil
	}
}

// verify checks that the runtime no longer lists images whose removal it reported.
func verify(ctx context.Context, rt survey.Runtime, attempts []*attempt) {
	if !slices.ContainsFunc(attempts, (*attempt).succeeded) {
		return
	}
	images, err := runtime.Within(ctx, survey.Timeout, rt.Images)
	for _, a := range attempts {
		if !a.succeeded() {
			continue
		}
		if err != nil {
			a.err = fmt.Errorf("verify that image %s is removed: %w", a.Names[0], err)
		} else if i := slices.IndexFunc(images, func(img runtime.Image) bool { return img.ID == a.ID }); i >= 0 {
			a.err = fmt.Errorf("remove image %s: the runtime reports success but still lists it as %s", a.Names[0], strings.Join(images[i].Names(), ", "))
		}
	}
}

func (a *attempt) succeeded() bool { return a.reason == "" && a.err == nil }

// queryInUse queries a runtime. The runtime may have disappeared.
func queryInUse(ctx context.Context, rt survey.Runtime) (survey.InUse, error) {
	if rt == nil {
		return survey.InUse{}, errGone
	}
	return survey.QueryInUse(ctx, rt)
}

// errGone is returned for a runtime that no longer exists.
var errGone = fmt.Errorf("%w: it is no longer on this host", runtime.ErrUnavailable)

// protection returns why an image is protected now; empty if it is not.
func (r *imageRun) protection(a *attempt, now survey.InUse) (gc.Reason, string) {
	if by := now.By(a.Runtime, a.refs); by != "" {
		return gc.InUse, by
	}
	if r.survey.Uses.NewsOf(a.Image, a.refs, lastused.Use{FirstSeen: a.FirstSeen, LastUsed: a.LastUsed}) {
		return gc.TooYoung, "pulled, tagged or used since the plan"
	}
	return "", ""
}

// conclude records the result of an attempt, and reports whether the image was removed.
func (r *imageRun) conclude(ctx context.Context, rt survey.Runtime, a *attempt, total int) (gone bool) {
	r.tried.count++
	step := runs.Progress{Removal: imageRemoval(a.ImageDecision), Action: gc.Keep, Done: r.tried.count, Total: total}
	ref := imageRef{a.Runtime, a.ID}
	r.report.LongestWindow.Duration = max(r.report.LongestWindow.Duration, a.window)
	switch {
	case a.reason != "":
		r.tried.skip[ref] = true
		r.report.Kept[a.reason]++
		step.Reason = a.reason
		stays := *a.ImageDecision
		stays.Action, stays.Reason, stays.Detail = gc.Keep, a.reason, a.detail
		r.tried.stayed = append(r.tried.stayed, stays)
		r.log.Debug("image kept", "image", a.Names[0], "id", a.ID, "runtime", a.Runtime, "reason", a.reason, "detail", a.detail)
	case a.err == nil:
		gone = true
		step.Action = gc.Remove
		r.tried.removed[ref] = taken{name: a.Names[0], refs: a.refs}
		r.booked(a, step.Removal)
	case ctx.Err() != nil:
		if !a.unknown {
			r.unanswered(a)
		}
		step.Err = a.err
	case r.ofRuntimes.of(a.Runtime).down || a.unknown || isDown(ctx, rt, a.err):
		r.lose(a.Runtime, runtime.MemberError{Runtime: a.Runtime, Err: a.err})
		step.Err = a.err
	default:
		if errors.Is(a.err, runtime.ErrUnavailable) || errors.Is(a.err, context.DeadlineExceeded) {
			r.unanswered(a)
		}
		r.tried.skip[ref] = true
		r.report.Fail("image "+a.ID, a.err) // the error names the operation and the image
		step.Err = a.err
	}
	r.progress(step)
	return gone
}

// unanswered records a removal with an unknown result. The image may have been removed: later
// measurements and lists show it.
func (r *imageRun) unanswered(a *attempt) {
	r.tried.removed[imageRef{a.Runtime, a.ID}] = taken{name: a.Names[0], refs: a.refs}
	r.ofRuntimes.of(a.Runtime).stale = true
}

// booked records a removal.
func (r *imageRun) booked(a *attempt, removal runs.Removal) {
	r.report.Removed = append(r.report.Removed, removal)
	r.report.EstimatedBytes += a.Gain.Bytes
	r.report.EstimatedInodes += a.Gain.Inodes
	r.survey.Uses.Forget(a.Runtime, a.ID)
	r.log.Info("image removed", "image", a.Names[0], "id", a.ID, "runtime", a.Runtime, "filesystem", a.Filesystem,
		"reason", a.Reason, "sizeBytes", a.SizeBytes)
	r.ofRuntimes.of(a.Runtime).stale = true
}

// assess measures what a batch freed, if it was removed to free space. It sets the batch size to one if
// the batch freed nothing although it was large enough, and doubles it otherwise.
func (r *imageRun) assess(ctx context.Context, taken []*attempt) {
	first := taken[0]
	pace := strideOf(first.ImageDecision)
	faster := min(2*max(1, r.pace[pace]), maxBatch)
	if first.Reason != gc.LRU {
		r.pace[pace] = faster
		return // removed whatever it frees; measured once, later
	}
	var estimate gc.Gain
	var sizes uint64
	for _, a := range taken {
		estimate.Bytes += a.Gain.Bytes
		estimate.Inodes += a.Gain.Inodes
		sizes += a.SizeBytes
	}
	lacking := r.lacking(first.Filesystem)
	wonBytes, wonInodes := r.measure(ctx, first.Runtime)
	if ctx.Err() != nil {
		return
	}
	r.ofRuntimes.of(first.Runtime).yield.Add(len(taken), estimate.Bytes, wonBytes, estimate.Inodes, wonInodes)
	fs := r.ofFilesystems.of(first.Filesystem)
	p := &fs.pending
	p.images += len(taken)
	p.wholeBytes += sizes
	p.estimate.Bytes, p.estimate.Inodes = p.estimate.Bytes+estimate.Bytes, p.estimate.Inodes+estimate.Inodes
	p.freed.Bytes, p.freed.Inodes = p.freed.Bytes+wonBytes, p.freed.Inodes+wonInodes
	switch {
	case gc.Frees(lacking, p.estimate, p.freed):
		fs.idle, fs.pending, r.pace[pace] = 0, pending{}, faster
		r.survey.Fruitless.Forget(first.Filesystem)
	case p.estimate.Bytes < p.wholeBytes/10 || !gc.Measurable(lacking, p.estimate):
		// The estimate of these images is near zero: they are small, or share layers with images that
		// are removed after them. One by one, many of them would delay all others.
		r.pace[pace] = faster
	default:
		fs.idle, fs.pending, r.pace[pace] = fs.idle+p.images, pending{}, 1
	}
}

// lacking returns how much a filesystem lacks by the latest measurement.
func (r *imageRun) lacking(filesystem string) gc.FilesystemDecision {
	all := r.filesystems()
	return all[slices.IndexFunc(all, func(fs gc.FilesystemDecision) bool { return fs.Filesystem == filesystem })]
}
