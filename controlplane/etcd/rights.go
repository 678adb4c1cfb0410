package etcd

import (
	"cmp"
	"fmt"
	"strings"

	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/internal/sanitize"
)

// right is a right that a role can have.
type right struct {
	verb string // "read" or "write"
	path string // a key, or a prefix of keys that ends with a slash
}

// String is the text for messages.
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

// readerRights returns the rights for reading all hosts.
func (s *Store) readerRights() []right {
	return []right{{"read", s.folder(objects.Node, "")}, {"read", s.folder(objects.Lease, "")}}
}

// The roles in hints, as in docs/reference/etcd.md.
const (
	readerRole = "hostler-reader"
	serverRole = "hostler-server"
)

// hostRole is the role of a host.
func hostRole(node string) string { return "hostler-" + cmp.Or(node, "NODE") }

// podRights returns the rights to the Pod objects of a host in a folder.
func podRights(folder string) []right { return []right{{"read", folder}, {"write", folder}} }

// on describes a call on an object.
func (s *Store) on(operation string, key objects.Key, verb string) call {
	c := call{operation: operation, object: key.String(), right: verb, path: s.path(key), role: hostRole(key.Node)}
	switch {
	case key.Kind == objects.Setting:
		c.role = hostRole(s.o.Node)
	case verb == "read" && s.o.Node != "" && key.Node != s.o.Node: // this host only reads objects of other hosts
		c.role, c.all = readerRole, s.readerRights
	default:
		c.all = func() []right { return s.rights(key.Node) }
	}
	return c
}

// settingPath returns the key of the Lease duration that is requested from all hosts. A host works
// without it.
func (s *Store) settingPath() string {
	return s.path(objects.Key{Kind: objects.Setting, Node: objects.LeaseDuration})
}

// grants says who runs which commands to give the user of these Options the rights, through a role.
// The commands are on one line; hostler's commands print one per line. etcd keeps a role and a user
// that already exist.
func (o Options) grants(role string, rights []right) string {
	var paths []string
	verbs := map[string]string{}
	for _, r := range rights {
		if verbs[r.path] == "" {
			paths, verbs[r.path] = append(paths, r.path), r.verb
		}
		if r.verb == "write" { // a host also reads what it writes
			verbs[r.path] = "readwrite"
		}
	}
	if len(paths) == 0 {
		return ""
	}
	commands := []string{"role add " + role}
	for _, path := range paths {
		prefix := ""
		if strings.HasSuffix(path, "/") {
			prefix = "--prefix "
		}
		commands = append(commands, fmt.Sprintf("role grant-permission %s %s%s %s", role, prefix, verbs[path], path))
	}
	user := o.user()
	if o.Username == "" { // a user with a password exists, because it has authenticated
		commands = append(commands, "user add "+user+" --no-password")
	}
	commands = append(commands, "user grant-role "+user+" "+role)
	for i, command := range commands {
		commands[i] = "etcdctl " + command
	}
	return o.certificateHint() + "as etcd root, for " + o.identity() + ` (ignore "already exists"): ` + strings.Join(commands, "; ")
}

// certificateHint says that this host may have the certificate of another host; empty if the CN is
// the Node's name.
func (o Options) certificateHint() string {
	name := o.commonName()
	if o.Username != "" || o.Node == "" || name == "" || name == o.Node {
		return ""
	}
	return "etcd sees this host as user " + sanitize.Line(name, maxMessage) + ". If that is wrong, install the certificate of this host. If it is right: "
}

// commonName returns the CN of the client certificate; empty if it cannot be read.
func (o Options) commonName() string {
	if o.Certificate == "" {
		return ""
	}
	pair, err := o.pair()
	if err != nil {
		return ""
	}
	return pair.Leaf.Subject.CommonName
}

// user returns the user of these Options, quoted for a shell.
func (o Options) user() string {
	name := cmp.Or(o.Username, o.commonName())
	switch {
	case name == "":
		return "USER"
	case strings.ContainsFunc(name, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:@", r)
	}):
		return "'" + strings.ReplaceAll(sanitize.Line(name, maxMessage), "'", `'\''`) + "'"
	}
	return name
}
