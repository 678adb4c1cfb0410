package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
)

const (
	// FirstBound is how long the drain waits for all services that are stopped first. If a service
	// needs longer, its stop continues in parallel with the pods.
	FirstBound = 10 * time.Second
	// adoptBound bounds Adopt, and the wait for the record on disk.
	adoptBound = 2 * time.Second
	// answerBound is how long the drain waits for the result of an abandoned stop.
	answerBound = 500 * time.Millisecond
	// LongestLead bounds all steps before the phases begin.
	LongestLead = FirstBound + adoptBound
)

// First is the services that are stopped before any pod, because they run a kubelet, which would
// start pods again. Their runtimes may stop with them. The zero First stops none.
type First struct {
	Names    []string
	Services Services // may be nil if there are no names, and the record has no services
}

// Services are the operations on services that a drain needs.
type Services interface {
	// UnitRuns reports whether a service is running or starting.
	UnitRuns(ctx context.Context, name string) (bool, error)
	// StopAlone stops only this service. It returns when the service has ended or ctx ends, and
	// reports whether it was running.
	StopAlone(ctx context.Context, name string) (ran bool, err error)
	// OrderedAfter returns, for each of the units, the running services that are ordered after it,
	// so that they stop before it. It also returns those of these services.
	OrderedAfter(ctx context.Context, units ...string) (map[string][]string, error)
	// Adopt is called before services are stopped. After that, pods may have to be stopped without
	// their runtime: the listed pods, and the recorded ones whose runtime lists none. signals has
	// the known stop signals by container ID. Adopt returns all stop signals that are then known.
	Adopt(ctx context.Context, listed, recorded []runtime.Pod, signals map[string]string) map[string]string
}

// Bound returns the additional time of a drain for the services that are stopped first.
func (f First) Bound() time.Duration {
	if len(f.Names) == 0 {
		return 0
	}
	return LongestLead
}

// Lead returns the part of the granted time for these services: at most a quarter. granted is zero
// if unknown.
func (f First) Lead(granted time.Duration) time.Duration {
	if bound := f.Bound(); granted <= 0 || bound < granted/4 {
		return bound
	}
	return granted / 4
}

// Left returns the granted time without Lead; zero if unknown.
func (f First) Left(granted time.Duration) time.Duration {
	if granted <= 0 {
		return 0
	}
	return granted - f.Lead(granted)
}

