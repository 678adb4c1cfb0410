package collect

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/runtime"
)

// idleLimit is how many removals in a row may bring nothing before the run ends.
const idleLimit = 2

// imageRun is one run of Images. One goroutine owns it.
type imageRun struct {
	survey   *Survey
	log      *slog.Logger
	policy   gc.ImagePolicy
	options  gc.Options
	report   *Report
	progress func(Progress)

	facts     gc.Facts // Filesystems in it are the latest measurement
	runtimes  map[string]Runtime
	decisions gc.Decisions

	before  map[string]gc.Usage // filesystems at the start
	stale   map[string]bool     // runtimes with removals since the last measurement
	down    map[string]bool     // runtimes that stopped answering
	skip    map[imageRef]bool   // images not to try again in this run
	removed map[imageRef]taken
	idle    map[string]int // removals in a row that brought nothing, by filesystem
	done    int
}

// imageRef is an image of a runtime, by its ID.
type imageRef struct{ runtime, id string }

// taken is a removed image, by all the names it had.
type taken struct {
	name string
	refs []string
}

// look gathers the facts anew, without what this run has given up.
func (r *imageRun) look(ctx context.Context) {
	facts, failed := r.survey.look(ctx, r.options)
	for _, err := range failed {
		r.lose(err.Runtime, err)
		for _, u := range r.facts.Filesystems {
			if u.Runtime == err.Runtime { // its last figures still count
				facts.Filesystems = append(facts.Filesystems, u)
			}
		}
	}
	facts.Images = slices.DeleteFunc(facts.Images, func(img gc.ImageFact) bool {
		return r.down[img.Runtime] || r.skip[imageRef{img.Runtime, img.ID}]
	})
	r.facts = facts
	r.runtimes = byName(r.survey.Runtimes())
	r.stale = make(map[string]bool)
}

// begin notes where the run starts from and how far it has to go.
func (r *imageRun) begin() {
	for _, fs := range r.filesystems() {
		r.before[fs.Filesystem] = r.usage(fs.Filesystem)
		r.report.RequestedBytes += fs.BytesToFree
		r.report.RequestedInodes += fs.InodesToFree
		if fs.BytesToFree > 0 {
			r.options.BegunSpace = append(slices.Clip(r.options.BegunSpace), fs.Filesystem)
		}
		if fs.InodesToFree > 0 {
			r.options.BegunInodes = append(slices.Clip(r.options.BegunInodes), fs.Filesystem)
		}
	}
}

// filesystems says what is lacking by the latest measurement.
func (r *imageRun) filesystems() []gc.FilesystemDecision {
	return gc.Filesystems(r.facts.Filesystems, r.policy, r.options)
}

// short tells whether room is lacking anywhere.
func (r *imageRun) short() bool {
	return slices.ContainsFunc(r.filesystems(), gc.FilesystemDecision.Short)
}

// asked tells whether the run began because room was lacking.
func (r *imageRun) asked() bool { return len(r.options.BegunSpace)+len(r.options.BegunInodes) > 0 }

// blind tells whether a filesystem that was short tells nothing usable now.
func (r *imageRun) blind() bool {
	return slices.ContainsFunc(r.filesystems(), func(fs gc.FilesystemDecision) bool {
		return fs.Message != "" && (slices.Contains(r.options.BegunSpace, fs.Filesystem) || slices.Contains(r.options.BegunInodes, fs.Filesystem))
	})
}

// shortFor tells whether room is lacking where a runtime keeps images.
func (r *imageRun) shortFor(runtimeName string) bool {
	return slices.ContainsFunc(r.filesystems(), func(fs gc.FilesystemDecision) bool {
		return fs.Short() && slices.Contains(fs.Runtimes, runtimeName)
	})
}

// usage is the latest measurement of a filesystem.
func (r *imageRun) usage(filesystem string) gc.Usage {
	i := slices.IndexFunc(r.facts.Filesystems, func(u gc.Usage) bool { return u.Name() == filesystem })
	return r.facts.Filesystems[i]
}

// carryOut removes what the decisions say, in their order, and tells whether
// the run may go on after it.
func (r *imageRun) carryOut(ctx context.Context, d gc.Decisions) bool {
	r.decisions = d
	total := r.done
	for _, img := range d.Images {
		if img.Action == gc.Remove {
			total++
		}
	}
	for i := range d.Images {
		img := &d.Images[i]
		if img.Action == gc.Keep || r.down[img.Runtime] || img.Reason == gc.LRU && !r.needs(ctx, img) {
			continue
		}
		if ctx.Err() != nil {
			r.report.Ended = whyDone(ctx)
			return false
		}
		r.remove(ctx, img, total)
	}
	if r.report.Ended = r.outcome(); ctx.Err() != nil {
		r.report.Ended = whyDone(ctx)
	}
	return r.report.Ended == endNothingLeft
}

// Why a run ends by itself.
const (
	endNothingLeft = "nothing more to remove"
	endDown        = "a runtime does not answer"
	endReached     = "low threshold reached"
	endBlind       = "a filesystem tells no usable figures any more"
	endIdle        = "two removals in a row freed nothing"
)

func (r *imageRun) outcome() string {
	stuck := false
	for _, n := range r.idle {
		stuck = stuck || n >= idleLimit
	}
	switch {
	case len(r.down) > 0:
		return endDown
	case r.asked() && !r.short():
		if r.blind() {
			return endBlind
		}
		return endReached
	case stuck:
		return endIdle
	}
	return endNothingLeft
}

