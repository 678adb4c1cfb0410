package collect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
)

// finish makes the last measurements and completes the report.
func (r *imageRun) finish(ctx context.Context) {
	running := ctx
	ctx, done := finally(running)
	defer done()
	r.settle(ctx)
	r.remember()
	r.count()
	filesystems := r.filesystems()
	if len(r.report.Removed)+len(r.tried.removed) > 0 {
		for _, fs := range filesystems {
			if before := r.ofFilesystems.of(fs.Filesystem).before; before != nil {
				r.report.Book(*before, r.usage(fs.Filesystem))
			}
		}
	}
	for _, fs := range filesystems {
		if r.options.TargetPercent > 0 && fs.Message != "" || fs.Short() {
			r.report.Short = append(r.report.Short, fs.Filesystem)
		}
		if fs.Message != "" {
			r.report.Warn("filesystem "+fs.Filesystem, fmt.Sprintf(
				"image filesystem %s (%s): %s: no images are removed to free space on it until it reports valid usage",
				fs.Filesystem, fs.Device, fs.Message))
		} else if fs.Short() {
			if r.report.Ended == runs.Cancelled { // the cancellation is the reason
				continue
			}
			r.report.Warn("free space on "+fs.Filesystem, r.shortage(ctx, fs))
			continue
		}
		delete(r.collector.weighed, fs.Filesystem) // measure again when it is full the next time
	}
	r.warnUnreportedFilesystems()
	ctx, cancel := finally(running) // a new context, because the measurements may have used up the time
	defer cancel()
	r.findBroken(ctx)
}

// warnUnreportedFilesystems warns about runtimes that do not report the filesystem of their images.
func (r *imageRun) warnUnreportedFilesystems() {
	named := make(map[string]bool)
	for _, u := range r.facts.Filesystems {
		named[u.Runtime] = true
	}
	for name := range r.runtimes {
		hasSome := slices.ContainsFunc(r.facts.Images, func(img gc.ImageFact) bool { return img.Runtime == name })
		if hasSome && !named[name] && !r.ofRuntimes.of(name).down {
			r.report.Warn("filesystem of "+name, "runtime "+name+" reports no image filesystem: its images are removed on request only")
		}
	}
}

// count counts the images that the last plan keeps.
func (r *imageRun) count() {
	for _, d := range r.decisions.Images {
		ref := imageRef{d.Runtime, d.ID}
		_, removed := r.tried.removed[ref]
		switch {
		case d.Action == gc.Keep:
			r.report.Kept[d.Reason]++
		case !removed && !r.tried.skip[ref] && !r.shortFor(d.Runtime):
			r.report.Kept[gc.BelowThreshold]++
		}
	}
}

// findBroken searches for containers that began to use an image while it was removed. Some runtimes
// do not prevent that.
func (r *imageRun) findBroken(ctx context.Context) {
	byRuntime := make(map[string][]imageRef)
	for ref := range r.tried.removed {
		byRuntime[ref.runtime] = append(byRuntime[ref.runtime], ref)
	}
	for name, removed := range byRuntime {
		users, there, err := r.usersNow(ctx, name)
		if err != nil && r.ofRuntimes.of(name).down {
			continue // already reported
		}
		if err != nil { // later runs do not know which images this run removed
			r.report.Fail("use of images removed from "+name, fmt.Errorf(
				"runtime %s: check whether new containers use one of the %d removed images: %w; run `hostler gc plan`", name, len(removed), err))
			continue
		}
		for _, ref := range removed {
			image := r.tried.removed[ref]
			c, _ := users.First(name, image.refs)
			if c == nil || slices.ContainsFunc(image.refs, func(ref string) bool { return there[ref] }) { // the image was pulled again
				continue
			}
			r.report.Fail("image "+ref.id, fmt.Errorf(
				"image %s was removed while container %s started to use it (longest window of this run: %s); pull it again",
				image.name, c.Name, r.report.LongestWindow.Duration))
		}
	}
}

