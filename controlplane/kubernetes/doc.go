// Package kubernetes reaches a Kubernetes API server as a node does: with a
// node's credentials and no rights beyond those that the Node authorizer and the
// NodeRestriction admission plugin leave to it. Fleet is for the server role, which has
// rights of its own: it reads and writes the objects of all nodes.
//
// It owns the connections, what goes over them, and what answers and failures
// mean. It speaks through client-go's rest client with a scheme of three API
// groups: the typed clients register every group, for 10 MB of binary, and
// informers would hold in memory what one node does not need.
//
// The Lease and everything else have connections of their own, so that a large Node or
// a slow write never delays a renewal. A request without an answer is the last on its
// connection: a peer that vanished would otherwise swallow every further request until
// the kernel or the pings of HTTP/2 give it up, which takes longer than a Lease is valid
// (kubernetes/kubernetes#48638, #121793). So is a request that the server could not
// serve, for another server may be behind the same address. The next request also reads
// the kubeconfig and its files again.
//
// Nothing here waits beside the calls: no queue, no limit of requests per second,
// no retry but those that resolve a conflict. A server that asks to return
// later is told of by controlplane.BusyError; whoever calls backs off.
//
// What the server keeps of hostler's is written by patches that say no more than
// what changes, under the UID and resourceVersion that they were made from: fields
// that this version does not know stay as they are, and so does what others write.
//
// It refuses servers that it cannot verify, and to decide what is reported.
package kubernetes
