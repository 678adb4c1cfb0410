// Package v1 is protocol 1 between hostler and a plugin, in Go. It is generated from
// controlplane.proto, which documents the protocol, by `make generate`. A plugin in Go needs no
// other package of hostler. The package does not know how the agent uses it.
package v1
