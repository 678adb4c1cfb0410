package fleetsim

import (
	"cmp"
	"context"
	"fmt"
	goruntime "runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/executor"
	"hostler.io/hostler/controlplane/store/memory"
)

// callTime bounds a request without a deadline, as real stores do. A disk, and what stops pods, has no bound of its own.
const (
	callTime  = 10 * time.Second
	localTime = time.Hour
)

// request is a request of a process that the driver has not released yet.
type request struct {
	memory.Request
	of    *process
	loop  string    // of an agent; empty for other processes
	key   string    // process, call, object and count
	asked time.Time // when the process made it
	due   time.Time // when the driver releases it, unless a fault withholds it
	fate  fate
	// decided reports whether the fate was drawn. The driver does that, after the request has come to rest.
	decided bool
	serve   func() error

	served bool
	err    error      // result of serve
	left   bool       // the process does not wait for an answer any more
	answer chan error // has a buffer of one
}

// fate is what the network does to a request.
type fate string

const (
	delivered  fate = ""
	refused    fate = "refused"           // the answer is an error, and nothing was done
	lostBefore fate = "lost"              // the store does not get it
	lostAfter  fate = "answer lost"       // the process does not get the answer
	late       fate = "served too late"   // the store gets it after the process has given up
	broken     fate = "connection broken" // served, and the answer is an error
	slow       fate = "slow"              // served, and the answer takes long
	ignored    fate = "ignored"           // nothing was done, and the answer is that it was
	partial    fate = "pods left"         // served, and the answer is that pods still run
)

// localFates are what can happen to the commands and saves of a host or a server. A reboot command that is lost hangs.
var localFates = map[memory.Call][]fate{
	commandFlush:     {refused, broken, slow},
	commandSave:      {refused, slow},
	commandDrain:     {refused, broken, slow, partial},
	commandSelfDrain: {refused, broken, slow, partial},
	commandUndo:      {refused, broken, slow},
	commandReboot:    {refused, broken, slow, ignored, lostBefore},
}

// local reports whether a request does not leave the machine.
func local(c memory.Call) bool {
	return localFates[c] != nil || c == commandCordon || c == commandDown || c == commandStart
}

// carrier holds all requests that wait. The driver releases one at a time.
type carrier struct {
	plan    plan
	arrived chan struct{} // receives when a request arrives; has a buffer of one

	mu      sync.Mutex // guards the fields below
	waiting []*request
	counts  map[string]int
	clocks  map[string]*clock // by process; they outlive their processes
	callers map[stack]string  // the functions of requests
}

// stack is the call stack of a request.
type stack [32]uintptr

func newCarrier(p plan) *carrier {
	return &carrier{plan: p, arrived: make(chan struct{}, 1), counts: map[string]int{}, clocks: map[string]*clock{}, callers: map[stack]string{}}
}

// process is one process: a server or the agent of a host. After a restart, it is another one.
type process struct {
	name    string // such as server-1
	carrier *carrier
	ctx     context.Context
	cancel  context.CancelCauseFunc
	clock   *clock

	mu      sync.Mutex // guards the fields below
	dead    bool
	watches []*watch // in the order of their start
	network network
}

// network is what faults do to the connections of a process.
type network struct {
	suspended bool            // nothing goes in or out
	cut       bool            // no request reaches the store
	hangs     bool            // a cut does not answer
	refused   map[string]bool // kinds of objects that may not be listed or watched, and statusRefused
	silent    map[string]bool // kinds of objects whose watches report nothing
	lag       time.Duration   // see applied
}

// watch is a watch in progress.
type watch struct {
	kind string
	end  context.CancelCauseFunc
}

func newProcess(c *carrier, name string) *process {
	ctx, cancel := context.WithCancelCause(context.Background())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clocks[name] == nil {
		c.clocks[name] = &clock{}
	}
	return &process{
		name: name, carrier: c, ctx: ctx, cancel: cancel, clock: c.clocks[name],
		network: network{refused: map[string]bool{}, silent: map[string]bool{}},
	}
}

