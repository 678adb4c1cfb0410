// Package bench measures what hostler promises of speed and size, on the static
// binary as users get it, a real containerd and a real logind, and a real control
// plane of Kubernetes with a kubelet to compare with. `make bench` runs it as root
// and prints tables; docs/reference/performance.md explains the figures.
//
// It owns how each figure is taken. It refuses to judge: a slow or busy machine
// misses targets, which the table says, and fails nothing.
package bench
