// Package bench measures the speed and size that hostler promises. It uses the static binary of a
// release, a real containerd, a real logind, and a real Kubernetes control plane with a kubelet for
// comparison. `make bench` runs it as root and prints tables; docs/reference/performance.md
// explains the figures.
//
// It owns how each figure is measured. It does not judge: if a slow or busy machine misses a
// target, the table says so, and no test fails.
package bench
