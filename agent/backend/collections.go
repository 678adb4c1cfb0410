package backend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/history"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/shutdown/journal"
)

// Collections answers requests about collections: the history, the plan, and a run now.
type Collections struct {
	Survey   *survey.Survey
	Unused   *collect.Images
	Dead     *collect.Containers
	History  *history.History
	Runtimes *discovery.Runtimes
	Owners   *owner.Owners
	Settings *settings.Settings
	Held     func() []journal.Restart // the restarts that the undo of a drain makes pending
	Unread   func() string            // why it is not known which containers must be kept; empty if it is
}

// policy is the effective policy.
func (c *Collections) policy() gc.Policy {
	return gc.Policy{Images: c.Unused.Policy(), Containers: c.Dead.Policy()}
}

// CollectHistory returns past collections.
func (c *Collections) CollectHistory(context.Context) (api.CollectHistory, error) {
	return api.CollectHistory{Runs: c.History.Runs()}, nil
}

// Images lists the images in removal order.
func (c *Collections) Images(ctx context.Context) (api.ImageList, error) {
	p, err := c.CollectPlan(ctx, api.CollectRequest{Images: true})
	return api.ImageList{Images: queue(p.Images), Message: p.Message}, err
}

// queue numbers the images that nothing keeps. Each filesystem has its own numbers, in the order of
// the plan.
func queue(planned []gc.ImageDecision) []api.Image {
	images := make([]api.Image, len(planned))
	last := make(map[string]int) // by filesystem
	for i, d := range planned {
		images[i].ImageDecision = d
		if d.Action == gc.Remove || d.Reason == gc.BelowThreshold {
			last[d.Filesystem]++
			images[i].Place = last[d.Filesystem]
		}
	}
	return images
}

// CollectPlan returns what a collection would remove now, and why.
func (c *Collections) CollectPlan(ctx context.Context, req api.CollectRequest) (api.CollectPlan, error) {
	o := c.options(req)
	facts, err := c.Survey.Facts(ctx, o)
	err = errors.Join(err, c.Survey.AddLayers(ctx, &facts, c.policy().Images, o))
	p := api.CollectPlan{Decisions: gc.Plan(facts, c.policy(), time.Now(), o)}
	if err != nil {
		if len(facts.Images) == 0 && len(facts.Pods) == 0 {
			return p, err
		}
		p.Message = err.Error()
	}
	if why := c.Unread(); why != "" {
		p.Message = strings.TrimPrefix(p.Message+"; "+why, "; ")
	}
	if facts.LogsErr != nil {
		p.Message = strings.TrimPrefix(p.Message+"; scan logs: "+facts.LogsErr.Error(), "; ")
	}
	return p, nil
}

// Collect runs a requested collection. Dead containers come first, because they keep images in use.
// Like a periodic one, it removes nothing while it is not known which containers must be kept.
func (c *Collections) Collect(ctx context.Context, req api.CollectRequest, progress func(runs.Progress)) (runs.Report, error) {
	if why := c.Unread(); why != "" {
		return runs.Report{}, errors.New("nothing is removed: " + why)
	}
	o := c.options(req)
	var report runs.Report
	both := req.Images == req.Containers
	if req.Containers || both {
		r, err := c.Dead.Collect(ctx, o, progress)
		if err != nil || !both {
			return r, err
		}
		report = r
	}
	r, err := c.Unused.Collect(ctx, o, progress)
	switch {
	case !both:
		return r, err
	case err != nil: // the report of the containers is still returned
		report.Errors = append(report.Errors, err.Error())
		return report, nil
	}
	return report.Then(r), nil
}

func (c *Collections) options(req api.CollectRequest) gc.Options {
	return gc.Options{
		Images: req.Images, Containers: req.Containers, AllUnused: req.AllUnused, TargetPercent: req.TargetPercent,
		RequestImages: c.leftAlone(c.Settings.Config().ImageGC.Enabled), RequestContainers: c.leftAlone(c.Settings.Config().ContainerGC.Enabled),
	}
}

// leftAlone names the runtimes whose objects a job removes only on request.
func (c *Collections) leftAlone(enabled config.Switch) []string {
	return c.Runtimes.LeftAlone(enabled == config.On)
}