// adopt prepares to stop pods without their runtime. It records the facts that only the runtime
// has.
func (d *Drain) adopt(ctx context.Context, pods []runtime.Pod) {
	bound := adoptBound
	if d.schedule.lead > 0 { // otherwise the setting was removed since
		bound = min(bound, d.schedule.lead/5)
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	recorded, known := d.sandboxes()
	signals := d.options.First.Services.Adopt(ctx, pods, recorded, known)
	for _, listed := range pods {
		p := d.podOf(listed)
		if p.record == nil {
			continue
		}
		for _, c := range listed.Containers {
			if signal := signals[c.ID]; signal != "" {
				p.container(c.ID).StopSignal, p.written = signal, nil
			}
		}
	}
}

// sandboxes returns the sandboxes in the record, without their containers: the state of runc has
// those. Without the runtime, labels are unknown, but the record has their effect. signals has the
// recorded stop signals by container ID.
func (d *Drain) sandboxes() (pods []runtime.Pod, signals map[string]string) {
	signals = map[string]string{}
	for _, p := range d.entered {
		for _, c := range p.containers {
			if c.StopSignal != "" {
				signals[c.ID] = c.StopSignal
			}
		}
		r := p.record
		if !r.Sandbox {
			continue
		}
		labels := map[string]string{runtime.LabelPriority: strconv.Itoa(int(r.Priority))}
		if r.Grace.Duration > 0 {
			labels[runtime.LabelGracePeriod] = r.Grace.Duration.String()
		}
		pods = append(pods, runtime.Pod{
			Runtime: r.Runtime, ID: r.ID, UID: r.UID, Namespace: r.Namespace, Name: r.Name, Ready: true, Sandbox: true, Labels: labels,
		})
	}
	return pods, signals
}

// enterAll records which pods are stopped in which phase. The next process may find no runtime that
// lists them.
func (d *Drain) enterAll() {
	for _, phase := range d.plan().Phases {
		for _, pod := range phase.Pods {
			if _, came := d.entry(phase.Name, pod); came {
				d.reopen()
			}
		}
	}
}

// stopFirst stops the services in parallel. The phases begin after that.
func (d *Drain) stopFirst(ctx context.Context) {
	if d.schedule.lead == 0 || d.life.ended(ctx) {
		return
	}
	began, before := time.Now(), slices.Clone(d.record.StoppedFirst)
	d.enterAll()
	if d.lists.fresh || len(before) == 0 {
		d.adopt(ctx, d.lists.current)
	}
	names := d.toStop(ctx)
	if d.life.ended(ctx) {
		return
	}
	for _, name := range names {
		// Record the request before the stop, so that the service is started again even if this
		// process ends.
		d.service(name).AskedAt = time.Now()
	}
	d.publish()
	if len(names) > 0 {
		d.flush(ctx)
		d.stopAll(ctx, names, d.leadLeft(began, len(before) > 0), before)
		d.awaitAnswers(ctx)
	}
	d.schedule.start = d.schedule.start.Add(time.Since(began))
	d.lists.settled = false // the list was made before the stop
	d.publish()
}

// awaitAnswers waits for one complete list. For a moment, a runtime that was killed with its
// service accepts calls but does nothing. A stop would then seem to be requested.
func (d *Drain) awaitAnswers(ctx context.Context) {
	until := time.Now().Add(min(listBound, d.schedule.lead/10))
	old := d.lists.polling // that list was requested before
	if d.life.ended(ctx) {
		return
	}
	if _, end := d.nextList(ctx, until); end == reached && old && !d.life.ended(ctx) {
		d.nextList(ctx, until)
	}
}

// toStop returns the services that are running, or may be. A recorded service that is not running
// has ended since its stop.
func (d *Drain) toStop(ctx context.Context) (names []string) {
	ctx, cancel := context.WithTimeout(ctx, min(adoptBound, d.schedule.lead/5))
	defer cancel()
	list := &d.record.StoppedFirst
	for _, name := range d.options.First.Names {
		if runs, err := d.options.First.Services.UnitRuns(ctx, name); runs || err != nil {
			names = append(names, name)
		} else if i := serviceIn(*list, name); i >= 0 {
			noteEnded(&(*list)[i])
		}
	}
	*list = slices.DeleteFunc(*list, func(s journal.Service) bool { return s.AskedAt.IsZero() && s.Error == "" })
	return names
}

// noteEnded records that a service has ended by now: while no agent ran, or between two checks.
func noteEnded(s *journal.Service) {
	s.Error = ""
	if s.Took.Duration == 0 && !s.AskedAt.IsZero() {
		s.Took.Duration = max(time.Since(s.AskedAt), 1)
	}
}

// service returns the entry of a service in the record.
func (d *Drain) service(name string) *journal.Service {
	i := serviceIn(d.record.StoppedFirst, name)
	if i < 0 {
		i = len(d.record.StoppedFirst)
		d.record.StoppedFirst = append(d.record.StoppedFirst, journal.Service{Name: name})
	}
	return &d.record.StoppedFirst[i]
}

// flush waits, within a limit, until the published record is on disk. Only a shutdown stops services
// first. It goes on whatever the disk does: they would start the pods again, and be killed anyway.
func (d *Drain) flush(ctx context.Context) {
	if d.options.Flush == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(adoptBound, d.schedule.lead/5)/2)
	defer cancel()
	d.options.Flush(ctx)
}

