package runtimetest

import "time"

// Usage is the used space of the Fake's filesystem.
type Usage struct {
	CapacityBytes, AvailableBytes uint64
	Inodes, InodesFree            uint64
}

// freeing is space of a removal that does not show as free yet.
type freeing struct {
	bytes, inodes uint64
	until         time.Time
}

// Usage returns the used space: each layer once, even if several images and containers use it, the
// space that containers wrote, and the space of others.
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

// SetOtherBytes changes the space that other programs use.
func (f *Fake) SetOtherBytes(n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.otherBytes = n
}

// used returns the space of the runtime. The caller holds mu.
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

// free runs a removal. Its space shows as free after the delay in Options. The caller holds mu.
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
