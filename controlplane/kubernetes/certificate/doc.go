// Package certificate gets this node's client certificate from the cluster, as TLS bootstrap does,
// and renews it in time.
//
// It owns the key, which never leaves the host, the files of key and certificate, and the time of
// requests. The name of a request is derived from its key, and the key is stored before the request
// is made. So if the agent restarts before the request is approved, it finds its own request.
//
// The certificate in use is replaced only by one that the server has accepted. Until then the old
// one stays in use, however long that takes and whatever fails. That is so even if the server
// rejects it: Doubt makes the Keeper check it.
//
// It does not know how requests reach the server: see Requests.
package certificate
