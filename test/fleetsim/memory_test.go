package fleetsim

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"hostler.io/hostler/controlplane/store"
)

// footprint is what a server or an agent keeps in memory: the length of each map and slice by its place, and the bytes of all texts.
type footprint struct {
	lengths map[string]int
	texts   int
	seen    map[visit]bool
}

// visit is a pointer of a type: a struct and its first field have the same one.
type visit struct {
	at uintptr
	of reflect.Type
}

// footprintOf measures the parts of a server or an agent. They must rest.
func footprintOf(parts ...any) *footprint {
	f := &footprint{lengths: map[string]int{}, seen: map[visit]bool{}}
	for _, part := range parts {
		f.add(fmt.Sprintf("%T", part), reflect.ValueOf(part))
	}
	return f
}

// foreign are the packages whose state belongs to neither.
var foreign = []string{"hostler.io/hostler/controlplane/store/memory", "hostler.io/hostler/test/"}

// add measures a value. It does not follow functions, and pointers to types of libraries.
func (f *footprint) add(place string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		at, pkg := visit{v.Pointer(), v.Type()}, ""
		if !v.IsNil() {
			pkg = v.Elem().Type().PkgPath()
		}
		if v.IsNil() || f.seen[at] || slices.ContainsFunc(foreign, func(p string) bool { return strings.HasPrefix(pkg, p) }) || v.Elem().Kind() == reflect.Struct && !strings.HasPrefix(pkg, "hostler.io/") && !strings.HasPrefix(pkg, "k8s.io/api") {
			return
		}
		f.seen[at] = true
		f.add(place, v.Elem())
	case reflect.Interface:
		if !v.IsNil() {
			f.add(place, v.Elem())
		}
	case reflect.Struct:
		if slices.ContainsFunc(foreign, func(p string) bool { return strings.HasPrefix(v.Type().PkgPath(), p) }) {
			return
		}
		for i := range v.NumField() {
			f.add(place+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Map:
		f.lengths[place] = max(f.lengths[place], v.Len())
		for entries := v.MapRange(); entries.Next(); {
			f.add(place, entries.Key())
			f.add(place, entries.Value())
		}
	case reflect.Slice, reflect.Array:
		f.lengths[place] = max(f.lengths[place], v.Len())
		for i := range v.Len() {
			f.add(place, v.Index(i))
		}
	case reflect.String:
		f.texts += v.Len()
	default:
	}
}

// shrunk checks that no server keeps more than the fleet needs, and no agent more than its host needs.
func (w *world) shrunk() {
	objects, bytes := 0, 0
	for _, kind := range []store.Kind{store.Nodes, store.Leases, w.plan.pods(), tickets} {
		for _, name := range w.store.Names(kind) {
			objects, bytes = objects+1, bytes+len(w.store.Raw(kind.Folder()+name))
		}
	}
	for _, s := range w.servers {
		w.fits(s.name, footprintOf(s.controllers), objects, bytes)
	}
	for _, h := range w.hosts {
		a, own := h.agent, w.store.Raw("nodes/"+h.name)
		w.fits(h.name, footprintOf(a.client, a.keeper, a.reporter, a.reboot, a.selfDrain, a.cordoner), 1, len(own))
	}
}

// fits checks what a process keeps for so many objects, of so many bytes.
func (w *world) fits(name string, f *footprint, objects, bytes int) {
	for _, place := range slices.Sorted(maps.Keys(f.lengths)) {
		if n := f.lengths[place]; n > leastKept+copies*objects {
			w.fail("a process forgets what is not there any more", "%s has %d entries in %s, for %d objects", name, n, place, objects)
		}
	}
	if f.texts > copies*bytes+leastTexts {
		w.fail("a process forgets what is not there any more", "%s has texts of %d bytes, for objects of %d", name, f.texts, bytes)
	}
}

// What a process may keep of a small fleet, such as the last releases, and how often it may have an object: an index has each of its
// names.
const (
	leastKept  = 40
	leastTexts = 64 << 10
	copies     = 2
)
