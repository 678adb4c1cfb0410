package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"hostler.io/hostler/internal/bounded"
)

// AnnotationLeaseDuration asks the host of the Node that has it for a Lease that is good
// for longer than it is configured for, such as "2m". A person sets it, or whoever looks
// after the fleet.
const AnnotationLeaseDuration = "hostler.io/lease-duration"

// LongestLease is the longest that a control plane may request: who watches a Lease
// waits no longer for any.
const LongestLease = time.Hour

// Pacer is a Client of a control plane that can ask all its hosts at once for Leases that
// are good for longer than they are configured for, as the fleet grows.
type Pacer interface {
	// WatchPace sends what it requests, as it is written there, such as "2m", empty where
	// it requests nothing: at first and after each change, until ctx ends or the control
	// plane is lost, and says which. Of changes that come faster than they are received
	// some may be left out, but not the last one. It goes by no deadline but ctx's.
	WatchPace(ctx context.Context, seen chan<- string) error
}

// Requester is who requests another Lease.
type Requester int

// The askers. What is asked of one Node goes before what is asked of all.
const (
	RequestedForNode Requester = iota
	RequestedForAll
	requesters
)

// String says who asks, within a sentence.
func (a Requester) String() string {
	if a == RequestedForNode {
		return "annotation " + AnnotationLeaseDuration + " of the Node"
	}
	return "the control plane's setting for all hosts"
}

// PaceFault is a value that is requested and invalid.
type PaceFault struct {
	Message string
	Fix     string
}

// Pace is how long the Lease is to be good for.
type Pace struct {
	Duration time.Duration
	// By says who requests it, as part of a sentence; empty where it is as configured.
	By     string
	Faults []PaceFault
}

// Pacing decides how long this host's Lease is to be good for, from its configuration and
// from what the control plane asks. It is safe for concurrent use.
type Pacing struct {
	configured time.Duration
	fixes      [requesters]string
	apply      func(time.Duration)
	log        *slog.Logger

	mu        sync.Mutex // guards what follows, and calls of apply
	requested [requesters]request
	applied   time.Duration
}

// request is what one asker has said.
type request struct {
	text   string
	usable time.Duration // the last that was; 0 where nothing is asked
	fault  error         // of text
}

// NewPacing returns one that nobody has asked anything. Each change is applied, one after
// the other; what is configured is effective before the first. How the annotation is taken
// off the Node is told with what is wrong with it.
func NewPacing(configured time.Duration, takeOff string, apply func(time.Duration), log *slog.Logger) *Pacing {
	return &Pacing{
		configured: configured, applied: configured, apply: apply, log: log.With("component", "lease"),
		fixes: [requesters]string{RequestedForNode: takeOff, RequestedForAll: "correct or remove settings/lease-duration on the control plane, see docs/explanation/heartbeats.md"},
	}
}

// Request takes in what is requested; nothing requests no more than is configured. A value
// that is invalid is told, and leaves what was requested before: a slip in it must not
// set a whole fleet's pace back at once.
func (p *Pacing) Request(by Requester, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.requested[by]
	if text == before.text {
		return
	}
	now := request{text: text}
	if text != "" {
		if now.usable, now.fault = usable(text, p.configured); now.fault != nil {
			now.usable = before.usable
		}
	}
	p.requested[by] = now
	switch {
	case now.fault != nil:
		p.log.Warn("ignoring invalid lease duration", "by", by.String(), "problem", now.fault, "mend", p.fixes[by])
	case before.fault != nil:
		p.log.Info("lease duration valid again", "by", by.String())
	}
	next, requester := p.choose()
	if next == p.applied {
		return
	}
	p.applied = next
	p.log.Info("changed lease duration", "duration", next, "by", cmp.Or(requester, "the configuration"))
	p.apply(next)
}

// choose is the duration that is to be effective, and who requests it; nobody where it is
// as configured.
func (p *Pacing) choose() (duration time.Duration, by string) {
	for who, a := range p.requested {
		if a.usable > 0 {
			return a.usable, Requester(who).String()
		}
	}
	return p.configured, ""
}

// Pace is what is effective, and what is wrong with what is requested.
func (p *Pacing) Pace() Pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pace Pace
	pace.Duration, pace.By = p.choose()
	for who, a := range p.requested {
		if a.fault != nil {
			by := Requester(who)
			pace.Faults = append(pace.Faults, PaceFault{Message: fmt.Sprintf("%s requests a lease of %.40q, which is ignored: %v", by, a.text, a.fault), Fix: p.fixes[by]})
		}
	}
	return pace
}

// usable reads a duration that may be requested.
func usable(text string, configured time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errors.New("not a duration such as 2m or 90s")
	case d%time.Second != 0:
		return 0, errors.New("not a whole number of seconds")
	case d < configured:
		return 0, fmt.Errorf("shorter than this host's lease.duration %v", configured)
	case d > max(LongestLease, configured):
		return 0, fmt.Errorf("longer than %v", LongestLease)
	}
	return d, nil
}

// Follow takes in what the control plane asks of all its hosts, as it changes, until ctx
// ends, and returns why. beat is told how it goes. While the control plane is away what
// it requested last stays effective.
func (p *Pacing) Follow(ctx context.Context, pacer Pacer, heartbeat func(error)) error {
	backoff, failing := Retry(), false
	for {
		err := p.follow(ctx, pacer, func() {
			if failing {
				p.log.Info("watch of the fleet's lease duration restored")
			}
			backoff, failing = Retry(), false
			heartbeat(nil)
		})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if errors.Is(err, ErrForbidden) || errors.Is(err, ErrInvalid) { // it asks this host for nothing, then
			heartbeat(nil)
			if err := bounded.Sleep(ctx, wait.Jitter(LongestLease, 1)); err != nil {
				return err
			}
			continue
		}
		heartbeat(err)
		if !failing {
			p.log.Warn("cannot watch the fleet's lease duration, retrying", "error", err)
		}
		failing = true
		// A control plane that restarts ends every host's watch at once.
		if err := bounded.Sleep(ctx, max(pause(&backoff, err), rand.N(p.Pace().Duration/renewals))); err != nil {
			return err
		}
	}
}

// follow does so until the watch ends, and says why. It calls heard for each word.
func (p *Pacing) follow(ctx context.Context, pacer Pacer, answered func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, ended := make(chan string), make(chan error, 1)
	go func() { ended <- pacer.WatchPace(ctx, seen) }()
	for {
		select {
		case text := <-seen:
			answered()
			p.Request(RequestedForAll, text)
		case err := <-ended:
			return err
		}
	}
}
