// Package kubernetes reaches a Kubernetes API server as a node does: with a
// node's credentials and no rights beyond those that the Node authorizer and the
// NodeRestriction admission plugin leave to it.
//
// It owns the connections, what goes over them, and what answers and failures
// mean. It speaks through client-go's rest client with a scheme of three API
// groups: the typed clients register every group, for 10 MB of binary, and
// informers would hold in memory what one node does not need.
//
// Two lines lead to the server, each with connections of its own: one for the
// Lease, one for everything else, so that a large Node or a slow write never
// delays a renewal. An attempt that got no answer is the last on its connection:
// a peer that vanished without a word would otherwise swallow every further
// request until the kernel or HTTP/2's pings give it up, which takes longer than a
// Lease lives (kubernetes/kubernetes#48638, #121793). So is one that the server could
// not serve, for behind the same address there may be another that can. The next one
// also reads the kubeconfig and its files anew.
//
// Nothing here waits beside the calls: no queue, no limit of requests per second,
// no retry but those that resolve a conflict. A server that asks to come back
// later is told of by controlplane.BusyError; whoever calls backs off.
//
// What the server keeps of hostler's is written by patches that say no more than
// what changes, under the UID and resourceVersion that they were made from: fields
// that this version does not know stay as they are, and so does what others write.
//
// It refuses servers that it cannot verify, and to decide what is reported.
package kubernetes
