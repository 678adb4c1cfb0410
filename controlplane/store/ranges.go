package store

import (
	"bytes"
	"slices"
	"strings"

	"hostler.io/hostler/controlplane"
)

// Range is the paths on etcd, below the prefix of the fleet, from Begin to before End.
type Range struct {
	Begin, End string
	Hosts      bool // hosts may write there
}

// Has reports whether a path is in the range.
func (r Range) Has(path string) bool { return r.Begin <= path && path < r.End }

// below returns the range of a folder, which ends with a slash.
func below(folder string) Range {
	return Range{Begin: folder, End: strings.TrimSuffix(folder, "/") + "0"}
}

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

// mostValues is the maximum number of values in the object of that name.
func (k Kind) mostValues(name string) int {
	switch {
	case k.Name == Nodes.Name:
		return controlplane.MostNodeValues
	case k.ByHost(name):
		return controlplane.MostHostValues
	}
	return controlplane.MostValues
}

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
	all, ofHosts := below(p.Kind.Folder()), p.Kind.Name == Nodes.Name || p.Kind.Name == Leases.Name
	if !p.ByPeople {
		all.Hosts = ofHosts || slices.ContainsFunc(hostFolders, func(folder string) bool { return all.Has(folder) || below(folder).Has(all.Begin) })
		return []Range{all}
	}
	if ofHosts {
		return nil
	}
	var list []Range
	for _, folder := range hostFolders {
		hosts := below(folder)
		if !all.Has(hosts.Begin) {
			continue
		}
		list = append(list, Range{Begin: all.Begin, End: hosts.Begin})
		if p.Host != "" {
			own := below(folder + p.Host + "/")
			own.Hosts = true
			list = append(list, own)
		}
		all.Begin = hosts.End
	}
	return slices.DeleteFunc(append(list, all), func(r Range) bool { return r.Begin >= r.End })
}
