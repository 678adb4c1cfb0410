package doctor

import (
	"slices"
	"time"
)

// Network is what hostler serves over the network.
type Network struct {
	Certificate *Certificate // that it shows to callers; nil where none can be read
	Exposed     []string     // keys that others on this host can read
	// Err is why nobody is served, or not by the files as they are.
	Err error
	// Unchecked reports that only the service can read the files.
	Unchecked bool
}

// network looks at whether callers are served, and for how long.
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
	var worn faults
	if crt != nil {
		worn = crt.aging(now, "put a new certificate into "+crt.Path+" and its key into the file of api.tls.key; hostler reads them automatically", "hostler does not renew it")
	}
	found = append(found, worn...)
	if n.Err != nil && !slices.ContainsFunc(worn, func(c Check) bool { return c.Status == Fail }) { // else it is the same
		found.add(fail("fix that; hostler retries automatically", "%v", n.Err))
	}
	if crt == nil {
		return found.or(Check{}) // there is always a reason
	}
	return found.or(crt.good(now, ""))
}
