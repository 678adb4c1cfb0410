package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
)

const (
	// reportBytes is the size of an image that nothing uses. containerd stores it twice, packed and
	// unpacked.
	reportBytes = 8 * mebibyte
	// ahead is how long before the next collection the file system must be full, so that there is time
	// to show it.
	ahead = 6 * time.Second
)

// usage is what statfs reports for a file system.
type usage struct{ capacity, available uint64 }

func (u usage) percent() int {
	return int((100*(u.capacity-u.available) + u.capacity - 1) / u.capacity)
}

func (h *host) imageFS() (usage, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(h.containerd.Root, &st); err != nil {
		return usage{}, fmt.Errorf("statfs %s: %w", h.containerd.Root, err)
	}
	return usage{capacity: st.Blocks * uint64(st.Bsize), available: st.Bavail * uint64(st.Bsize)}, nil
}

// showDF shows the file system with df.
func (h *host) showDF(ctx context.Context) error {
	return h.showCommand(ctx, "df", "-h", h.containerd.Root)
}

// showLog shows the lines of the agent's log that contain a text.
func (h *host) showLog(ctx context.Context, text string) error {
	return h.showCommand(ctx, "grep", text, logFile)
}

// showCollection fills the image file system and shows how the agent frees space.
func (h *host) showCollection(ctx context.Context) error {
	h.out.printf("Images come and nothing uses them; a job fails and is tried again. Room is made from %d%% on, down to %d%%, every %s.", highPercent, lowPercent, interval)
	if err := h.fill(ctx); err != nil {
		return err
	}
	older, newer, err := h.runDead(ctx)
	if err != nil {
		return err
	}
	if err := h.pullReport(ctx, reportBytes); err != nil {
		return err
	}
	if err := h.showDF(ctx); err != nil {
		return err
	}
	if err := h.show(ctx, "gc", "plan"); err != nil {
		return err
	}
	var plan api.CollectPlan
	if err := h.read(ctx, &plan, "gc", "plan"); err != nil {
		return err
	}
	before, err := h.imageFS()
	if err != nil {
		return err
	}
	if !h.checkPlan(plan, before, older, newer) {
		return nil // faults has the reasons
	}
	h.out.printf("Now the agent collects, by itself.")
	s, err := h.awaitStatus(ctx, 2*interval, "the agent collecting images and dead containers", func(s api.Status) (bool, string) {
		// If space is short, a collection of images removes dead containers first.
		images := removed(s.ImageGC.LastRun, runs.KindImage)
		containers := removed(s.ImageGC.LastRun, runs.KindContainer) + removed(s.ContainerGC.LastRun, runs.KindContainer)
		return images > 0 && containers > 0, fmt.Sprintf("it removed %d images and %d containers", images, containers)
	})
	if err != nil {
		return err
	}
	after, err := h.imageFS()
	if err != nil {
		return err
	}
	if err := errors.Join(h.showLog(ctx, "collected"), h.showDF(ctx), h.show(ctx, "images")); err != nil {
		return err
	}
	return h.checkCollected(ctx, plan, s, before, after, older, newer)
}

// removed returns the number of objects of a kind that the run removed; 0 without a run.
func removed(s *runs.Summary, kind string) int {
	if s == nil {
		return 0
	}
	return s.RemovedKinds[kind]
}

// fill pulls images until one more exceeds the threshold. It returns when they are old enough to be
// removed and the next collection is not too soon.
func (h *host) fill(ctx context.Context) error {
	for {
		u, err := h.imageFS()
		if err != nil {
			return err
		}
		// The size of one more image, with a margin for other writes.
		next := usage{u.capacity, u.available - min(u.available, 2*reportBytes+mebibyte)}
		if next.percent() >= highPercent {
			break
		}
		if err := h.pullReport(ctx, reportBytes); err != nil {
			return err
		}
	}
	latest := fmt.Sprintf(imageReportOf, h.workload.reports)
	filled := time.Now()
	_, err := h.awaitStatus(ctx, 2*interval, "images that are old enough, and a collection that is not about to begin", func(s api.Status) (bool, string) {
		sinceFill := time.Since(filled)
		sinceRun := max(time.Since(s.ImageGC.LastRun.StartedAt), time.Since(s.ContainerGC.LastRun.StartedAt))
		return sinceFill > minimumAge+time.Second && sinceRun < interval-ahead, fmt.Sprintf("%s pulled %s ago, the last run began %s ago", latest, sinceFill, sinceRun)
	})
	return err
}

