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
	// mostAtOnce is the maximum number of parallel removals on one runtime. More would slow down
	// the runtime's other work.
	mostAtOnce = 4
	// paceRound is the number of removals in a round.
	paceRound = 8
	// paceNoise is the longest average of a round that never counts as slow.
	paceNoise = 5 * time.Millisecond
)

// pacer finds how many removals a runtime handles in parallel, from how long each takes. It begins
// with one, and adds one after each round that is not slow. A round is slow if its average is twice
// the best one. After a slow round, the pacer halves the number. It tries the larger number again
// after a pause that doubles each time. If a round of single removals is slow, other work keeps the
// runtime busy. Then the pacer pauses after each removal for as long as a removal takes. It slowly
// raises the best average, because the disk may have become slower permanently.
type pacer struct {
	limit int           // parallel removals
	best  time.Duration // lowest average of a round; 0 before the first
	pause time.Duration // before the next removal when none is in progress

	tooMuch int // number of parallel removals that was too much; 0 if unknown
	wait    int // rounds until it is tried again
	waited  int // length of the last such wait, in rounds

	sum time.Duration // sum of the current round
	n   int
}

// Each calls try for the objects of a list in order, several in parallel, and calls done with each
// result, one at a time. It stops when ctx ends, or when done returns false. It waits for calls in
// progress, and returns how many objects it did not try. A failed call does not change the pace,
// because it may have failed at once or hung.
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

// longestWait is the maximum of wait, in rounds.
const longestWait = 256

// observe records the duration of a removal.
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

// grow raises the limit by one after a fast round.
func (p *pacer) grow() {
	if p.tooMuch > 0 && p.limit >= p.tooMuch { // this number is no longer too much
		p.tooMuch, p.waited = 0, 0
	}
	if p.tooMuch > 0 && p.limit+1 >= p.tooMuch && p.wait > 0 {
		p.wait--
		return
	}
	p.limit = min(p.limit+1, mostAtOnce)
}