// status fills in the state of image and container collection. began is the start of the boot.
func (c *Collections) status(ctx context.Context, began time.Time, s *api.Status) {
	cfg := c.Settings.Config().ImageGC
	s.ImageGC = api.ImageGC{
		Filesystems:          []gc.FilesystemStatus{},
		HighThresholdPercent: cfg.HighThresholdPercent, InodesHighThresholdPercent: cfg.InodesHighThresholdPercent,
		LowThresholdPercent: cfg.LowThresholdPercent,
	}
	if last, ran := c.Unused.Last(); ran {
		summary := last.Summary()
		s.ImageGC.LastRun = &summary
	}
	if last, ran := c.Dead.Last(); ran {
		summary := last.Summary()
		s.ContainerGC.LastRun = &summary
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	facts, err := c.Survey.Facts(ctx, gc.Options{Images: true}) // without the logs of pods
	if err != nil {                                             // zeroes without a message would look like an empty host
		s.ImageGC.Message, s.ContainerGC.Message = err.Error(), err.Error()
		s.ImageGC.Runtimes = runtime.Failed(err)
	}
	now := c.planned(facts)
	for _, fs := range now.Filesystems {
		s.ImageGC.Filesystems = append(s.ImageGC.Filesystems, fs.FilesystemStatus)
	}
	s.ImageGC.Images = len(now.Images)
	for _, img := range now.Images {
		if img.Reason != gc.InUse {
			s.ImageGC.Unused++
		}
	}
	s.ImageGC.OnRequest, s.ContainerGC.OnRequest = c.onRequest(facts, now)
	s.NotStarted, s.NotRestarted = notStarted(facts.Pods, began, s.Shutdown.History()), notRestarted(facts.Pods, began, s.Shutdown.History(), c.Held())
	for _, p := range facts.Pods {
		for _, container := range p.Containers {
			s.ContainerGC.Containers++
			if container.State == runtime.Exited {
				s.ContainerGC.Dead++
			}
		}
	}
}

// planned returns what a collection of images would do now.
func (c *Collections) planned(facts gc.Facts) gc.Decisions {
	return gc.Plan(facts, c.policy(), time.Now(), gc.Options{Images: true})
}

// onRequest counts what a requested collection would remove from runtimes that are collected only
// on request. now is what a collection of images would do; nil if nothing waits for a request.
func (c *Collections) onRequest(facts gc.Facts, now gc.Decisions) (images, containers *doctor.OnRequest) {
	cfg := c.Settings.Config()
	if names := c.leftAlone(cfg.ImageGC.Enabled); len(names) > 0 && cfg.ImageGC.Enabled != config.Off {
		images = &doctor.OnRequest{Runtimes: names, Setting: "imageGC: {enabled: true}"}
		for _, d := range now.Images {
			if d.Unused() && slices.Contains(names, d.Runtime) {
				images.Unused++
				images.Bytes += d.Image.OwnBytes()
			}
		}
		for _, fs := range now.Filesystems {
			if fs.Short() && slices.ContainsFunc(fs.Runtimes, func(name string) bool { return slices.Contains(names, name) }) {
				images.Full = append(images.Full, fs.Filesystem)
			}
		}
	}
	if names := c.leftAlone(cfg.ContainerGC.Enabled); len(names) > 0 && cfg.ContainerGC.Enabled != config.Off {
		containers = &doctor.OnRequest{Runtimes: names, Setting: "containerGC: {enabled: true, maximumAge: 168h}"}
		for _, d := range gc.Plan(facts, c.policy(), time.Now(), gc.Options{Containers: true, AllUnused: true}).Containers {
			if d.Action == gc.Remove && slices.Contains(names, d.Runtime) && d.Container.State != runtime.Running {
				containers.Unused++
			}
		}
	}
	return images, containers
}

// waiting returns these counts for doctor, but only for jobs that hostler owns.
func (c *Collections) waiting(facts gc.Facts, now gc.Decisions) (w doctor.Collection) {
	if len(c.Runtimes.OnRequest()) == 0 {
		return w
	}
	w.Images, w.Containers = c.onRequest(facts, now)
	if !c.Owners.Has(owner.ImageGC) {
		w.Images = nil
	}
	if !c.Owners.Has(owner.ContainerGC) {
		w.Containers = nil
	}
	return w
}