// needs tells whether an image that is to make room still has to go: the
// removals before may have brought more than estimated, or nothing at all.
func (r *imageRun) needs(ctx context.Context, d *gc.ImageDecision) bool {
	if r.stale[d.Runtime] {
		r.measure(ctx, d.Runtime)
	}
	return r.shortFor(d.Runtime) && r.idle[d.Filesystem] < idleLimit
}

// remove takes one image, unless something has come to use it since the plan.
func (r *imageRun) remove(ctx context.Context, d *gc.ImageDecision, total int) {
	r.done++
	step := Progress{Removal: imageRemoval(d), Action: gc.Keep, Done: r.done, Total: total}
	ref := imageRef{d.Runtime, d.ID}
	refs := gc.References(nil, d.Image)
	rt := r.runtimes[d.Runtime]

	asked := time.Now()
	reason, detail, err := r.protection(ctx, rt, d, refs)
	unknown := err != nil // without an answer nothing is removed
	if err == nil && reason == "" {
		_, err = within(ctx, removeTimeout, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, rt.RemoveImage(ctx, *d.Image)
		})
		r.report.LongestWindow.Duration = max(r.report.LongestWindow.Duration, time.Since(asked))
		if errors.Is(err, runtime.ErrInUse) {
			reason, detail, err = gc.InUse, err.Error(), nil
		}
	}
	switch {
	case reason != "":
		r.skip[ref] = true
		r.report.Kept[reason]++
		r.log.Debug("image kept", "image", d.Names[0], "id", d.ID, "runtime", d.Runtime, "reason", reason, "detail", detail)
	case err == nil:
		step.Action = gc.Remove
		r.removed[ref] = taken{name: d.Names[0], refs: refs}
		r.booked(ctx, d, step.Removal)
	case ctx.Err() != nil:
		step.Err = err
	case unknown || isDown(ctx, rt, err):
		r.lose(d.Runtime, &RuntimeError{Runtime: d.Runtime, Err: err})
		step.Err = err
	default:
		r.skip[ref] = true
		r.report.fail("image "+d.ID, fmt.Errorf("remove image %s: %w", d.Names[0], err))
		step.Err = err
	}
	r.progress(step)
}

// protection asks again, in the call just before a removal, whether something
// uses the image. It is asked of the containers, and of who else may use images,
// because not every runtime refuses by itself to remove what they use.
func (r *imageRun) protection(ctx context.Context, rt Runtime, d *gc.ImageDecision, refs []string) (gc.Reason, string, error) {
	if rt == nil {
		return "", "", fmt.Errorf("%w: it is not on this host any more", runtime.ErrUnavailable)
	}
	pods, err := within(ctx, lookTimeout, rt.Pods)
	if err != nil {
		return "", "", fmt.Errorf("ask what is in use: %w", err)
	}
	if c := gc.UsersOf(pods).First(d.Runtime, refs); c != nil {
		return gc.InUse, "container " + c.Name, nil
	}
	others, err := otherUsers(ctx, rt)
	if err != nil {
		return "", "", fmt.Errorf("ask what is in use: %w", err)
	}
	if by := others.of(refs); len(by) > 0 {
		return gc.InUse, by[0], nil
	}
	if r.survey.Uses.NewsOf(d.Image, refs, lastused.Use{FirstSeen: d.FirstSeen, LastUsed: d.LastUsed}) {
		return gc.TooYoung, "pulled, tagged or used since the plan", nil
	}
	return "", "", nil
}

// booked notes a removal, and what it brought if room is what it was for.
func (r *imageRun) booked(ctx context.Context, d *gc.ImageDecision, removal Removal) {
	r.report.Removed = append(r.report.Removed, removal)
	r.report.EstimatedBytes += d.SizeBytes
	r.survey.Uses.Forget(d.Runtime, d.ID)
	r.log.Info("image removed", "image", d.Names[0], "id", d.ID, "runtime", d.Runtime, "filesystem", d.Filesystem,
		"reason", d.Reason, "sizeBytes", d.SizeBytes)
	r.stale[d.Runtime] = true
	if d.Reason != gc.LRU {
		return // it goes whatever it brings; measured once, later
	}
	won := r.measure(ctx, d.Runtime)
	switch {
	case won:
		r.idle[d.Filesystem] = 0
	case ctx.Err() == nil:
		r.idle[d.Filesystem]++
	}
}

// measure updates the figures of the runtime's filesystems and tells whether
// room was won since they were last taken.
func (r *imageRun) measure(ctx context.Context, runtimeName string) (won bool) {
	delete(r.stale, runtimeName)
	for _, fs := range slices.Clone(r.facts.Filesystems) {
		if fs.Runtime != runtimeName || fs.Problem() != "" {
			continue
		}
		after := r.survey.settle(ctx, fs)
		if after.Err != nil && ctx.Err() != nil {
			r.stale[runtimeName] = true
			continue
		}
		won = won || gained(fs, after)
		for i := range r.facts.Filesystems {
			if u := &r.facts.Filesystems[i]; u.Name() == fs.Name() {
				own := u.Filesystem
				*u = after
				u.Filesystem = own
			}
		}
	}
	return won
}

// lose gives up on a runtime for the rest of the run.
func (r *imageRun) lose(name string, err error) {
	if !r.down[name] {
		r.down[name] = true
		r.report.fail("runtime "+name, err)
	}
}

func imageRemoval(d *gc.ImageDecision) Removal {
	return Removal{Kind: KindImage, ID: d.ID, Names: d.Names, Runtime: d.Runtime, Reason: d.Reason, SizeBytes: d.SizeBytes}
}
