// Package pods keeps one v1.Pod object in etcd for each running pod of this host, for the fleet's
// schedulers and servers.
//
//   - names.go: the path of an object
//   - object.go: the objects that a host should have (pure)
//   - decide.go: what to do with one object (pure)
//   - publisher.go: the loop that does it
//
// It owns labels, ownerReferences, spec and status of the objects, except conditions of others. It
// keeps what others write: deletionTimestamp, finalizers, annotations. It never stops a pod.
package pods
