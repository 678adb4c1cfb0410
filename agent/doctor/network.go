package doctor

import (
	"slices"
	"time"
)

// Network is the API that the agent serves over the network.
type Network struct {
	Certificate *Certificate // of the server; nil if none can be read
	Exposed     []string     // keys that other users on this host can read
	// Err is why the agent does not serve, or serves with older files than those on disk.
	Err error
	// Unchecked reports that only the service can read the files.
	Unchecked bool
}

// network checks whether the agent serves over the network, and how long its certificate is valid.
func network(f Facts) Check {
	n := f.Network
	if n == nil {
		return Check{}
	}
	if n.Unchecked {
		return unchecked(f)
	}
	var found faults
	for _, path := range n.Exposed {
		found.add(warn("chmod 600 "+path, "%s is the key of the agent, and other users on this host can read it", path))
	}
	crt, now := n.Certificate, time.Now()
	var expiry faults
	if crt != nil {
		expiry = crt.aging(now, "put a new certificate into "+crt.Path+" and its key into the file of api.tls.key; hostler reads them automatically", "hostler does not renew it")
	}
	found = append(found, expiry...)
	if n.Err != nil && !slices.ContainsFunc(expiry, func(c Check) bool { return c.Status == Fail }) { // an expired certificate is the cause of Err, too
		c := fail("fix that; hostler retries automatically", "%v", n.Err)
		c.NoAccess = fileFault(n.Err)
		found.add(c)
	}
	if crt == nil {
		return found.or(Check{}) // without certificate, Err is set
	}
	return found.or(crt.good(now, ""))
}