// usersNow queries the containers of a runtime and the references of its images.
func (r *imageRun) usersNow(ctx context.Context, name string) (gc.Users, map[string]bool, error) {
	rt := r.runtimes[name]
	if rt == nil {
		return nil, nil, errGone
	}
	pods, err := runtime.Within(ctx, survey.Timeout, rt.Pods)
	if err != nil {
		return nil, nil, err
	}
	images, err := runtime.Within(ctx, survey.Timeout, rt.Images)
	if err != nil {
		return nil, nil, err
	}
	there := make(map[string]bool)
	for i := range images {
		for _, ref := range gc.References(nil, &images[i]) {
			there[ref] = true
		}
	}
	return gc.UsersOf(pods), there, nil
}

// shortage explains why space is still lacking.
func (r *imageRun) shortage(ctx context.Context, fs gc.FilesystemDecision) string {
	var text strings.Builder
	low := r.policy.LowPercent
	if r.options.TargetPercent > 0 {
		low = r.options.TargetPercent
	}
	fmt.Fprintf(&text, "image filesystem %s (%s) is %d%% full, inodes %d%%; target %d%%, inodes %d%% (high thresholds %d%%, inodes %d%%): %s",
		fs.Filesystem, fs.Device, fs.UsedPercent, fs.InodesUsedPercent, low, r.policy.InodesLowPercent,
		r.policy.HighPercent, r.policy.InodesHighPercent, r.report.Ended)
	if speed := r.ofFilesystems.of(fs.Filesystem).writing; speed > 0 {
		fmt.Fprintf(&text, "; other processes write to it, %s per second when last measured", gc.Size(uint64(speed)))
	}
	text.WriteString("; images kept: ")
	holders := r.holders(fs)
	for i, h := range holders {
		if i > 0 {
			text.WriteString(", ")
		}
		fmt.Fprintf(&text, "%d %s, %s", h.Images, h.Reason, gc.Size(h.SizeBytes))
		if len(h.By) > 0 {
			fmt.Fprintf(&text, " (%s)", strings.Join(h.By[:min(len(h.By), 3)], ", "))
		}
	}
	if len(holders) == 0 {
		text.WriteString("none")
	}
	r.report.Holders = append(r.report.Holders, holders...)
	if folders := r.folders(ctx, fs); len(folders) > 0 {
		text.WriteString("; " + describe(folders))
		r.report.Folders = append(r.report.Folders, folders...)
	}
	fmt.Fprintf(&text, "; run `du -xah %s | sort -h | tail -20` to see what else fills it", fs.Filesystem)
	return text.String()
}

// maxBy is the maximum number of users in a Holder.
const maxBy = 10

// holders returns the images that remain on a filesystem, grouped by reason.
func (r *imageRun) holders(fs gc.FilesystemDecision) []runs.Holder {
	byReason := make(map[gc.Reason]*runs.Holder)
	all := slices.Concat(r.decisions.Images, r.tried.stayed)
	for i := range all {
		d := &all[i]
		if d.Action != gc.Keep || d.Filesystem != fs.Filesystem {
			continue
		}
		h := byReason[d.Reason]
		if h == nil {
			h = &runs.Holder{Filesystem: fs.Filesystem, Reason: d.Reason}
			byReason[d.Reason] = h
		}
		h.Images++
		h.SizeBytes += d.SizeBytes
		if d.Reason == gc.TooYoung {
			continue // the detail is a time, which differs for each image
		}
		if d.Detail != "" && len(h.By) < maxBy && !slices.Contains(h.By, d.Detail) {
			h.By = append(h.By, d.Detail)
		}
	}
	holders := make([]runs.Holder, 0, len(byReason))
	for _, reason := range slices.Sorted(maps.Keys(byReason)) {
		holders = append(holders, *byReason[reason])
	}
	return holders
}
