// Package pace runs many removals at once, as many as the runtime handles well, and bounds the wait
// for each.
//
// It owns the number of parallel removals, which it adapts to how long each takes, and the pauses
// between them. It does not know what is removed.
package pace

import (
	"context"
	"time"

	"hostler.io/hostler/internal/bounded"
)

const (
	// mostAtOnce is how many removals a runtime is requested at the same time at
	// the most: what is gained by more, a runtime's own work takes from.
	mostAtOnce = 4
	// paceRound is how many removals are judged together.
	paceRound = 8
	// paceNoise is what a removal may take without being slow, regardless of the best.
	paceNoise = 5 * time.Millisecond
)

// pacer finds out how many removals at once a runtime takes with ease, by how long
// each takes. It begins with one, tries one more after each round in which none took
// much longer than at best, and halves when they take twice as long; what was too
// much is tried again only after a while, which doubles each time. Where even one at
// a time takes twice as long, others keep the runtime busy: it then rests as long as
// it works, and slowly comes to take that for the runtime's own pace, for a disk may
// have become slower for good.
type pacer struct {
	limit int           // removals at once
	best  time.Duration // of a removal, on average, in the best round; 0 before the first
	pause time.Duration // before the next removal when none is in progress

	tooMuch int // removals at once that were too much; 0 if none were
	wait    int // rounds until they are tried again
	waited  int // rounds for which they were not tried last

	sum time.Duration // of the round that is in progress
	n   int
}

// Each tries all of a list in order, several at once, and calls done with what came of
// each, one at a time. It stops when ctx ends or done says that it is no use, waits for
// those in progress, and returns how many it did not try. A try that failed says nothing
// of the pace: it may have been refused at once, or have hung.
func Each[T any](ctx context.Context, list []T, try func(T) error, done func(T, error) (goOn bool)) (left int) {
	type outcome struct {
		one  T
		err  error
		took time.Duration
	}
	p := &pacer{limit: 1}
	outcomes := make(chan outcome)
	flying, goOn := 0, true
	for {
		more := goOn && ctx.Err() == nil && len(list) > 0
		switch {
		case !more && flying == 0:
			return len(list)
		case more && flying == 0 && p.pause > 0 && bounded.Sleep(ctx, p.pause) != nil:
			continue
		case more && flying < p.limit:
			one := list[0]
			list = list[1:]
			flying++
			go func() {
				started := time.Now()
				err := try(one)
				outcomes <- outcome{one, err, time.Since(started)}
			}()
			continue
		}
		out := <-outcomes
		flying--
		if out.err == nil {
			p.observe(out.took)
		}
		goOn = done(out.one, out.err) && goOn
	}
}

// longestWait bounds, in rounds, how long too much is not tried again.
const longestWait = 256

// observe takes in how long a removal took.
func (p *pacer) observe(took time.Duration) {
	p.sum += took
	if p.n++; p.n < paceRound {
		return
	}
	average := p.sum / paceRound
	p.sum, p.n = 0, 0
	slow := p.best > 0 && average >= max(2*p.best, paceNoise)
	switch {
	case !slow:
		p.pause = 0
		p.grow()
	case p.limit > 1:
		p.waited = min(max(2*p.waited, 4), longestWait)
		p.tooMuch, p.wait = p.limit, p.waited
		p.limit /= 2
	default:
		p.pause = average
		p.best += p.best / 16
	}
	if p.best == 0 || average < p.best {
		p.best = average
	}
}

// grow allows one more after a round that went well.
func (p *pacer) grow() {
	if p.tooMuch > 0 && p.limit >= p.tooMuch { // it is no longer too much
		p.tooMuch, p.waited = 0, 0
	}
	if p.tooMuch > 0 && p.limit+1 >= p.tooMuch && p.wait > 0 {
		p.wait--
		return
	}
	p.limit = min(p.limit+1, mostAtOnce)
}
