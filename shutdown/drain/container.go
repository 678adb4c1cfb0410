package drain

import (
	"slices"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// State is the state of a container's stop.
type State int

// The states of a container.
const (
	Unrequested State = iota // its stop is not requested, or it was started again since
	Waiting                  // its stop is requested as soon as the containers that need it have stopped
	Stopping                 // its stop is requested
	Stopped                  // it has ended in time
	Killed                   // it was killed, at the end of its grace period or with its sandbox
	Failed                   // its stop has failed: it may still run
)

var stateNames = [...]string{"Unrequested", "Waiting", "Stopping", "Stopped", "Killed", "Failed"}

// String is the state's name.
func (s State) String() string { return stateNames[s] }

// underWay reports whether a call stops the container, or will.
func (s State) underWay() bool { return s == Waiting || s == Stopping }

// over reports whether the call that stops the container has ended.
func (s State) over() bool { return s >= Stopped }

// mayRun reports whether the container may run although its stop was started.
func (s State) mayRun() bool { return s.underWay() || s == Failed }

// Transition is one edge of a container's state machine.
type Transition struct {
	From, To State
	When     string
}

// Transitions lists every change of state that a container can make. It starts in Unrequested.
func Transitions() []Transition {
	return []Transition{
		{Unrequested, Waiting, "other containers stop first"},
		{Unrequested, Stopping, "stop requested"},
		{Waiting, Stopping, "containers before it have stopped"},
		{Waiting, Failed, "shutdown cancelled before its stop"},
		{Stopping, Stopped, "container exited"},
		{Stopping, Killed, "grace period expired"},
		{Stopping, Failed, "runtime cannot stop it"},
		{Stopped, Unrequested, "a list shows that it was started again"},
		{Stopped, Killed, "last list shows that SIGKILL ended it"},
		{Stopped, Failed, "last list shows it running"},
		{Killed, Unrequested, "a list shows that it was started again"},
		{Killed, Stopped, "last list shows that it exited by itself"},
		{Killed, Failed, "last list shows it running"},
		{Failed, Unrequested, "a list shows that it was started again"},
		{Failed, Stopped, "last list shows that it exited"},
		{Failed, Killed, "sandbox removed, or last list shows that SIGKILL ended it"},
	}
}

// key names a pod or a container on this host.
type key struct{ runtime, id string }

// container is what the drain knows of one container. Run's goroutine owns it.
type container struct {
	journal.ContainerRecord // as it is put on record

	state State
	err   error          // why its stop failed
	code  *int32         // exit code after its stop; nil if not reported
	kill  time.Time      // when its grace period ends
	grace *journal.Limit // the time that it was given and what limits it; nil before its stop
	// graceByDefault reports that the container does not request the time that it was given less than.
	graceByDefault bool
	pendingSince   time.Time // when the drain saw a run whose stop is not requested yet; zero if there is none
	dead           bool      // a list has shown that it has ended since its stop
	restarted      bool      // it was started again after its stop: earlier requests do not count

	over chan struct{} // closed when its stop has ended; nil before
	gone chan struct{} // closed when a list shows that it has ended; set only for a stop by an earlier process
}

// pod is the state of one pod in the drain. Its containers are stopped first, also those that appear
// meanwhile, then its sandbox. Stopping the sandbox kills the rest, so it waits for all containers.
// Run's goroutine owns it.
type pod struct {
	key
	containers map[string]*container  // by ID
	record     *journal.PodRecord     // without its containers; nil until the pod is on record
	written    *journal.ContainerMaps // the containers as last recorded; nil after a change

	resumed time.Time // when an earlier process began to stop it without seeing its end
	spent   time.Time // when an earlier, finished drain began to stop it and left it running

	listed runtime.Pod // as listed when stops of its containers were last started
	phase  int         // then
	end    time.Time   // of that
	stops  int         // calls of stopPod that are in progress
	kept   bool        // these have ended, and the sandbox waits for containers whose stop is pending

	tearing int  // teardowns that are in progress
	resort  bool // one of them is the last resort
	again   bool // other stops have ended since that was started
}

// pod is the pod with a key.
func (d *Drain) pod(k key) *pod {
	p := d.pods[k]
	if p == nil {
		p = &pod{key: k, containers: map[string]*container{}}
		d.pods[k] = p
	}
	return p
}

// podOf is the pod that a runtime has listed.
func (d *Drain) podOf(p runtime.Pod) *pod { return d.pod(key{p.Runtime, p.ID}) }

// enter appends a pod to the record.
func (d *Drain) enter(record journal.PodRecord) *pod {
	p := d.pod(key{record.Runtime, record.ID})
	for _, c := range record.Containers() {
		p.container(c.ID).ContainerRecord = c
	}
	record.ContainerMaps = journal.ContainerMaps{}
	p.record = &record
	d.entered = append(d.entered, p)
	return p
}

// any reports whether is holds for a pod.
func (d *Drain) any(is func(*pod) bool) bool {
	for _, p := range d.pods {
		if is(p) {
			return true
		}
	}
	return false
}

// container is the container of the pod with an ID.
func (p *pod) container(id string) *container {
	c := p.containers[id]
	if c == nil {
		c = &container{ContainerRecord: journal.ContainerRecord{ID: id}}
		p.containers[id] = c
	}
	return c
}

// has reports whether is holds for a container of the pod.
func (p *pod) has(is func(*container) bool) bool {
	for _, c := range p.containers {
		if is(c) {
			return true
		}
	}
	return false
}

// busy reports whether containers of the pod are being stopped or killed.
func (p *pod) busy() bool { return p.stops > 0 || p.resort }

// tears reports whether the sandbox is being torn down.
func (p *pod) tears() bool { return p.tearing > 0 }

// pending reports whether stops of containers are still to be requested.
func (p *pod) pending() bool {
	return p.has(func(c *container) bool { return !c.pendingSince.IsZero() })
}

// requested reports whether the stop of a container was started.
func (p *pod) requested() bool {
	return p.has(func(c *container) bool { return c.state != Unrequested })
}

// failed reports whether the stop of a container has failed.
func (p *pod) failed() bool { return p.has(func(c *container) bool { return c.state == Failed }) }

// awaits reports whether the end of a container must come from a list, because an earlier process
// requested its stop.
func (p *pod) awaits() bool { return p.has(func(c *container) bool { return c.gone != nil }) }

// snapshot returns a copy of the record. Its pods are not changed afterwards.
func (d *Drain) snapshot() *journal.Record {
	r := *d.record
	r.StoppedFirst = slices.Clone(d.record.StoppedFirst)
	r.Pods = make([]journal.PodRecord, len(d.entered))
	for i, p := range d.entered {
		r.Pods[i] = p.snapshot()
	}
	return &r
}

func (p *pod) snapshot() journal.PodRecord {
	if p.written == nil {
		p.written = &journal.ContainerMaps{}
		for _, c := range p.containers {
			p.written.Add(c.ContainerRecord)
		}
		slices.Sort(p.written.Restarting)
		slices.Sort(p.written.ByUnit)
	}
	r := *p.record
	r.ContainerMaps = *p.written
	return r
}

// publish publishes the record as it is now.
func (d *Drain) publish() { d.options.Publish(d.snapshot()) }

// become has a container of the pod enter a state.
func (d *Drain) become(c *container, to State) {
	if d.observe != nil && c.state != to {
		d.observe(c.state, to)
	}
	c.state = to
	if to != Failed {
		c.err = nil
	}
}

// fail has a container enter Failed, and says why.
func (d *Drain) fail(c *container, why error) {
	d.become(c, Failed)
	c.err = why
}

// notePending records which containers of a listed pod must still be stopped.
func (d *Drain) notePending(listed runtime.Pod) {
	p := d.podOf(listed)
	for _, c := range listed.Containers {
		if p.isUnrequested(c) {
			p.container(c.ID).pendingSince = time.Now()
		}
	}
}

// isUnrequested reports whether the stop of a listed container is still to be requested.
func (p *pod) isUnrequested(listed runtime.Container) bool {
	if !plan.Alive(listed) {
		return false
	}
	c := p.containers[listed.ID]
	return c == nil || c.state == Unrequested || c.isAnotherRun(listed)
}

// isAnotherRun reports whether a listed container was started after its stop was requested, by its
// runtime's clock.
func (c *container) isAnotherRun(listed runtime.Container) bool {
	return !c.StartedAt.IsZero() && runOf(listed).After(c.StartedAt)
}

// runOf returns when a container was started, if its runtime reports it. The ID of a container that
// runs once is its name, which another container can get later; there the time of creation counts.
func runOf(c runtime.Container) time.Time {
	if c.Restart == runtime.RestartElsewhere {
		return c.CreatedAt
	}
	return c.StartedAt
}
