package gc

// Yield is the space that the removals of a run have freed so far. The next ones are estimated by it.
// Its zero value is for the first removal.
type Yield struct {
	Removed       int
	Bytes, Inodes uint64 // freed by them, as measured
	// The most that any of the batches brought for each byte and inode estimated.
	BytesRatio, InodesRatio float64
}

// Add records a batch: the number of images, the estimated gain and the actual one, 0 if nothing was
// freed.
func (y *Yield) Add(images int, estimatedBytes, freedBytes, estimatedInodes, freedInodes uint64) {
	y.Removed += images
	y.Bytes += freedBytes
	y.Inodes += freedInodes
	y.BytesRatio = max(y.BytesRatio, float64(freedBytes)/float64(max(1, estimatedBytes)))
	y.InodesRatio = max(y.InodesRatio, float64(freedInodes)/float64(max(1, estimatedInodes)))
}

// bytes and inodes estimate what one more removal brings at most: as much as its
// size says, by the worst ratio seen, and no less than removals bring on average.
func (y Yield) bytes(estimate uint64) float64 {
	return max(float64(estimate)*max(1, y.BytesRatio), y.mean(y.Bytes))
}

func (y Yield) inodes(estimate uint64) float64 {
	return max(float64(estimate)*max(1, y.InodesRatio), y.mean(y.Inodes))
}

func (y Yield) mean(freed uint64) float64 { return float64(freed) / float64(max(1, y.Removed)) }

// estimatedInodes returns at least one, and at most what a filesystem can count: a runtime may report
// any size.
func estimatedInodes(perByte float64, sizeBytes uint64) uint64 {
	return 1 + uint64(min(float64(sizeBytes)*perByte, 1<<62))
}

// inodesPerByte is how many inodes go with a byte that is used, on average.
func (u Usage) inodesPerByte() float64 {
	if u.CapacityBytes <= u.AvailableBytes || u.Inodes < u.InodesFree {
		return 0
	}
	return float64(u.Inodes-u.InodesFree) / float64(u.CapacityBytes-u.AvailableBytes)
}

// Batch returns how many of the next images may be removed before the next measurement: as many as
// free an estimated half of what a filesystem still lacks, in bytes or inodes. So batches become
// smaller towards the end, down to one image. All images are of one runtime, with the given
// filesystems.
func Batch(next []*ImageDecision, usages []Usage, p ImagePolicy, o Options, y Yield) int {
	budgets := budgetsOf(usages, p, o)
	for n, d := range next {
		space := false
		for i := range budgets {
			b := &budgets[i]
			// The size counts as well: it holds where the layers are not known, and an
			// estimate that is too low would let a batch free too much.
			size := max(d.SizeBytes, d.Gain.Bytes)
			b.bytes -= y.bytes(size)
			b.inodes -= y.inodes(max(estimatedInodes(b.perByte, size), d.Gain.Inodes))
			space = space || b.bytes >= 0 || b.inodes >= 0
		}
		if !space {
			return max(1, n)
		}
	}
	return len(next)
}

// budget returns the most that a batch may free on one filesystem; below 0 for nothing.
type budget struct{ bytes, inodes, perByte float64 }

func budgetsOf(usages []Usage, p ImagePolicy, o Options) []budget {
	var budgets []budget
	l := newLedger(usages, p, o)
	for _, a := range l.accounts {
		b := budget{bytes: -1, inodes: -1, perByte: a.perByte}
		if a.bytes > 0 {
			b.bytes = float64(a.bytes) / 2
		}
		if a.inodes > 0 {
			b.inodes = float64(a.inodes) / 2
		}
		if a.short() {
			budgets = append(budgets, b)
		}
	}
	return budgets
}
