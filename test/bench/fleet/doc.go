// Package fleet measures how many hosts one control plane supports: thousands of simulated agents
// on a real etcd or a real kube-apiserver, and their cost for it.
//
// A simulated agent does what an agent does with its control plane, with the agent's own code, a
// client and its own connections. It registers, renews its Lease, writes its status every five
// minutes, watches its Node and the requested Lease duration, and sometimes publishes an Event. It
// does nothing on its host.
//
// The package owns the simulated fleet, the measurements of the store, and the extrapolation to
// larger fleets. The store, never an agent, shows whether Leases are renewed in time. It does not
// judge a machine: the number of hosts is a measurement, not a promise.
package fleet