// leadLeft returns how long to wait for services from now on. Time that an earlier process waited
// is subtracted.
func (d *Drain) leadLeft(began time.Time, waited bool) time.Duration {
	left := d.schedule.lead - time.Since(began)
	if waited {
		left = d.schedule.lead - time.Since(d.record.StartedAt)
	}
	return max(min(FirstBound, left), d.schedule.lead/10).Round(time.Millisecond)
}

// stopping is the running stop of services.
type stopping struct {
	run     context.Context   // context of Run
	ctx     context.Context   // context of their calls
	before  []journal.Service // their previous entries in the record
	awaited map[string]bool   // services without a result yet, by name
}

// serviceEnd is the result of one service's stop.
type serviceEnd struct {
	name string
	ran  bool
	err  error
	took time.Duration
}

// stopAll stops services. It waits until they have ended, atMost has passed, or the drain is
// cancelled. Then it waits a moment for the results of abandoned stops.
func (d *Drain) stopAll(run context.Context, names []string, atMost time.Duration, before []journal.Service) {
	ctx, cancel := context.WithTimeoutCause(run, atMost, fmt.Errorf("still running after %v", atMost))
	defer cancel()
	d.stopping = &stopping{run: run, ctx: ctx, before: before, awaited: map[string]bool{}}
	defer func() { d.stopping = nil }()
	for _, name := range names {
		d.stopping.awaited[name] = true
		d.calls.group.Go(func() {
			asked := time.Now()
			ran, err := d.options.First.Services.StopAlone(ctx, name)
			d.calls.report(result{service: &serviceEnd{name, ran, err, time.Since(asked)}})
		})
	}
	all := func() bool { return len(d.stopping.awaited) == 0 }
	if d.await(ctx, wait{reached: all, cancelled: d.life.cancelled}) == cancelled {
		cancel()
	}
	d.await(run, wait{reached: all, until: time.Now().Add(answerBound)})
	for _, name := range names {
		d.noteService(serviceEnd{name: name, ran: true, err: ctx.Err(), took: atMost}) // unless the result has arrived by now
	}
}

// noteService handles the result of a service, if it has none yet.
func (d *Drain) noteService(end serviceEnd) {
	s := d.stopping
	if s == nil || !s.awaited[end.name] {
		return
	}
	delete(s.awaited, end.name)
	if s.run.Err() != nil {
		return // another process continues the drain; the result is unknown
	}
	if end.ran && end.err != nil && s.ctx.Err() != nil && (errors.Is(end.err, s.ctx.Err()) || errors.Is(end.err, context.Cause(s.ctx))) {
		end.err = context.Cause(s.ctx)
	}
	d.noteFirst(end.name, end, s.before)
}

// noteFirst records the result of a service. It omits a service that was not running, unless an
// earlier process stopped it.
func (d *Drain) noteFirst(name string, end serviceEnd, before []journal.Service) {
	now, old := d.service(name), serviceIn(before, name)
	if !end.ran { // this process did not have to stop it
		now.AskedAt = time.Time{}
		if old >= 0 {
			*now = before[old]
		}
	} else {
		now.Took, now.StartedAt = metav1.Duration{Duration: end.took}, time.Time{}
	}
	if end.err == nil {
		noteEnded(now)
	}
	switch {
	case end.err != nil && d.life.isCancelled():
		now.Error = "the shutdown was cancelled"
	case end.err != nil:
		now.Error = end.err.Error()
		d.log.Warn("cannot stop service before the pods, it may start them again", "unit", name, "error", end.err)
	case now.AskedAt.IsZero():
		d.record.StoppedFirst = slices.DeleteFunc(d.record.StoppedFirst, func(s journal.Service) bool { return s.Name == name })
	case end.ran:
		d.log.Info("stopped service before the pods", "unit", name, "took", now.Took.Duration)
	}
}

func serviceIn(list []journal.Service, name string) int {
	return slices.IndexFunc(list, func(s journal.Service) bool { return s.Name == name })
}
