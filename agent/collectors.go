package agent

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/collect"
	"hostler.io/hostler/gc/fruitless"
	"hostler.io/hostler/gc/history"
	"hostler.io/hostler/gc/lastused"
	"hostler.io/hostler/gc/meter"
	"hostler.io/hostler/gc/podlogs"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/gc/survey"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
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
		Store: a.kept.folder.File("lastused"),
		Runtimes: func() []lastused.Runtime {
			return members(runtimes.Set(), func(r runtime.Runtime) lastused.Runtime { return r })
		},
		Observe: a.gc.trackerLoop.Heartbeat,
		Log:     a.log.With("component", "last-used"),
	})
	if err != nil {
		return err
	}
	a.gc.survey = &survey.Survey{
		Runtimes: func() []survey.Runtime {
			return members(runtimes.Set(), func(r runtime.Runtime) survey.Runtime { return r })
		},
		Meter:     &meter.Statfs{},
		Uses:      a.gc.tracker,
		Fruitless: fruitless.New(a.kept.folder.File("gc-fruitless")),
		Protected: func() (map[gc.PodKey]gc.Kept, map[string]gc.Kept) {
			return maintenance.Protected(a.kept.drained, a.kept.journal, time.Now(), uptime())
		},
		Logs:   podlogs.New("/"),
		Unseen: func() string { return cmp.Or(a.unreadStops(), runtimes.Unseen()) },
		Kubelet: func() bool {
			_, found := a.owners.Other(owner.ContainerGC)
			return found
		},
	}
	a.gc.history = history.New(a.kept.folder.File("gc-history"))
	turn := runs.NewTurn()
	options := func(l *loop.Loop, kind string, interval config.Duration, enabled config.Switch) runs.Options {
		return runs.Options{
			Survey:   a.gc.survey,
			Turn:     turn,
			Interval: time.Duration(interval),
			LeaveAlone: func() []string {
				if a.unreadStops() != "" {
					return members(runtimes.Set(), runtime.Runtime.Name)
				}
				return runtimes.LeftAlone(enabled == config.On)
			},
			Observe: func(r runs.Report) { a.collected(l, kind, r) },
			Log:     a.log.With("component", l.Name()),
		}
	}
	a.gc.dead, err = collect.NewContainers(policy.Containers, options(a.gc.deadLoop, history.Containers, cfg.ContainerGC.Interval, cfg.ContainerGC.Enabled))
	if err != nil {
		return err
	}
	first := collect.First{Containers: a.gc.dead, Mine: func() bool { return a.owners.Has(owner.ContainerGC) }}
	a.gc.images, err = collect.NewImages(policy.Images, first, options(a.gc.imageLoop, history.Images, cfg.ImageGC.Interval, cfg.ImageGC.Enabled))
	return err
}

// unreadJournal says why it is not known which pods a shutdown has stopped; empty if it is.
func (a *Agent) unreadJournal() string {
	if _, read := a.kept.journal.Found(); !read {
		return journal.ErrUnread.Error()
	}
	return ""
}

// unreadStops says why it is not known which pods a shutdown or a drain has stopped, whose
// containers are kept; empty if it is.
func (a *Agent) unreadStops() string {
	if why := a.unreadJournal(); why != "" || !a.kept.drained.Unread() {
		return why
	}
	return "drained.state in `state.directory` cannot be read; if that does not end, rename the file: hostler then forgets which pods a drain has stopped"
}

// members converts each runtime of a set to the interface that a package declares.
func members[R any](set *runtime.Set, as func(runtime.Runtime) R) []R {
	var list []R
	for _, m := range set.Members() {
		list = append(list, as(m))
	}
	return list
}

// collected handles the report of a collection.
func (a *Agent) collected(l *loop.Loop, kind string, r runs.Report) {
	a.metrics.Collection(l.Name(), r)
	a.gc.history.Add(kind, r)
	if err := r.Err(); err == nil || !r.Requested() { // the caller of a requested collection gets the error; the loop itself is healthy
		l.Heartbeat(err)
	}
	if len(r.Removed) > 0 {
		a.changed.Send() // the collection may have ended a pressure condition
	}
	node := controlplane.NodeReference(a.node())
	on := ""
	if len(r.Filesystems) > 0 {
		on = " on " + strings.Join(r.Filesystems, " and ")
	}
	if images := r.Count(runs.KindImage); images > 0 {
		a.plane.recorder.Record(node, corev1.EventTypeNormal, "ImagesCollected", fmt.Sprintf(
			"removed %d images (%s), freed %s and %d inodes%s; requested %s and %d; estimated %s",
			images, r.Trigger, gc.Size(r.FreedBytes), r.FreedInodes, on, gc.Size(r.RequestedBytes), r.RequestedInodes, gc.Size(r.EstimatedBytes)))
	}
	if len(r.Warnings) > 0 { // the warnings contain figures that change, so with them each Event would be unique
		a.plane.recorder.Record(node, corev1.EventTypeWarning, "CollectionIncomplete", l.Name()+" did not reach its goal"+on+"; `hostler gc history -o wide` shows the reasons")
	}
}
