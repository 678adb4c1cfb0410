package gc

import "time"

// ImageKey identifies an image: the runtime's name and the image ID there.
type ImageKey struct {
	Runtime string `json:"runtime"`
	ID      string `json:"id"`
}

// Fruitless records that removals freed nothing on a filesystem that lacked space, with the state
// of the host. While that state does not change, removing the images that were unused then would
// free nothing either. Possible causes: other images share their layers, open files or snapshots
// use the space, or a quota counts something else.
type Fruitless struct {
	At             time.Time  `json:"at"`
	Unused         []ImageKey `json:"unused"` // images that nothing protected
	Held           []ImageKey `json:"held"`   // the other images on this filesystem
	CapacityBytes  uint64     `json:"capacityBytes"`
	AvailableBytes uint64     `json:"availableBytes"`
	Inodes         uint64     `json:"inodes"`
	InodesFree     uint64     `json:"inodesFree"`
}

// Frees reports whether removals have freed at least a tenth of their estimate of what was lacking.
// Even without freed layers, a few KiB are freed.
func Frees(lacking FilesystemDecision, estimate, freed Gain) bool {
	enough := func(lacks, estimate, freed uint64) bool { return lacks > 0 && freed > 0 && freed >= estimate/10 }
	return enough(lacking.BytesToFree, estimate.Bytes, freed.Bytes) || enough(lacking.InodesToFree, estimate.Inodes, freed.Inodes)
}

// Measurable reports whether the estimate is at least a hundredth of what was lacking. The writes of
// other programs can hide the removal of small images.
func Measurable(lacking FilesystemDecision, estimate Gain) bool {
	enough := func(lacks, estimate uint64) bool { return lacks > 0 && estimate >= lacks/100 }
	return enough(lacking.BytesToFree, estimate.Bytes) || enough(lacking.InodesToFree, estimate.Inodes)
}

// Fruitless returns the record of a filesystem on which these decisions have freed nothing. gone
// reports images that no longer exist.
func (d *Decisions) Fruitless(usage Usage, at time.Time, gone func(ImageKey) bool) Fruitless {
	record := Fruitless{
		At: at, CapacityBytes: usage.CapacityBytes, AvailableBytes: usage.AvailableBytes, Inodes: usage.Inodes, InodesFree: usage.InodesFree,
	}
	for i := range d.Images {
		img := &d.Images[i]
		key := ImageKey{img.Runtime, img.ID}
		switch {
		case img.Filesystem != usage.Name() || gone(key):
		case img.Unused():
			record.Unused = append(record.Unused, key)
		default:
			record.Held = append(record.Held, key)
		}
	}
	return record
}

// retryAfter is how long a record is valid: the removed images may have been special, and whoever may
// load images chooses them.
const retryAfter = 24 * time.Hour

// valid reports whether removals would still free nothing. That is so for a day if all images that
// were in use still are, and neither the size nor the free space of the filesystem has grown.
func (r Fruitless) valid(usage Usage, answered map[string]bool, held map[ImageKey]bool, now time.Time) bool {
	if now.Sub(r.At).Abs() >= retryAfter { // also if the clock was corrected
		return false
	}
	for _, key := range r.Held {
		if answered[key.Runtime] && !held[key] {
			return false
		}
	}
	return similar(r.CapacityBytes, usage.CapacityBytes, usage.CapacityBytes) && similar(r.Inodes, usage.Inodes, usage.Inodes) &&
		(usage.AvailableBytes < r.AvailableBytes || similar(r.AvailableBytes, usage.AvailableBytes, usage.CapacityBytes)) &&
		(usage.InodesFree < r.InodesFree || similar(r.InodesFree, usage.InodesFree, usage.Inodes))
}

// similar reports whether two figures differ by at most a hundredth of whole. Normal activity of a
// host causes such differences.
func similar(a, b, whole uint64) bool { return max(a, b)-min(a, b) <= whole/100 }

// fruitless returns the images whose removal would free nothing, and since when that is known. It
// also returns the filesystems whose record is no longer valid.
func fruitless(f *Facts, queue []queued, now time.Time) (images map[ImageKey]time.Time, outdated []string) {
	if len(f.Fruitless) == 0 {
		return nil, nil
	}
	held, answered := make(map[ImageKey]bool), make(map[string]bool)
	for i := range queue {
		if q := &queue[i]; q.reason != "" {
			held[ImageKey{q.img.Runtime, q.img.ID}] = true
		}
	}
	for _, u := range f.Filesystems {
		answered[u.Runtime] = true
	}
	images = make(map[ImageKey]time.Time)
	seen := make(map[string]bool)
	for _, u := range f.Filesystems {
		record, known := f.Fruitless[u.Name()]
		if !known || u.Problem() != "" || seen[u.Name()] {
			continue
		}
		seen[u.Name()] = true
		if !record.valid(u, answered, held, now) {
			outdated = append(outdated, u.Name())
			continue
		}
		for _, key := range record.Unused {
			images[key] = record.At
		}
	}
	return images, outdated
}
