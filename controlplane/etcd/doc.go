// Package etcd stores a fleet's Nodes, Leases and Events in etcd: JSON of the API types under a
// prefix. docs/reference/etcd.md promises the layout.
//
//   - store.go, list.go, watch.go: the objects.Store
//   - pods.go: the Pod objects of a host
//   - fleet.go, follow.go, elect.go: the store.Store
//   - layout.go, version.go: paths of objects, and versions
//   - lease.go: the etcd leases that end with a host
//   - dial.go, conn.go, credentials.go: connections and credentials
//   - errors.go: the classes of errors
//   - diagnose.go: the check for hostler doctor
//
// It uses the request types of etcd's client, but not its connections. If no member answers, the
// client's balancer waits for ever and returns no reason. It also repeats failed requests up to 100
// times and requests a token for every stream. It resumes a watch at a revision that a restored
// backup may reach only after days.
//
// It owns the errors of etcd. It does not know what a Node is (package objects does), and refuses a
// server that it cannot verify.
package etcd
