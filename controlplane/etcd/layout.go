package etcd

import (
	"strings"

	"hostler.io/hostler/controlplane/objects"
)

// path returns the key of an object: PREFIX/nodes/NAME, PREFIX/leases/NAME, PREFIX/events/NODE/NAME
// or PREFIX/settings/NAME.
func (s *Store) path(key objects.Key) string { return s.o.Prefix + "/" + key.String() }

// folder returns the prefix of a kind's paths. node, if not empty, selects the Events of one Node.
func (s *Store) folder(kind objects.Kind, node string) string {
	folder := s.o.Prefix + "/" + string(kind) + "/"
	if node != "" {
		folder += node + "/"
	}
	return folder
}

// keyAt returns the object that is stored at a path; false for other keys below the prefix.
func (s *Store) keyAt(path string) (objects.Key, bool) {
	rest, below := strings.CutPrefix(path, s.o.Prefix+"/")
	kind, rest, parted := strings.Cut(rest, "/")
	if !below || !parted {
		return objects.Key{}, false
	}
	key := objects.Key{Kind: objects.Kind(kind), Node: rest}
	switch key.Kind {
	case objects.Node, objects.Lease:
	case objects.Event:
		key.Node, key.Name, parted = strings.Cut(rest, "/")
		if !parted || key.Name == "" || strings.Contains(key.Name, "/") {
			return objects.Key{}, false
		}
	default:
		return objects.Key{}, false
	}
	return key, key.Node != "" && !strings.Contains(key.Node, "/")
}