// loopName is the key of a context value: the name of the loop of an agent that makes a request.
type loopName struct{}

// errKilled is the result of all requests of a process that was killed.
var errKilled = fmt.Errorf("%w: the process was killed", controlplane.ErrUnavailable)

// Do implements memory.Network.
func (p *process) Do(ctx context.Context, r memory.Request, serve func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if r.Call != memory.Event {
		limit := callTime
		if local(r.Call) {
			limit = localTime
		}
		var cancel context.CancelFunc
		ctx, cancel = controlplane.Bound(ctx, limit)
		defer cancel()
	}
	q := p.park(ctx, r, serve)
	if q == nil {
		return errKilled
	}
	select {
	case err := <-q.answer:
		return err
	case <-ctx.Done():
		p.carrier.leave(q)
		return context.Cause(ctx)
	}
}

// park adds a request; nil if the process was killed.
func (p *process) park(ctx context.Context, r memory.Request, serve func() error) *request {
	p.mu.Lock()
	dead := p.dead
	p.mu.Unlock()
	if dead {
		return nil
	}
	by := p.name
	loop, is := ctx.Value(loopName{}).(string)
	if is {
		by += "/" + loop
	}
	var callers stack
	goruntime.Callers(2, callers[:])
	c := p.carrier
	c.mu.Lock()
	defer c.mu.Unlock()
	if function := c.caller(callers); function != "" {
		by += "/" + function
	}
	if of, is := pprof.Label(ctx, executor.LabelObject); is {
		by += "/" + of
	}
	name := fmt.Sprintf("%s %s %s", by, r.Call, r.Object)
	c.counts[name]++
	q := &request{Request: r, of: p, loop: loop, key: fmt.Sprintf("%s %d", name, c.counts[name]), asked: time.Now(), serve: serve, answer: make(chan error, 1)}
	q.due = q.asked.Add(time.Millisecond + time.Duration(c.plan.draw(q.key).Int64N(int64(15*time.Millisecond))))
	c.waiting = append(c.waiting, q)
	select {
	case c.arrived <- struct{}{}:
	default:
	}
	return q
}

// deciders are the folders of the packages whose functions name requests.
var deciders = []string{"hostler.io/hostler/controlplane/controllers/", "hostler.io/hostler/agent/"}

// caller returns the function that makes a request; empty if it is in none of these packages. Several goroutines of a
// process may make the same request at once. The caller holds the mutex.
func (c *carrier) caller(of stack) string {
	name, known := c.callers[of]
	if !known {
		name = decider(of)
		c.callers[of] = name
	}
	return name
}

func decider(of stack) string {
	end := slices.Index(of[:], 0)
	if end < 0 {
		end = len(of)
	}
	frames := goruntime.CallersFrames(of[:end])
	for more := true; more; {
		var f goruntime.Frame
		f, more = frames.Next()
		for _, folder := range deciders {
			if name, is := strings.CutPrefix(f.Function, folder); is {
				return name
			}
		}
	}
	return ""
}

// decide draws the fate of a request. rough is the share of requests that do not just get an answer.
func (c *carrier) decide(q *request, rough float64) {
	q.decided = true
	if q.Call == memory.Event {
		q.due = q.of.applied(q.due, kindOf(q.Object))
	}
	r := c.plan.draw("fate", q.key)
	if r.Float64() >= rough {
		return
	}
	fates := []fate{refused, lostBefore, lostAfter, late, broken, delivered}
	switch {
	case q.Call == memory.Event:
		fates = []fate{delivered}
	case local(q.Call):
		fates = localFates[q.Call]
	}
	if len(fates) == 0 { // it is not a command of the program
		return
	}
	q.fate = fates[r.IntN(len(fates))]
	if q.fate == delivered || q.fate == late {
		q.due = q.due.Add(time.Duration(r.Int64N(int64(8 * time.Second))))
	}
	if q.fate == late {
		q.due = q.due.Add(callTime)
	}
}

