package etcd

import (
	"fmt"
	"strings"

	"hostler.io/hostler/controlplane/objects"
)

// right is one that a role can be given.
type right struct {
	verb string // "read" or "write"
	path string // of a key, or of all that begin with it if it ends with a slash
}

// String is the right as a person reads it.
func (r right) String() string { return r.verb + " " + r.path }

// rights returns the rights that a host needs.
func (s *Store) rights(node string) []right {
	var list []right
	for _, path := range []string{
		s.path(objects.Key{Kind: objects.Node, Node: node}),
		s.path(objects.Key{Kind: objects.Lease, Node: node}),
		s.folder(objects.Event, node),
	} {
		list = append(list, right{"read", path}, right{"write", path})
	}
	if s.o.Pods {
		list = append(list, podRights(s.podFolder(node))...)
	}
	return append(list, right{"read", s.settingPath()})
}

// podRights returns the rights to the Pod objects of a host in a folder.
func podRights(folder string) []right { return []right{{"read", folder}, {"write", folder}} }

// on is a call on an object.
func (s *Store) on(operation string, key objects.Key, verb string) call {
	c := call{operation: operation, object: key.String(), right: verb, path: s.path(key)}
	if key.Kind != objects.Setting {
		c.all = func() []right { return s.rights(key.Node) }
	}
	return c
}

// settingPath is where all hosts are requested another Lease. A host works without it.
func (s *Store) settingPath() string {
	return s.path(objects.Key{Kind: objects.Setting, Node: objects.LeaseDuration})
}

// grants are the commands that give a role these rights, one for each path.
func grants(rights []right) string {
	var paths []string
	verbs := map[string]string{}
	for _, r := range rights {
		if verbs[r.path] == "" {
			paths, verbs[r.path] = append(paths, r.path), r.verb
		}
		if r.verb == "write" { // a host reads what it writes
			verbs[r.path] = "readwrite"
		}
	}
	commands := make([]string, len(paths))
	for i, path := range paths {
		prefix := ""
		if strings.HasSuffix(path, "/") {
			prefix = "--prefix "
		}
		commands[i] = fmt.Sprintf("`etcdctl role grant-permission ROLE %s%s %s`", prefix, verbs[path], path)
	}
	return strings.Join(commands, ", ")
}
