package tree

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// mostOpen bounds the open descriptors of a walk. In a deeper tree, the walk opens folders
	// again.
	mostOpen = 16
	// folderBytes is the memory for a Folder without its name, including lists and the allocator's
	// overhead.
	folderBytes = 96
)

// Folder is a folder that a walk found.
type Folder struct {
	Parent *Folder // nil for the root
	Name   string  // the path if it is the root
	Depth  int     // 0 for the root

	device, mount uint64
	unread        int // folders not read yet among this folder and those below it
}

// Path returns the folder's path. It is built on each call, because all paths of a tree may take
// many times as much memory as the names.
func (f *Folder) Path() string {
	if f.Parent == nil {
		return f.Name
	}
	return filepath.Join(f.Parent.Path(), f.Name)
}

// Bytes estimates the folder's memory.
func (f *Folder) Bytes() int { return folderBytes + len(f.Name) }

// Entry is an entry that a walk found in a folder, or the root itself.
type Entry struct {
	In     *Folder // the folder that contains it; nil for the root
	Dir    *Dir    // In, open until the visit returns; its Name is only the last element
	Name   string  // in that folder
	Stat   unix.Statx_t
	Folder *Folder // the entry itself if it is a folder, else nil
}

// Walk visits root and everything below it level by level, so that folders with few entries come
// first. visit returns whether to enter the entry, if it is a folder, and whether to continue. The
// walk follows no links. It skips a folder that is on another mount than at its visit.
//
// Folders that still have to be read take at most maxBytes of memory. whole is false if entries
// below root were not visited: because of maxBytes, of a visit's result, or of an error. Entries
// that were removed or replaced during the walk do not count.
func Walk(root *Dir, maxBytes int, visit func(Entry) (enter, goOn bool)) (whole bool) {
	top := newFolder(nil, root.Name(), root.Self)
	w := walk{open: []opened{{top, root}}, whole: true}
	defer func() { w.closeBelow(0) }()
	waiting := []*Folder{top}
	bytes := top.Bytes()
	if enter, goOn := visit(Entry{Name: top.Name, Stat: root.Self, Folder: top}); !enter || !goOn {
		return goOn
	}
	for len(waiting) > 0 {
		f := waiting[0]
		waiting = waiting[1:]
		goOn := w.read(f, func(e Entry) bool {
			enter, goOn := visit(e)
			if e.Folder == nil || !enter || !goOn {
				return goOn
			}
			if bytes+e.Folder.Bytes() > maxBytes {
				w.whole = false
				return true
			}
			bytes += e.Folder.Bytes()
			f.unread++
			waiting = append(waiting, e.Folder)
			return true
		})
		if !goOn {
			return false
		}
		for ; f != nil; f = f.Parent {
			if f.unread--; f.unread > 0 {
				break
			}
			bytes -= f.Bytes()
		}
	}
	return w.whole
}

func newFolder(in *Folder, name string, st unix.Statx_t) *Folder {
	f := &Folder{Parent: in, Name: name, device: Device(st), mount: st.Mnt_id, unread: 1}
	if in != nil {
		f.Depth = in.Depth + 1
	}
	return f
}

// opened is a folder with its open Dir.
type opened struct {
	folder *Folder
	dir    *Dir
}

// walk is a walk in progress.
type walk struct {
	// open has the root and the open folders on the path to the folder that was read last. Each is
	// below the previous one.
	open  []opened
	whole bool // false if something could not be read
}

// read calls visit for each entry of a folder, and returns false if visit did. It skips what cannot
// be read.
func (w *walk) read(f *Folder, visit func(Entry) bool) (goOn bool) {
	dir, err := w.reach(f)
	if err != nil {
		w.missed(err)
		return true
	}
	for name, err := range dir.Names() {
		if err != nil {
			w.missed(err)
			break
		}
		st, err := dir.Stat(name)
		if err != nil {
			w.missed(err)
			continue
		}
		e := Entry{In: f, Dir: dir, Name: name, Stat: st}
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			e.Folder = newFolder(f, name, st)
		}
		if !visit(e) {
			return false
		}
	}
	return true
}

// missed records that something could not be read, unless it is gone.
func (w *walk) missed(err error) {
	if !Gone(err) {
		w.whole = false
	}
}

// reach opens a folder, starting from its nearest ancestor that is open.
func (w *walk) reach(f *Folder) (*Dir, error) {
	last := len(w.open) - 1
	var missing []*Folder
	for at := f; ; at = at.Parent {
		for w.open[last].folder.Depth > at.Depth {
			last--
		}
		if w.open[last].folder == at {
			break
		}
		missing = append(missing, at)
	}
	w.closeBelow(last)
	dir := w.open[last].dir
	for i := len(missing) - 1; i >= 0; i-- {
		next, err := dir.openAs(missing[i].Name, missing[i].Name) // by name only, because a path may be long
		if err != nil {
			return nil, err
		}
		if !missing[i].isAt(next) {
			next.Close()
			return nil, unix.ENOENT
		}
		if len(w.open) == mostOpen {
			w.closeBelow(mostOpen - 2)
		}
		w.open = append(w.open, opened{missing[i], next})
		dir = next
	}
	return dir, nil
}

// isAt reports whether a folder is still on the mount on which it was visited.
func (f *Folder) isAt(d *Dir) bool {
	return f.mount == d.Self.Mnt_id && f.device == Device(d.Self)
}

// closeBelow closes the open folders after index last.
func (w *walk) closeBelow(last int) {
	for _, o := range w.open[last+1:] {
		o.dir.Close()
	}
	w.open = w.open[:last+1]
}
