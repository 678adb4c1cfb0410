package gc

import "hostler.io/hostler/runtime"

// Gain is the estimated gain of a removal. Unknown inodes of layers are estimated by the average of
// the filesystem.
type Gain struct {
	Bytes, Inodes uint64
	uncounted     uint64 // bytes whose inodes are not included in Inodes
	whole         bool   // the layers are unknown; the image has one inode at least
}

// sharing tracks which layers the removals of a plan free. A layer is freed when nothing holds it
// any more.
type sharing struct {
	layers map[imageRef][]*sharedLayer // of the images with known layers
}

type sharedLayer struct {
	runtime.Layer
	holders int  // images and others that still hold it, at this point of the plan
	stays   bool // an image that is not a candidate holds it, or another user
}

// newSharing indexes layers by the images that hold them. gone reports users that the same plan
// removes.
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

// keep marks an image that the plan does not remove.
func (s *sharing) keep(img *ImageFact) {
	layers, _ := s.of(img)
	for _, l := range layers {
		l.stays = true
	}
}

// most is what removing all candidates would free of this image; whole is its total size. If the
// layers are unknown, both are its own size.
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

// remove removes the image from the state of the plan, and returns what that frees.
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

// restore undoes remove, and returns what remove had freed.
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
