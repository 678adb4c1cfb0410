package gc

import "hostler.io/hostler/runtime"

// Gain is the estimated gain of a removal. Unknown inodes of layers are estimated by the average of
// the filesystem.
type Gain struct {
	Bytes, Inodes uint64
	uncounted     uint64 // bytes whose inodes are not in Inodes
	whole         bool   // of an image without known layers, which has one inode at least
}

// sharing follows, while a plan is made, which layers its removals free: a layer is free once
// nothing holds it.
type sharing struct {
	layers map[imageRef][]*sharedLayer // of each image whose layers are known
}

type sharedLayer struct {
	runtime.Layer
	holders int  // images and others that still hold it in the plan
	stays   bool // held by an image that is not a candidate, or by something else
}

// newSharing indexes layers by the images that hold them. Users that gone reports are removed
// by the same plan.
func newSharing(layers []runtime.Layer, gone func(runtimeName, user string) bool) *sharing {
	s := &sharing{layers: make(map[imageRef][]*sharedLayer)}
	for _, l := range layers {
		shared := &sharedLayer{Layer: l, holders: len(l.Images)}
		for _, user := range l.Users {
			if !gone(l.Runtime, user) {
				shared.holders++
				shared.stays = true
			}
		}
		for _, id := range l.Images {
			ref := imageRef{l.Runtime, id}
			s.layers[ref] = append(s.layers[ref], shared)
		}
	}
	return s
}

func (s *sharing) of(img *ImageFact) (layers []*sharedLayer, known bool) {
	layers, known = s.layers[imageRef{img.Runtime, img.ID}]
	return layers, known
}

// keep marks an image that stays regardless of the plan.
func (s *sharing) keep(img *ImageFact) {
	layers, _ := s.of(img)
	for _, l := range layers {
		l.stays = true
	}
}

// most is what the image frees together with all other candidates; whole is its total size. Without
// known layers both are its own size.
func (s *sharing) most(img *ImageFact) (most, whole Gain) {
	layers, known := s.of(img)
	if !known {
		return own(img), own(img)
	}
	for _, l := range layers {
		whole.add(l)
		if !l.stays {
			most.add(l)
		}
	}
	return most, whole
}

// remove removes the image from the plan's host, and returns what that frees.
func (s *sharing) remove(img *ImageFact) (g Gain) {
	layers, known := s.of(img)
	if !known {
		return own(img)
	}
	for _, l := range layers {
		if l.holders--; l.holders == 0 {
			g.add(l)
		}
	}
	return g
}

// restore undoes a removal, and returns what it had freed.
func (s *sharing) restore(img *ImageFact) (g Gain) {
	layers, known := s.of(img)
	if !known {
		return own(img)
	}
	for _, l := range layers {
		if l.holders++; l.holders == 1 {
			g.add(l)
		}
	}
	return g
}

func own(img *ImageFact) Gain {
	return Gain{Bytes: img.OwnBytes(), uncounted: img.OwnBytes(), whole: true}
}

func (g *Gain) add(l *sharedLayer) {
	g.Bytes += l.Bytes
	g.Inodes += l.Inodes
	if l.Inodes == 0 {
		g.uncounted += l.Bytes
	}
}
