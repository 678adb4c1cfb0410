package lifecycle_test

import (
	"fmt"
	"testing"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
)

// BenchmarkDecide decides about 10,000 Nodes in 10 zones: all healthy, and half of them dead.
func BenchmarkDecide(b *testing.B) {
	for name, half := range map[string]bool{"healthy": false, "half dead": true} {
		b.Run(name, func(b *testing.B) {
			var hosts []lifecycle.Host
			for i := range 10000 {
				h := host(fmt.Sprintf("n%05d", i), fmt.Sprintf("z%d", i%10))
				if half && i/10%2 == 0 {
					unknown(&h)
				}
				hosts = append(hosts, h)
			}
			policy := lifecycle.DefaultPolicy()
			b.ReportAllocs()
			for b.Loop() {
				lifecycle.Decide(lifecycle.Facts{Confirmed: noon, Hosts: hosts}, policy, noon)
			}
		})
	}
}
