package etcd

import (
	"fmt"
	"strings"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// quota bounds what a Follow takes of one host in the folders that a host may write. The surplus is left out, so that
// one host makes no server run out of memory. Nothing of it is known but its number. The key is the host's folder.
type quota map[string]*usage

// usage is what a Follow has taken of a host.
type usage struct {
	sizes   map[string]int // of the keys and values, by name
	bytes   int
	surplus int // number of objects that were left out
}

// folderOf returns the folder of the host that may write an object, in the form of a name of the kind; empty if there is
// none.
func folderOf(kind store.Kind, name string) string {
	folder, _ := store.HostFolder(kind.Folder() + name)
	return strings.TrimPrefix(folder, kind.Folder())
}

// outcome is what became of an object that a host has stored.
type outcome struct {
	taken  bool // otherwise it is surplus
	before bool // it was taken before
	first  bool // nothing of the host was surplus before
	none   bool // nothing of the host is surplus any more
}

// put counts a stored object by the size of its key and value. created reports that the object was not stored before,
// or that a list reports it.
func (q quota) put(folder, name string, size int, created bool) outcome {
	if folder == "" {
		return outcome{taken: true}
	}
	u := q[folder]
	if u == nil {
		u = &usage{sizes: map[string]int{}}
		q[folder] = u
	}
	old, known := u.sizes[name]
	surplus := u.surplus
	if u.bytes-old+size <= controlplane.MostHostBytes && (known || len(u.sizes) < controlplane.MostHostObjects) {
		if !known && !created && u.surplus > 0 {
			u.surplus--
		}
		u.sizes[name], u.bytes = size, u.bytes-old+size
		return outcome{taken: true, before: known, none: surplus > 0 && u.surplus == 0}
	}
	if known {
		delete(u.sizes, name)
		u.bytes -= old
	}
	if known || created || surplus == 0 {
		u.surplus++
	}
	return outcome{before: known, first: surplus == 0}
}

// remove counts a deletion. It returns true if nothing of the host is surplus any more.
func (q quota) remove(folder, name string) (none bool) {
	u := q[folder]
	if u == nil {
		return false
	}
	if size, known := u.sizes[name]; known {
		delete(u.sizes, name)
		u.bytes -= size
	} else if u.surplus > 0 {
		u.surplus--
		none = u.surplus == 0
	}
	if len(u.sizes) == 0 && u.surplus == 0 {
		delete(q, folder)
	}
	return none
}

// room reports whether a list would take objects that were left out.
func (q quota) room() bool {
	for _, u := range q {
		if u.surplus > 0 && len(u.sizes) < controlplane.MostHostObjects/2 && u.bytes < controlplane.MostHostBytes/2 {
			return true
		}
	}
	return false
}

// errSurplus is why objects of a host are left out.
var errSurplus = fmt.Errorf("%w: it has more than %d objects or %d MiB, and the rest is left out: delete what the host should not have",
	store.ErrUnreadable, controlplane.MostHostObjects, controlplane.MostHostBytes>>20)
