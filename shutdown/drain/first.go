package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
)

// FirstBound is how long services that are stopped first are waited for at most, all of them
// together. One that needs longer goes on stopping beside the pods.
const FirstBound = 10 * time.Second

// First is the services that are stopped before any pod, because they would start pods
// again: those that run a kubelet. Their runtimes may go with them. A nil First is none.
type First struct {
	Names []string
	// Stop stops one, returns when it has ended or ctx ends, and tells whether it ran.
	Stop func(ctx context.Context, name string) (ran bool, err error)
	// Start starts one again; the guard calls it where the host lives on.
	Start func(ctx context.Context, name string) error
	// Adopt is told right before which pods run, with what was written down of them by an
	// earlier process: from then on they may have to be stopped without their runtime.
	Adopt func(ctx context.Context, pods []runtime.Pod, before []journal.PodRecord)
	// Release is called when the services are about to be started again.
	Release func()
}

// Bound is how much longer a drain may take for the services that are stopped first.
func (f *First) Bound() time.Duration {
	if f == nil || len(f.Names) == 0 {
		return 0
	}
	return FirstBound
}

// Lead is how long they may take of what the init system grants, which is zero where it is
// not known: a quarter of it is as much as pods can spare where that is little.
func (f *First) Lead(granted time.Duration) time.Duration {
	if bound := f.Bound(); granted <= 0 || bound < granted/4 {
		return bound
	}
	return granted / 4
}

// Left is what they leave of it to the phases; zero where it is not known.
func (f *First) Left(granted time.Duration) time.Duration {
	if granted <= 0 {
		return 0
	}
	return granted - f.Lead(granted)
}

// stopFirst stops the services, side by side, and has the phases count from then on.
func (d *Drain) stopFirst(ctx context.Context) {
	if d.lead == 0 || d.ended(ctx) {
		return
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, d.lead, fmt.Errorf("it had not ended after %v", d.lead))
	defer cancel()
	go func() { // a cancellation is heard at once
		select {
		case <-d.cancelled:
			cancel()
		case <-ctx.Done():
		}
	}()
	if len(d.record.StoppedFirst) == 0 {
		d.options.First.Adopt(ctx, d.current, d.record.Pods)
	}
	before := slices.Clone(d.record.StoppedFirst)
	for _, name := range d.options.First.Names {
		// On record before it is asked: it is to be started again whatever becomes of this
		// process.
		if serviceIn(before, name) < 0 {
			d.record.StoppedFirst = append(d.record.StoppedFirst, journal.Service{Name: name, AskedAt: began})
		}
	}
	d.options.Publish(d.record.Clone())
	ends := make([]chan serviceEnd, len(d.options.First.Names))
	for i, name := range d.options.First.Names {
		ends[i] = make(chan serviceEnd, 1)
		d.calls.Go(func() {
			ran, err := d.options.First.Stop(ctx, name)
			ends[i] <- serviceEnd{ran, err}
		})
	}
	for i, name := range d.options.First.Names {
		end := serviceEnd{ran: true}
		select {
		case end = <-ends[i]:
		case <-ctx.Done():
			end.err = context.Cause(ctx)
		}
		d.noteFirst(name, began, end, before)
	}
	d.options.Start = d.options.Start.Add(time.Since(began))
	d.settled = false // what was listed is from before
	d.options.Publish(d.record.Clone())
}

// serviceEnd is what became of a service that was to stop.
type serviceEnd struct {
	ran bool
	err error
}

// noteFirst writes down what became of a service. One that did not run is not mentioned,
// unless an earlier process has stopped it.
func (d *Drain) noteFirst(name string, asked time.Time, end serviceEnd, before []journal.Service) {
	i := serviceIn(d.record.StoppedFirst, name)
	now := journal.Service{Name: name, AskedAt: asked, Took: metav1.Duration{Duration: time.Since(asked)}}
	switch old := serviceIn(before, name); {
	case !end.ran && end.err == nil && old >= 0:
		return
	case !end.ran && end.err == nil:
		d.record.StoppedFirst = slices.Delete(d.record.StoppedFirst, i, i+1)
		return
	case end.err != nil && d.isCancelled():
		now.Error = "the shutdown was cancelled"
	case end.err != nil:
		now.Error = end.err.Error()
		if !end.ran {
			now.AskedAt = time.Time{} // nobody got to ask it
		}
		d.log.Warn("a service that is to stop before the pods may still run, and start them again", "unit", name, "error", end.err)
	default:
		d.log.Info("a service was stopped before the pods", "unit", name, "took", now.Took.Duration)
	}
	d.record.StoppedFirst[i] = now
}

func serviceIn(list []journal.Service, name string) int {
	return slices.IndexFunc(list, func(s journal.Service) bool { return s.Name == name })
}
