package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"hostler.io/hostler/internal/bounded"
)

// AnnotationLeaseDuration requests a longer Lease duration, such as "2m", from the host of the Node.
// A person or a tool of the fleet sets it.
const AnnotationLeaseDuration = "hostler.io/lease-duration"

// LongestLease is the longest duration that a control plane can request. No watcher of a Lease waits
// longer.
const LongestLease = time.Hour

// Pacer is a Client of a control plane that can request a longer Lease duration from all its hosts.
type Pacer interface {
	// WatchPace sends the requested duration as text, such as "2m", or an empty text, at the start and
	// after each change. It returns when ctx ends or the connection is lost, with the reason. It can
	// skip intermediate values, but not the last one. It has no deadline of its own.
	WatchPace(ctx context.Context, seen chan<- string) error
}

// Requester is the origin of a requested duration.
type Requester int

// The requesters. A request for one Node wins over a request for all.
const (
	RequestedForNode Requester = iota
	RequestedForAll
	requesters
)

// String names the requester, as part of a sentence.
func (a Requester) String() string {
	if a == RequestedForNode {
		return "annotation " + AnnotationLeaseDuration + " of the Node"
	}
	return "the control plane's setting for all hosts"
}

// PaceFault is an invalid requested value.
type PaceFault struct {
	Message string
	Fix     string
}

// Pace is the effective Lease duration.
type Pace struct {
	Duration time.Duration
	// By names the requester, as part of a sentence; empty if the configured duration applies.
	By     string
	Faults []PaceFault
}

// Pacing chooses this host's Lease duration from its configuration and the requests of the control
// plane. It is safe for concurrent use.
type Pacing struct {
	configured time.Duration
	fixes      [requesters]string
	apply      func(time.Duration)
	log        *slog.Logger

	mu        sync.Mutex // guards the fields below, and calls of apply
	requested [requesters]request
	applied   time.Duration
}

// request is the value of one requester.
type request struct {
	text   string
	usable time.Duration // the last valid value; 0 if nothing is requested
	fault  error         // of text
}

// NewPacing returns a Pacing without requests. It calls apply for each change, one call at a time.
// Until the first change, the configured duration is effective. hint says how to remove the
// annotation; messages about an invalid value contain it.
func NewPacing(configured time.Duration, hint string, apply func(time.Duration), log *slog.Logger) *Pacing {
	return &Pacing{
		configured: configured, applied: configured, apply: apply, log: log.With("component", "lease"),
		fixes: [requesters]string{RequestedForNode: hint, RequestedForAll: "correct or remove settings/lease-duration on the control plane, see /usr/share/doc/hostler/docs/explanation/heartbeats.md"},
	}
}

// Request sets the value of a requester; an empty value requests nothing. An invalid value is
// reported, and the previous one stays effective: a typo must not shorten the Leases of a whole
// fleet at once. It is not stored: an agent that starts uses the configured duration, as a new host
// does. A shorter Lease only causes more writes.
func (p *Pacing) Request(by Requester, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.requested[by]
	if text == before.text {
		return
	}
	now := request{text: text}
	if text != "" {
		if now.usable, now.fault = usable(text, p.configured, by); now.fault != nil {
			now.usable = before.usable
		}
	}
	p.requested[by] = now
	switch {
	case now.fault != nil:
		p.log.Warn("ignoring invalid lease duration", "by", by.String(), "problem", now.fault, "hint", p.fixes[by])
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

// choose returns the effective duration and its requester; by is empty if the configured duration
// applies.
func (p *Pacing) choose() (duration time.Duration, by string) {
	for who, a := range p.requested {
		if a.usable > 0 {
			return a.usable, Requester(who).String()
		}
	}
	return p.configured, ""
}

// Pace returns the effective duration, and the faults of the requested values.
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

// usable parses a requested duration. It returns 0 if this host keeps its longer one: a server
// chooses a duration for all hosts, and does not know the configuration of each.
func usable(text string, configured time.Duration, by Requester) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, errors.New("not a duration such as 2m or 90s")
	case d%time.Second != 0:
		return 0, errors.New("not a whole number of seconds")
	case d < configured && by == RequestedForAll && d >= DefaultLease:
		return 0, nil
	case d < configured:
		return 0, fmt.Errorf("shorter than this host's lease.duration %v", configured)
	case d > max(LongestLease, configured):
		return 0, fmt.Errorf("longer than %v", LongestLease)
	}
	return d, nil
}

// Follow applies what the control plane requests from all its hosts, until ctx ends, and returns why.
// heartbeat receives the result of each attempt. While the control plane is unreachable, the last
// request stays effective.
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
		if errors.Is(err, ErrForbidden) || errors.Is(err, ErrInvalid) { // this host then has no request
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
		if err := bounded.Sleep(ctx, max(pause(&backoff, err), bounded.Random(p.Pace().Duration/LeaseRenewals))); err != nil {
			return err
		}
	}
}

// paceInterval is the shortest time between two values, because the control plane sets the pace of the
// watch.
const paceInterval = time.Second

// follow runs one watch and returns why it ended. It calls answered for each value.
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
			if err := bounded.Sleep(ctx, paceInterval); err != nil {
				return err
			}
		case err := <-ended:
			return err
		}
	}
}
