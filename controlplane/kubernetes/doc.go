// Package kubernetes uses a Kubernetes API server as a node does: with a node's credentials, and
// with only the rights that the Node authorizer and the NodeRestriction admission plugin allow.
// Fleet is for the server role, which has rights of its own: it reads and writes the objects of all
// nodes.
//
// It owns the connections, the requests, and the meaning of answers and failures. It uses
// client-go's rest client with a scheme of three API groups. The typed clients would register every
// group, for 10 MB of binary, and informers would cache more than one node needs.
//
// The Lease has connections of its own, so that a large Node or a slow write never delays a
// renewal. If a request gets no answer, the next one uses a new connection. Otherwise a peer that
// has vanished would lose all further requests. The kernel or the pings of HTTP/2 would close the
// connection only after the Lease has expired (kubernetes/kubernetes#48638, #121793).
//
// The same applies if the server could not serve a request: another server may have the same
// address. The next request then also reads the kubeconfig and its files again.
//
// The package has no queue and no limit of requests per second. It retries only to resolve a
// conflict. If a server requests a later retry, the call returns controlplane.BusyError, and the
// caller waits.
//
// Objects are written by patches that contain only the changes, with the UID and the
// resourceVersion of the object that was read. So fields that this version does not know, and
// fields of other clients, are not changed.
//
// It refuses servers that it cannot verify. It does not decide what is reported.
package kubernetes
