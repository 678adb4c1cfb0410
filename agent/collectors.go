package agent

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/backend"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/history"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/gc/meter"
	"hostler.io/hostler/gc/podlogs"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
)

// collectors remove images and dead containers.
type collectors struct {
	survey  *survey.Survey
	tracker *lastused.Tracker
	images  *collect.Images
	dead    *collect.Containers
	history *history.History

	trackerLoop, imageLoop, deadLoop *loop.Loop
}

func (a *Agent) buildCollectors(cfg config.Config) (err error) {
	runtimes, policy := a.host.runtimes, a.settings.Policies().GC
	a.gc.trackerLoop = loop.New("last-used", 15*time.Minute, nil)
	a.gc.imageLoop = loop.New("image-gc", collectorPatience(cfg.ImageGC.Interval), nil)
	a.gc.deadLoop = loop.New("container-gc", collectorPatience(cfg.ContainerGC.Interval), nil)
	a.gc.tracker, err = lastused.New(lastused.Options{
		Store:    a.kept.folder.File("lastused"),
		Runtimes: func() []lastused.Runtime { return members[lastused.Runtime](runtimes.Set()) },
		Observe:  a.gc.trackerLoop.Beat,
		Log:      a.log.With("component", "last-used"),
	})
	if err != nil {
		return err
	}
	a.gc.survey = &survey.Survey{
		Runtimes:  func() []survey.Runtime { return members[survey.Runtime](runtimes.Set()) },
		Meter:     &meter.Statfs{},
		Uses:      a.gc.tracker,
		Protected: a.kept.protectedPods,
		Logs:      podlogs.New("/"),
		Unseen:    runtimes.Unseen,
		Kubelet:   func() bool { return a.owners.Seen(owner.ContainerGC) },
	}
	a.gc.history = history.New(a.kept.folder.File("gc-history"))
	turn := runs.NewTurn()
	options := func(l *loop.Loop, kind string, interval config.Duration, enabled func(config.Config) config.Switch) runs.Options {
		return runs.Options{
			Survey:     a.gc.survey,
			Turn:       turn,
			Interval:   time.Duration(interval),
			LeaveAlone: func() []string { return backend.LeftAlone(runtimes, enabled(a.config())) },
			Observe:    func(r runs.Report) { a.collected(l, kind, r) },
			Log:        a.log.With("component", l.Name()),
		}
	}
	a.gc.dead, err = collect.NewContainers(policy.Containers, options(a.gc.deadLoop, history.Containers, cfg.ContainerGC.Interval,
		func(c config.Config) config.Switch { return c.ContainerGC.Enabled }))
	if err != nil {
		return err
	}
	first := collect.First{Containers: a.gc.dead, Mine: func() bool { return a.owners.Has(owner.ContainerGC) }}
	a.gc.images, err = collect.NewImages(policy.Images, first, options(a.gc.imageLoop, history.Images, cfg.ImageGC.Interval,
		func(c config.Config) config.Switch { return c.ImageGC.Enabled }))
	return err
}

// members are the runtimes of a set in the words of a package that uses them.
func members[R any](set *runtime.Set) []R {
	var list []R
	for _, m := range set.Members() {
		list = append(list, m.(R)) // a runtime.Runtime has all that packages need
	}
	return list
}

// collected takes in the report of a run of a loop.
func (a *Agent) collected(l *loop.Loop, kind string, r runs.Report) {
	a.metrics.Collection(l.Name(), r)
	a.gc.history.Add(kind, r)
	l.Beat(r.Err())
	node := controlplane.NodeReference(a.node())
	on := ""
	if len(r.Filesystems) > 0 {
		on = " on " + strings.Join(r.Filesystems, " and ")
	}
	if images := r.Count(runs.KindImage); images > 0 {
		a.plane.recorder.Record(node, corev1.EventTypeNormal, "ImagesCollected", fmt.Sprintf(
			"removed %d images (%s), freed %s and %d inodes%s of %s and %d asked for, their own sizes being %s",
			images, r.Trigger, gc.Size(r.FreedBytes), r.FreedInodes, on, gc.Size(r.RequestedBytes), r.RequestedInodes, gc.Size(r.EstimatedBytes)))
	}
	if len(r.Warnings) > 0 { // whose figures differ each time, which would make each an Event of its own
		a.plane.recorder.Record(node, corev1.EventTypeWarning, "CollectionIncomplete", l.Name()+" did not reach its goal"+on+"; `hostler gc history -o wide` tells what keeps it")
	}
}

// protectedPods are those that a shutdown or a person's drain ended, of which everything
// stays for a day, so that a person may look what they did, or start them again; and the
// same by their UIDs, by which their logs go. One that runs on is not among them: what dies
// in it later is its own affair.
func (k kept) protectedPods() (pods map[gc.PodKey]gc.Kept, uids map[string]gc.Kept) {
	pods, uids = map[gc.PodKey]gc.Kept{}, map[string]gc.Kept{}
	for _, p := range k.drained.Kept(time.Now()) {
		kept := gc.Kept{Reason: gc.Drained, Detail: "kept for a day, to be started again; hostler drain has stopped it"}
		pods[gc.PodKey{Runtime: p.Runtime, ID: p.ID}] = kept
		uids[cmp.Or(p.UID, p.ID)] = kept
	}
	for _, r := range k.journal.Kept(time.Now(), uptime()) {
		detail := "kept for a day; see `hostler ps --last-shutdown`"
		if !r.CancelledAt.IsZero() {
			detail = "kept for a day; a shutdown that was cancelled stopped it"
		}
		for _, p := range r.Pods {
			asked := r.Unheard && !p.StartedAt.IsZero() // and has ended, or may have
			if asked || r.PodStatus(p).Phase != corev1.PodRunning {
				kept := gc.Kept{Reason: gc.LastShutdown, Detail: detail}
				pods[gc.PodKey{Runtime: p.Runtime, ID: p.ID}] = kept
				uids[cmp.Or(p.UID, p.ID)] = kept
			}
		}
	}
	for _, r := range k.journal.Restarts() {
		if r.Outcome == "" {
			pods[gc.PodKey{Runtime: r.Runtime, ID: r.Pod}] = gc.Kept{Reason: gc.LastShutdown, Detail: "a shutdown has stopped it; it is to be started again"}
		}
	}
	return pods, uids
}