// checkPlan reports whether the plan is as expected.
func (h *host) checkPlan(plan api.CollectPlan, before usage, older, newer string) bool {
	out := h.out
	out.checks()
	var toFree uint64
	for _, fs := range plan.Filesystems {
		toFree += fs.BytesToFree
	}
	out.check(before.percent() >= highPercent && toFree > 0, fmt.Sprintf("at %d%% something has to go", before.percent()), "the plan wants %d bytes", toFree)
	for _, want := range []struct {
		image  string
		reason gc.Reason
	}{
		{imageWeb, gc.InUse},
		{imageBatch, gc.InUse},
		{imageDNS, gc.InUse},
		{imageMigrate, gc.InUse},
		{imageKept, gc.Protected},
		{h.containerd.SandboxImage, gc.Protected},
		{imageLocal, gc.Local},
	} {
		d := decisionOn(plan.Images, want.image)
		out.check(d.Action == gc.Keep && d.Reason == want.reason, fmt.Sprintf("%s stays: %s", want.image, want.reason), "the plan says %s: %s", d.Action, d.Reason)
	}
	d := decisionOn(plan.Images, imageOldWeb)
	out.check(d.Action == gc.Remove && plan.Images[0].ID == d.ID, imageOldWeb+" was unused longest and goes first", "the plan says %s: %s", d.Action, d.Reason)
	d = decisionOn(plan.Images, fmt.Sprintf(imageReportOf, h.workload.reports))
	out.check(d.Action == gc.Keep && d.Reason == gc.TooYoung, "the latest image stays: "+string(gc.TooYoung), "the plan says %s: %s", d.Action, d.Reason)
	first, last := decisionOnContainer(plan.Containers, older), decisionOnContainer(plan.Containers, newer)
	out.check(first.Action == gc.Remove, "the first try of the job goes", "the plan says %s: %s", first.Action, first.Reason)
	out.check(last.Action == gc.Keep && last.Reason == gc.Newest, "the last try stays, for its logs", "the plan says %s: %s", last.Action, last.Reason)
	return out.faults() == nil
}

func decisionOn(images []gc.ImageDecision, name string) gc.ImageDecision {
	for _, img := range images {
		if slices.Contains(img.Names, name) {
			return img
		}
	}
	return gc.ImageDecision{Action: "nothing", Reason: "the image is not in the plan"}
}

func decisionOnContainer(containers []gc.ContainerDecision, id string) gc.ContainerDecision {
	for _, c := range containers {
		if c.ID == id {
			return c
		}
	}
	return gc.ContainerDecision{Action: "nothing", Reason: "the container is not in the plan"}
}

// checkCollected compares what was removed with the plan, and the freed space with what the kernel
// reports.
func (h *host) checkCollected(ctx context.Context, plan api.CollectPlan, s api.Status, before, after usage, older, newer string) error {
	out, last := h.out, s.ImageGC.LastRun
	freed := int64(after.available) - int64(before.available)
	out.lines(fmt.Sprintf("before  %2d%% used, %s available", before.percent(), mib(before.available)),
		fmt.Sprintf("after   %2d%% used, %s available", after.percent(), mib(after.available)),
		fmt.Sprintf("freed   %s by statfs; the agent asked for %s and measured %s", mib(uint64(max(freed, 0))), mib(last.RequestedBytes), mib(last.FreedBytes)))
	out.checks()
	out.check(after.percent() <= lowPercent, "the file system is under the low threshold", "it is at %d%%", after.percent())
	out.check(freed-int64(last.FreedBytes) < 3*mebibyte && int64(last.FreedBytes)-freed < 3*mebibyte, "what the agent measured is what was freed", "it measured %d of %d bytes", last.FreedBytes, freed)
	out.check(len(last.Errors) == 0, "no error", "there are: %s", strings.Join(last.Errors, "; "))

	reply, err := h.containerd.Images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, img := range reply.Images {
		there[img.Id] = true
	}
	var strays []string
	gone := 0
	for _, d := range plan.Images {
		if !there[d.ID] {
			gone++
			if d.Action != gc.Remove {
				strays = append(strays, d.Names...)
			}
		}
	}
	out.check(len(strays) == 0 && gone == removed(last, runs.KindImage), fmt.Sprintf("containerd has lost %d images, all of which the plan named", gone), "it lost %d, the agent says %d, and not planned were: %v", gone, removed(last, runs.KindImage), strays)
	for _, name := range []string{imageWeb, imageKept, imageLocal, imageMigrate, h.containerd.SandboxImage} {
		out.check(there[decisionOn(plan.Images, name).ID], name+" is still there", "it is gone")
	}
	_, oldErr := h.containerd.Container(ctx, older)
	_, newErr := h.containerd.Container(ctx, newer)
	out.check(oldErr != nil && newErr == nil, "of the dead containers the older is gone and the newer is there", "containerd says of the older %v, of the newer %v", oldErr, newErr)
	for _, a := range h.workload.pods {
		c, err := h.containerd.Container(ctx, a.container())
		if err != nil {
			return err
		}
		out.check(c.State == cri.ContainerState_CONTAINER_RUNNING, a.title()+" runs on", "its container is %s", c.State)
	}
	return nil
}

func mib(bytes uint64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/mebibyte) }
