package drain

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/plan"
)

// orderBound bounds the request to systemd for the stop order of services. It is short, because the
// time of the pods is running.
const orderBound = 500 * time.Millisecond

// ordering has the services that are ordered after units of containers, and their stops. Run's
// goroutine owns it.
type ordering struct {
	order  plan.Order
	asking int                        // running requests
	asked  []string                   // units whose order was requested, by name
	stops  map[string]<-chan struct{} // by service; closed when it has stopped, or when the wait for it has ended
}

// askOrder requests which services stop before the containers of pods, once for each unit. The
// answer is a result for Run's goroutine.
func (d *Drain) askOrder(ctx context.Context, pods []runtime.Pod) {
	o, services := &d.ordering, d.options.First.Services
	units := slices.DeleteFunc(plan.Holders(pods), func(unit string) bool { return slices.Contains(o.asked, unit) })
	if services == nil || len(units) == 0 || d.life.ended(ctx) {
		return
	}
	o.asked = append(o.asked, units...)
	o.asking++
	d.calls.group.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, orderBound)
		defer cancel()
		order, err := services.OrderedAfter(ctx, units...)
		if err != nil {
			d.log.Warn("cannot list services that stop before containers, containers do not wait for them", "error", err)
		}
		if order == nil {
			order = map[string][]string{}
		}
		d.calls.report(result{order: order})
	})
}

// awaitOrder waits for all running requests.
func (d *Drain) awaitOrder(ctx context.Context) {
	d.askOrder(ctx, d.lists.current)
	d.await(ctx, wait{reached: func() bool { return d.ordering.asking == 0 }, until: time.Now().Add(orderBound), cancelled: d.life.cancelled})
}

// noteOrder handles the answer.
func (d *Drain) noteOrder(order plan.Order) {
	o := &d.ordering
	o.asking--
	maps.Copy(o.order, order)
}

// plan returns the plan of the current list.
func (d *Drain) plan() plan.Plan {
	return plan.New(d.schedule.wanted, d.ordering.order.Apply(d.lists.current), d.options.Rules, d.schedule.granted)
}

// containersOf returns the running containers of a unit in the current list.
func (d *Drain) containersOf(unit string) (all []*container) {
	for _, listed := range d.lists.current {
		for _, l := range listed.Containers {
			if l.Unit == unit && plan.Alive(l) {
				all = append(all, d.podOf(listed).container(l.ID))
			}
		}
	}
	return all
}

// stopService starts the stop of a service, once. Services that are ordered after it stop first.
// The channel is closed when the service has stopped, or when a quarter of the time has passed.
func (d *Drain) stopService(name string, end time.Time) <-chan struct{} {
	if over := d.ordering.stops[name]; over != nil {
		return over
	}
	over := make(chan struct{})
	d.ordering.stops[name] = over // set before the recursion, because the order may have cycles
	var after []<-chan struct{}
	for _, other := range d.ordering.order[name] {
		containers := d.containersOf(other)
		for _, c := range containers {
			if c.over != nil {
				after = append(after, c.over)
			}
		}
		if len(containers) == 0 {
			after = append(after, d.stopService(other, end))
		}
	}
	atMost := max(0, min(FirstBound, time.Until(end)/4))
	d.calls.group.Go(func() {
		defer close(over)
		d.calls.stopService(d.options.First.Services, name, after, atMost)
	})
	return over
}

// stopService stops a service that systemd stops before containers, after the services in after
// have stopped.
func (c *calls) stopService(services Services, name string, after []<-chan struct{}, atMost time.Duration) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, atMost, fmt.Errorf("still running after %v", atMost.Round(time.Millisecond)))
	defer cancel()
	for _, other := range after {
		select {
		case <-other:
		case <-c.life.cancelled:
			return
		case <-ctx.Done():
		}
	}
	began := time.Now()
	if err := runtime.ReportUnitStops(c.ctx, []string{name}); err != nil {
		c.log.Warn("cannot record service, not stopping it", "unit", name, "error", err)
		return
	}
	switch ran, err := services.StopAlone(ctx, name); {
	case err != nil && !c.life.isCancelled():
		c.log.Warn("cannot stop service in time, stopping the containers that it is ordered after", "unit", name, "error", err)
	case err == nil && ran:
		c.log.Info("stopped service before its containers", "unit", name, "took", time.Since(began))
	}
}
