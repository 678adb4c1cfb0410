// Package v1 is protocol 1 between hostler and a plugin, in Go: what controlplane.proto
// says, which is the page to read. It is made from that file by `make generate`, and
// owns nothing else. A plugin written in Go imports this package and no other of
// hostler's; it refuses to know what the agent does with it.
package v1
