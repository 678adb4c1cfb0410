package store

import (
	"bytes"
	"slices"
	"strings"
)

// Range is the paths on etcd, below the prefix of the fleet, from Begin to before End.
type Range struct{ Begin, End string }

// Has reports whether a path is in the range.
func (r Range) Has(path string) bool { return r.Begin <= path && path < r.End }

// below returns the range of a folder, which ends with a slash.
func below(folder string) Range { return Range{folder, strings.TrimSuffix(folder, "/") + "0"} }

// hostFolders have a folder for each host, which only that host may write. Only hosts write Nodes and Leases, too.
var hostFolders = []string{Events.Folder(), Pods(true).Folder()}

// HostFolder returns the folder on etcd that has a path and that one host may write, with its slash, and the host; empty
// if there is none.
func HostFolder(path string) (folder, host string) {
	for _, parent := range hostFolders {
		below, is := strings.CutPrefix(path, parent)
		if host, _, parted := strings.Cut(below, "/"); is && parted {
			return parent + host + "/", host
		}
	}
	return "", ""
}

// mostHostBytes bounds an object that a host writes, as a server would write it again: etcd accepts requests of 1.5 MiB.
const mostHostBytes = 1 << 20

// rewritten returns how many bytes JSON text has at most when it is written again: these two characters are escaped.
func rewritten(text []byte) int {
	return len(text) + len(`\u2028`)*(bytes.Count(text, []byte("\u2028"))+bytes.Count(text, []byte("\u2029")))
}

// ByHost reports whether only a host writes the object of that name on etcd.
func (k Kind) ByHost(name string) bool {
	_, host := HostFolder(k.Folder() + name)
	return host != "" || k.Name == Nodes.Name || k.Name == Leases.Name
}

// Ranges returns where the objects that a Position is about are stored on etcd.
func (p Position) Ranges() []Range {
	all := below(p.Kind.Folder())
	switch {
	case !p.ByPeople:
		return []Range{all}
	case p.Kind.Name == Nodes.Name, p.Kind.Name == Leases.Name:
		return nil
	}
	var list []Range
	for _, folder := range hostFolders {
		hosts := below(folder)
		if !all.Has(hosts.Begin) {
			continue
		}
		list = append(list, Range{all.Begin, hosts.Begin})
		if p.Host != "" {
			list = append(list, below(folder+p.Host+"/"))
		}
		all.Begin = hosts.End
	}
	return slices.DeleteFunc(append(list, all), func(r Range) bool { return r.Begin >= r.End })
}
