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

// pacer finds how many removals a runtime handles in parallel, by how long each takes. It begins
// with one and adds one after each round without a slow removal. If removals take twice as long as
// at best, it halves the number, and retries the larger number only after a pause that doubles each
// time. If even a single removal takes twice as long, other work keeps the runtime busy: the pacer
// then pauses for as long as it works. It slowly accepts the longer time as the normal one, because
// the disk may have become slower for good.
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

// Each tries all objects of a list in order, several in parallel, and calls done with each result,
// one at a time. It stops when ctx ends or done returns that more attempts are useless. It waits
// for attempts in progress, and returns how many objects it did not try. A failed attempt does not
// change the pace: it may have been refused at once, or have hung.
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

// grow allows one more after a round that succeeded.
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
