package runtimetest

import "time"

// Usage is how full the Fake's filesystem is.
type Usage struct {
	CapacityBytes, AvailableBytes uint64
	Inodes, InodesFree            uint64
}

// freeing is space that a removal gave up and that does not show as free yet.
type freeing struct {
	bytes, inodes uint64
	until         time.Time
}

// Usage measures the filesystem: each layer once, however many images and
// containers hold it, what containers wrote, and what others use.
func (f *Fake) Usage() Usage {
	f.mu.Lock()
	defer f.mu.Unlock()
	bytes, inodes := f.used()
	bytes += f.otherBytes
	now := time.Now()
	for _, p := range f.freeing {
		if now.Before(p.until) {
			bytes, inodes = bytes+p.bytes, inodes+p.inodes
		}
	}
	return Usage{
		CapacityBytes: f.opts.CapacityBytes, AvailableBytes: f.opts.CapacityBytes - min(bytes, f.opts.CapacityBytes),
		Inodes: f.opts.Inodes, InodesFree: f.opts.Inodes - min(inodes, f.opts.Inodes),
	}
}

// SetOtherBytes changes what is used by things that are not the runtime's.
func (f *Fake) SetOtherBytes(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.otherBytes = n
}

// used sums up what the runtime holds. The caller holds mu.
func (f *Fake) used() (bytes, inodes uint64) {
	seen := map[string]bool{}
	add := func(layers []Layer) {
		for _, l := range layers {
			if !seen[l.ID] {
				seen[l.ID] = true
				bytes, inodes = bytes+l.Bytes, inodes+l.Inodes
			}
		}
	}
	for _, i := range f.images {
		add(i.layers)
	}
	for _, c := range f.containers() {
		add(c.layers)
		bytes += c.spec.WritableBytes
	}
	return bytes, inodes
}

// free runs a removal; the space that it gives up shows as free with the delay
// of the options. The caller holds mu.
func (f *Fake) free(remove func()) {
	if f.opts.FreesAfter == 0 {
		remove()
		return
	}
	bytesBefore, inodesBefore := f.used()
	remove()
	bytes, inodes := f.used()
	f.freeing = append(f.freeing, freeing{bytesBefore - bytes, inodesBefore - inodes, time.Now().Add(f.opts.FreesAfter)})
}
