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
	Waiting                  // its stop is requested when the containers that need it have stopped
	Stopping                 // its stop is requested
	Stopped                  // it has ended in time
	Killed                   // it was killed, at the end of its grace period or with its sandbox
	Failed                   // its stop has failed: it may still run
)

var stateNames = [...]string{"Unrequested", "Waiting", "Stopping", "Stopped", "Killed", "Failed"}

// String returns the state's name.
func (s State) String() string { return stateNames[s] }

// inProgress reports whether a call stops the container, or will.
func (s State) inProgress() bool { return s == Waiting || s == Stopping }

// over reports whether the call that stops the container has ended.
func (s State) over() bool { return s >= Stopped }

// mayRun reports whether the container may run although its stop was started.
func (s State) mayRun() bool { return s.inProgress() || s == Failed }

// Transition is one transition of a container's state machine.
type Transition struct {
	From, To State
	When     string
}

// Transitions lists every transition of a container. The initial state is Unrequested.
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

// key identifies a pod or a container on this host.
type key struct{ runtime, id string }

// container is the state of one container in the drain. Run's goroutine owns it.
type container struct {
	journal.ContainerRecord // as in the pod's record

	state State
	err   error          // why its stop failed
	code  *int32         // exit code after its stop; nil if not reported
	kill  time.Time      // when its grace period ends
	grace *journal.Limit // the granted time and its limit; nil before its stop
	// graceByDefault reports that the limited grace period is a default, and not a request.
	graceByDefault bool
	pendingSince   time.Time // when the drain first saw a run whose stop is not requested yet; zero if there is none
	dead           bool      // a list shows that it has ended since its stop
	restarted      bool      // it was started again after its stop, so earlier requests do not count

	over chan struct{} // closed when its stop has ended; nil before its stop
	gone chan struct{} // closed when a list shows that it has ended; set only if an earlier process requested its stop
}

// pod is the state of one pod in the drain. Its containers are stopped first, including new ones,
// then its sandbox. Stopping the sandbox kills the remaining containers, so it waits for all. Run's
// goroutine owns it.
type pod struct {
	key
	containers map[string]*container  // by ID
	record     *journal.PodRecord     // without its containers; nil until the pod is in the record
	written    *journal.ContainerMaps // the containers as last recorded; nil after a change

	resumed time.Time // when an earlier process began to stop it, if that did not see its end
	spent   time.Time // when an earlier, finished drain began to stop it, if that left it running

	listed runtime.Pod // the pod in the list from which stops were last started
	phase  int         // phase of that list's stops
	end    time.Time   // end of that phase
	stops  int         // running calls of stopPod
	kept   bool        // its stops have ended, and its sandbox waits for containers whose stop is pending

	tearing int  // running teardowns
	resort  bool // one of the teardowns is the last resort
	again   bool // other stops have ended since the last resort was started
}

// pod returns the pod with a key.
func (d *Drain) pod(k key) *pod {
	p := d.pods[k]
	if p == nil {
		p = &pod{key: k, containers: map[string]*container{}}
		d.pods[k] = p
	}
	return p
}

// podOf returns the pod for an entry of a list.
func (d *Drain) podOf(p runtime.Pod) *pod { return d.pod(key{p.Runtime, p.ID}) }

// enter adds a pod to the record.
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

// any reports whether is returns true for any pod.
func (d *Drain) any(is func(*pod) bool) bool {
	for _, p := range d.pods {
		if is(p) {
			return true
		}
	}
	return false
}

// container returns the container of the pod with an ID.
func (p *pod) container(id string) *container {
	c := p.containers[id]
	if c == nil {
		c = &container{ContainerRecord: journal.ContainerRecord{ID: id}}
		p.containers[id] = c
	}
	return c
}

// has reports whether is returns true for any container of the pod.
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

// pending reports whether stops of containers must still be requested.
func (p *pod) pending() bool {
	return p.has(func(c *container) bool { return !c.pendingSince.IsZero() })
}

// requested reports whether the stop of any container was started.
func (p *pod) requested() bool {
	return p.has(func(c *container) bool { return c.state != Unrequested })
}

// failed reports whether the stop of a container has failed.
func (p *pod) failed() bool { return p.has(func(c *container) bool { return c.state == Failed }) }

// awaits reports whether the drain waits for a list that shows the end of a container, because an
// earlier process requested its stop.
func (p *pod) awaits() bool { return p.has(func(c *container) bool { return c.gone != nil }) }

// snapshot returns a copy of the record. Its pods are not modified afterwards.
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

// publish publishes a copy of the record.
func (d *Drain) publish() { d.options.Publish(d.snapshot()) }

// become changes the state of a container of the pod.
func (d *Drain) become(c *container, to State) {
	if d.observe != nil && c.state != to {
		d.observe(c.state, to)
	}
	c.state = to
	if to != Failed {
		c.err = nil
	}
}

// fail changes the state to Failed, and records why.
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

// runOf returns when a container was started, if its runtime reports it. If the container runs only
// once, its ID is its name, which another container may get later. Then runOf returns the time of
// creation.
func runOf(c runtime.Container) time.Time {
	if c.Restart == runtime.RestartElsewhere {
		return c.CreatedAt
	}
	return c.StartedAt
}
