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
	// FirstBound is how long services that are stopped first are waited for at most, all of
	// them together. One that needs longer continues to stop beside the pods.
	FirstBound = 10 * time.Second
	// adoptBound is how long Adopt may take before that, and the record to be on disk.
	adoptBound = 2 * time.Second
	// answerBound is how long a stop that is given up may take to report what it has done.
	answerBound = 500 * time.Millisecond
	// LongestLead is how long all of that takes at most before the phases begin.
	LongestLead = FirstBound + adoptBound
)

// First is the services that are stopped before any pod, because they would start pods again:
// those that run a kubelet. Their runtimes may stop with them. The zero First stops none.
type First struct {
	Names    []string
	Services Services // may be nil if there are no names, and no record has services
}

// Services are the services of the host, as a drain needs them.
type Services interface {
	// UnitRuns reports whether a service runs, or is about to.
	UnitRuns(ctx context.Context, name string) (bool, error)
	// StopAlone stops a service and no other, returns when it has ended or ctx ends, and reports
	// whether it ran.
	StopAlone(ctx context.Context, name string) (ran bool, err error)
	// OrderedAfter returns, by name, the services that run and that are ordered after each of the
	// units, so that systemd stops them before it, and the same for each of these services.
	OrderedAfter(ctx context.Context, units ...string) (map[string][]string, error)
	// Adopt is called right before services are stopped. From then on pods may have to be stopped
	// without their runtime: those that are listed, and those that an earlier process has put on
	// record, if their runtime lists none. signals are the stop signals that are known, by ID of
	// the container. Adopt returns all that are known then.
	Adopt(ctx context.Context, listed, recorded []runtime.Pod, signals map[string]string) map[string]string
}

// Bound is how much longer a drain may take for the services that are stopped first.
func (f First) Bound() time.Duration {
	if len(f.Names) == 0 {
		return 0
	}
	return LongestLead
}

// Lead is how long they may take of what the init system grants, which is zero where it is
// not known: a quarter of it is as much as pods can spare where that is little.
func (f First) Lead(granted time.Duration) time.Duration {
	if bound := f.Bound(); granted <= 0 || bound < granted/4 {
		return bound
	}
	return granted / 4
}

// Left is what they leave of it to the phases; zero where it is not known.
func (f First) Left(granted time.Duration) time.Duration {
	if granted <= 0 {
		return 0
	}
	return granted - f.Lead(granted)
}

// adopt prepares to stop pods without their runtime, and puts on record what only that knows.
func (d *Drain) adopt(ctx context.Context, pods []runtime.Pod) {
	bound := adoptBound
	if d.schedule.lead > 0 { // else the setting is gone since
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

// sandboxes are the sandboxes on record, without their containers, which are found by what runc
// keeps. Their labels are gone with their runtime; what was made of these is on record. signals are the stop signals on record, by ID of the container.
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

// enterAll puts on record which pods are to be stopped, and when: the next process may find no
// runtime that lists them.
func (d *Drain) enterAll() {
	for _, phase := range d.plan().Phases {
		for _, pod := range phase.Pods {
			if _, came := d.entry(phase.Name, pod); came {
				d.reopen()
			}
		}
	}
}

// stopFirst stops the services, side by side, and has the phases count from then on.
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
		// On record before its stop is requested: it is to be started again whatever becomes
		// of this process.
		d.service(name).AskedAt = time.Now()
	}
	d.publish()
	if len(names) > 0 {
		d.flush(ctx)
		d.stopAll(ctx, names, d.leadLeft(began, len(before) > 0), before)
		d.awaitAnswers(ctx)
	}
	d.schedule.start = d.schedule.start.Add(time.Since(began))
	d.lists.settled = false // what was listed is from before
	d.publish()
}

// awaitAnswers waits for one list, which every runtime answers or not. A runtime that was killed with
// its service takes calls for a moment and does nothing: the stop of a container would seem to be
// requested.
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

// toStop are the services that run, or of which that is not known. Services on record that do not
// run have ended since their stop was requested, if it was.
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

// noteEnded notes that a service on record has ended, at the latest now: while no agent ran, or
// between two checks of this one.
func noteEnded(s *journal.Service) {
	s.Error = ""
	if s.Took.Duration == 0 && !s.AskedAt.IsZero() {
		s.Took.Duration = max(time.Since(s.AskedAt), 1)
	}
}

// service is the place of one in the record.
func (d *Drain) service(name string) *journal.Service {
	i := serviceIn(d.record.StoppedFirst, name)
	if i < 0 {
		i = len(d.record.StoppedFirst)
		d.record.StoppedFirst = append(d.record.StoppedFirst, journal.Service{Name: name})
	}
	return &d.record.StoppedFirst[i]
}

// flush waits a moment until what was published is on disk.
func (d *Drain) flush(ctx context.Context) {
	if d.options.Flush == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(adoptBound, d.schedule.lead/5)/2)
	defer cancel()
	d.options.Flush(ctx)
}

// leadLeft is how long services may be waited for from now on. Where an earlier process has
// waited, that is gone.
func (d *Drain) leadLeft(began time.Time, waited bool) time.Duration {
	left := d.schedule.lead - time.Since(began)
	if waited {
		left = d.schedule.lead - time.Since(d.record.StartedAt)
	}
	return max(min(FirstBound, left), d.schedule.lead/10).Round(time.Millisecond)
}

// stopping is the stop of services that is in progress.
type stopping struct {
	run     context.Context   // of Run
	ctx     context.Context   // of their calls
	before  []journal.Service // as they were on record before
	awaited map[string]bool   // those that have not reported, by name
}

// serviceEnd is what became of a service that was to stop.
type serviceEnd struct {
	name string
	ran  bool
	err  error
	took time.Duration
}

// stopAll stops services, and waits for them for so long, or until a cancellation. Stops that are
// given up then may take a moment to report what they have done.
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
		d.noteService(serviceEnd{name: name, ran: true, err: ctx.Err(), took: atMost}) // which it may have now
	}
}

// noteService takes in what became of a service, if that is still awaited.
func (d *Drain) noteService(end serviceEnd) {
	s := d.stopping
	if s == nil || !s.awaited[end.name] {
		return
	}
	delete(s.awaited, end.name)
	if s.run.Err() != nil {
		return // another process continues, and nothing is known of the service's end
	}
	if end.ran && end.err != nil && s.ctx.Err() != nil && (errors.Is(end.err, s.ctx.Err()) || errors.Is(end.err, context.Cause(s.ctx))) {
		end.err = context.Cause(s.ctx)
	}
	d.noteFirst(end.name, end, s.before)
}

// noteFirst writes down what became of a service. One that did not run is not mentioned,
// unless an earlier process has stopped it.
func (d *Drain) noteFirst(name string, end serviceEnd, before []journal.Service) {
	now, old := d.service(name), serviceIn(before, name)
	if !end.ran { // its stop was not requested this time
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