// applied returns when the member of the store that a process watches reports what happens at a time. A member that lags
// reports changes of a kind for a second, and then nothing until its lag is over. All reads of objects are linearizable.
func (p *process) applied(at time.Time, kind string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	lag := p.network.lag
	if lag == 0 {
		return at
	}
	late := time.Duration(p.carrier.plan.draw("lag", p.name, kind).Int64N(int64(lag)))
	if began := at.Add(-late).Truncate(lag).Add(late); at.Sub(began) > time.Second {
		return began.Add(lag)
	}
	return at
}

// leave records that a process does not wait for an answer any more. A request that the store can still
// get stays.
func (c *carrier) leave(q *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	q.left = true
	if q.fate != late || q.served {
		c.remove(q)
	}
}

// remove removes a request. The caller holds mu.
func (c *carrier) remove(q *request) {
	if i := slices.Index(c.waiting, q); i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
}

// next returns the request to release now; nil if there is none. at is when the next one is due; zero
// if there is none.
func (c *carrier) next(now time.Time, rough func(*request) float64) (q *request, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, w := range c.waiting {
		if !w.decided {
			c.decide(w, rough(w))
		}
		if !w.withheld() && (q == nil || earlier(w, q)) {
			q = w
		}
	}
	if q == nil || !q.due.After(now) {
		return q, time.Time{}
	}
	return nil, q.due
}

func earlier(a, b *request) bool {
	return cmp.Or(a.due.Compare(b.due), strings.Compare(a.key, b.key)) < 0
}

// withheld reports whether a fault keeps the request where it is.
func (q *request) withheld() bool {
	q.of.mu.Lock()
	defer q.of.mu.Unlock()
	n := q.of.network
	switch { // in the order of the way
	case q.fate == lostBefore, q.fate == lostAfter && q.served:
		return true // until the process gives up
	case n.suspended:
		return true
	case local(q.Call):
		return false
	case n.cut && n.hangs && !q.left:
		return true
	}
	return q.Call == memory.Event && n.silent[kindOf(q.Object)]
}

func kindOf(object string) string {
	kind, _, _ := strings.Cut(object, "/")
	return kind
}

// obstacle returns why the store does not get a request; nil if it does.
func (p *process) obstacle(r memory.Request) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case local(r.Call):
	case p.network.cut:
		return fmt.Errorf("%w: connection refused", controlplane.ErrUnavailable)
	case r.Call == memory.Update && r.Object == "nodes/"+p.name && p.network.refused[string(statusRefused)]:
		return fmt.Errorf("%w: it may not be written", controlplane.ErrForbidden)
	case r.Call == memory.List && p.network.refused[kindOf(r.Object)]:
		return fmt.Errorf("%w: it may not be listed", controlplane.ErrForbidden)
	}
	return nil
}

// watching registers a watch, so that a fault can end it.
func (p *process) watching(ctx context.Context, kind string, run func(context.Context) error) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	w := &watch{kind, end}
	p.mu.Lock()
	p.watches = append(p.watches, w)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.watches = slices.DeleteFunc(p.watches, func(other *watch) bool { return other == w })
	}()
	return run(ctx)
}

// breaks ends the watches of a kind, one after the other; of all kinds if kind is empty. Only the driver's
// goroutine calls it.
func (p *process) breaks(kind string, err error) {
	p.mu.Lock()
	watches := slices.Clone(p.watches) // several start at the same time, in any order
	p.mu.Unlock()
	slices.SortStableFunc(watches, func(a, b *watch) int { return strings.Compare(a.kind, b.kind) })
	for _, w := range watches {
		if kind == "" || w.kind == kind {
			w.end(err)
			synctest.Wait() // they draw their pauses from one source of random numbers
		}
	}
}

// change changes the network of the process.
func (p *process) change(edit func(*network)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	edit(&p.network)
}

// kill ends the process. The store may still get its requests under way.
func (p *process) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	c := p.carrier
	c.mu.Lock()
	for _, q := range c.waiting {
		if q.of == p && !q.served && q.fate == delivered && c.plan.draw("killed", q.key).IntN(2) == 0 {
			q.fate = late
		}
	}
	c.mu.Unlock()
	p.cancel(errKilled)
}
