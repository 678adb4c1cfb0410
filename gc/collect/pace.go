package collect

import "time"

const (
	// mostAtOnce is how many removals a runtime is asked for at the same time at
	// the most: what is gained by more, a runtime's own work takes from.
	mostAtOnce = 4
	// paceRound is how many removals are judged together.
	paceRound = 8
	// paceNoise is what a removal may take without being slow, whatever the best.
	paceNoise = 5 * time.Millisecond
)

// pacer finds out how many removals at once a runtime takes with ease, by how long
// each takes: it begins with one, adds one after each round in which none takes
// much longer than before, and halves when it takes twice as long. Where one at a
// time takes twice as long, the runtime is busy with others, and rests as long as
// it works. What it took at best is forgotten slowly, for a disk may have become
// slower for good.
type pacer struct {
	limit int
	best  time.Duration // of a removal, on average, in the best round; 0 before the first
	pause time.Duration

	sum time.Duration // of the round that is going on
	n   int
}

func newPacer() *pacer { return &pacer{limit: 1} }

// atOnce is how many removals may be under way now.
func (p *pacer) atOnce() int { return p.limit }

// rest is how long to wait before the next removal when none is under way.
func (p *pacer) rest() time.Duration { return p.pause }

// observe takes in how long a removal took.
func (p *pacer) observe(took time.Duration) {
	p.sum += took
	if p.n++; p.n < paceRound {
		return
	}
	average := p.sum / paceRound
	p.sum, p.n = 0, 0
	switch {
	case p.best == 0 || average < max(2*p.best, paceNoise):
		p.limit = min(p.limit+1, mostAtOnce)
		p.pause = 0
	case p.limit == 1:
		p.pause = average
	default:
		p.limit /= 2
	}
	if p.best == 0 || average < p.best {
		p.best = average
	} else {
		p.best += p.best / 16
	}
}
