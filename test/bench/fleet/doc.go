// Package fleet measures how many hosts one control plane carries: thousands of
// simulated agents on a real etcd, or on a real kube-apiserver, and what that costs it.
//
// A simulated agent is what an agent does towards its control plane, with the agent's
// own code, a client and connections of its own: it registers, renews its Lease, writes
// its status every five minutes, watches its Node and what all hosts are asked for, and
// publishes an Event now and then. What it does on its host it leaves out.
//
// It owns the fleet, what is measured of the store behind it, and the slope from that to
// larger fleets. Whether Leases are kept is asked of the store, never of the agents. It
// refuses to judge a machine: how many it carries is a figure and no promise.
package fleet
