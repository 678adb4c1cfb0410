// Package etcd keeps a fleet's Nodes, Leases and Events in etcd: JSON of the API types
// under a prefix, in a layout that docs/reference/etcd.md promises.
//
//   - store.go, list.go, watch.go: the objects.Store
//   - fleet.go, follow.go, elect.go: the store.Store
//   - layout.go, version.go: where an object is, and what distinguishes its states
//   - lease.go: the etcd leases by which liveness ends by itself
//   - dial.go, conn.go, credentials.go: connections, and as whom
//   - errors.go: what answers mean
//   - diagnose.go: what one check tells a person
//
// Of etcd's own client it uses what makes requests, and none of what carries them:
// its balancer waits for ever where nobody answers and does not say why, repeats what
// has failed up to 100 times, requests a token at every stream, and resumes a watch
// at a revision that a restored backup may not reach for days.
//
// It owns etcd's ways of failing. It refuses to know what a Node is, which is package
// objects' to say, and to reach a server that it cannot verify.
package etcd
