// Package certificate gets this node its client certificate from the cluster, as
// TLS bootstrap does, and renews it in time.
//
// It owns the key, which never leaves the host, the files that key and
// certificate are kept in, and when a request is made. A request names itself
// after its key, and the key is on disk before the request is made: an agent that
// is started again while nobody has approved it yet finds its own request.
//
// The certificate in use is replaced only by one that the server has accepted.
// Until then, however long it takes and whatever goes wrong, the old one stays, also
// where the server does not accept it any more: Doubt has that looked into.
//
// It refuses to know how requests reach the server: see Requests.
package certificate
