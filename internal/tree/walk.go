package tree

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

const (
	// mostOpen bounds the descriptors that a walk holds. A deeper tree takes more calls instead.
	mostOpen = 16
	// folderBytes is what a Folder takes without its name, with what lists and the allocator add.
	folderBytes = 96
)

// Folder is a folder that a walk has found.
type Folder struct {
	Parent *Folder // nil for the root
	Name   string  // the path of the root
	Depth  int     // 0 for the root

	device, mount uint64
	unread        int // folders below it that are not read yet, and itself if it is not
}

// Path is the folder's path. It is made when it is requested: a tree's paths may be many times as
// long as its names.
func (f *Folder) Path() string {
	if f.Parent == nil {
		return f.Name
	}
	return filepath.Join(f.Parent.Path(), f.Name)
}

// Bytes is about what the folder takes in memory.
func (f *Folder) Bytes() int { return folderBytes + len(f.Name) }

// Entry is what a walk has found in a folder, or the root.
type Entry struct {
	In     *Folder // the folder that it is in; nil for the root
	Dir    *Dir    // In, open until the visit returns, and called by its last name only
	Name   string  // in that folder
	Stat   unix.Statx_t
	Folder *Folder // the entry itself if it is a folder, else nil
}

// Walk visits root and all that is below it level by level, so that what is in few folders comes
// first. A visit says whether to enter the entry if it is a folder, and whether to continue. The walk
// follows no link, and does not enter a folder that is on another mount than when it was visited.
//
// Folders that are still to be read take at most maxBytes. Walk returns false if there is more below
// root than was visited: because of maxBytes or of a visit, or because something could not be read.
// What was removed or replaced meanwhile does not count.
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

// opened is a folder and its descriptor.
type opened struct {
	folder *Folder
	dir    *Dir
}

// walk is a walk in progress.
type walk struct {
	// open is the root, and what is open on the way to the folder that was read last: each is below
	// the one before.
	open  []opened
	whole bool // as far as it could be read
}

// read calls visit for each entry of a folder, and returns false if visit did. What cannot be read is
// left out.
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

// missed notes what could not be read.
func (w *walk) missed(err error) {
	if !Gone(err) {
		w.whole = false
	}
}

// reach opens a folder from the nearest one above it that is open.
func (w *walk) reach(f *Folder) (*Dir, error) {
	last := len(w.open) - 1
	var way []*Folder
	for at := f; ; at = at.Parent {
		for w.open[last].folder.Depth > at.Depth {
			last--
		}
		if w.open[last].folder == at {
			break
		}
		way = append(way, at)
	}
	w.closeBelow(last)
	dir := w.open[last].dir
	for i := len(way) - 1; i >= 0; i-- {
		next, err := dir.openAs(way[i].Name, way[i].Name) // a path may be long
		if err != nil {
			return nil, err
		}
		if !way[i].isAt(next) {
			next.Close()
			return nil, unix.ENOENT
		}
		if len(w.open) == mostOpen {
			w.closeBelow(mostOpen - 2)
		}
		w.open = append(w.open, opened{way[i], next})
		dir = next
	}
	return dir, nil
}

// isAt reports whether a folder is on the mount on which it was visited.
func (f *Folder) isAt(d *Dir) bool {
	return f.mount == d.Self.Mnt_id && f.device == Device(d.Self)
}

// closeBelow closes what is open below one of those.
func (w *walk) closeBelow(last int) {
	for _, o := range w.open[last+1:] {
		o.dir.Close()
	}
	w.open = w.open[:last+1]
}
