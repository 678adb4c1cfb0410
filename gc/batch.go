package gc

// Yield is the space that the removals of a run have freed so far, from which the gain of the next
// removals is estimated. The zero value is valid before the first removal.
type Yield struct {
	Removed       int
	Bytes, Inodes uint64 // measured space that the removals freed
	// Maximum of measured per estimated gain, over all batches.
	BytesRatio, InodesRatio float64
}

// Add records a batch: the number of images, the estimated and the measured gain. The measured gain
// is 0 if nothing was freed.
func (y *Yield) Add(images int, estimatedBytes, freedBytes, estimatedInodes, freedInodes uint64) {
	y.Removed += images
	y.Bytes += freedBytes
	y.Inodes += freedInodes
	y.BytesRatio = max(y.BytesRatio, float64(freedBytes)/float64(max(1, estimatedBytes)))
	y.InodesRatio = max(y.InodesRatio, float64(freedInodes)/float64(max(1, estimatedInodes)))
}

// bytes and inodes are upper estimates of the gain of one more removal. They multiply its own
// estimate by the highest ratio so far. The result is at least the average gain of a removal.
func (y Yield) bytes(estimate uint64) float64 {
	return max(float64(estimate)*max(1, y.BytesRatio), y.mean(y.Bytes))
}

func (y Yield) inodes(estimate uint64) float64 {
	return max(float64(estimate)*max(1, y.InodesRatio), y.mean(y.Inodes))
}

func (y Yield) mean(freed uint64) float64 { return float64(freed) / float64(max(1, y.Removed)) }

// estimatedInodes returns at least 1. The upper bound prevents an overflow, because a runtime may
// report any size.
func estimatedInodes(perByte float64, sizeBytes uint64) uint64 {
	return 1 + uint64(min(float64(sizeBytes)*perByte, 1<<62))
}

// inodesPerByte is the average number of inodes per used byte.
func (u Usage) inodesPerByte() float64 {
	if u.CapacityBytes <= u.AvailableBytes || u.Inodes < u.InodesFree {
		return 0
	}
	return float64(u.Inodes-u.InodesFree) / float64(u.CapacityBytes-u.AvailableBytes)
}

// Batch returns how many of the next images to remove before the next measurement. A batch frees an
// estimated half of the bytes or inodes that a filesystem still lacks. So batches become smaller
// towards the end, down to one image. All images must be of one runtime, with the given
// filesystems.
func Batch(next []*ImageDecision, usages []Usage, p ImagePolicy, o Options, y Yield) int {
	budgets := budgetsOf(usages, p, o)
	for n, d := range next {
		space := false
		for i := range budgets {
			b := &budgets[i]
			// Use the larger value: the size is the only one if the layers are unknown. If the
			// estimate is too low, a batch frees too much.
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

// budget is the most that a batch may free on one filesystem; below 0 nothing may be freed.
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
