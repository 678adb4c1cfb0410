//go:build integration

package bench_test

import (
	"syscall"
	"time"

	"hostler.io/hostler/agent/api"
)

const startRuns = 11

// measureStart measures the time from an agent's start until a client of its API sees the first
// Lease: on a new host, and on one where it ran before.
func (t *bed) measureStart(into *table) {
	_, end := t.login()
	defer end()
	fresh := figure{name: "start to first lease, new host", unit: "ms", target: 300}
	again := figure{name: "start to first lease, restart", unit: "ms", target: 300}
	ready := figure{name: "start to READY=1", unit: "ms"}
	for range startRuns {
		for _, f := range []*figure{&fresh, &again} {
			a := startAgent(t.b, f == &fresh)
			a.await("the first lease", func(s api.Status) bool {
				return s.Lease != nil && s.Lease.Spec.RenewTime.After(a.began)
			})
			f.samples = append(f.samples, milliseconds(time.Since(a.began)))
			n, err := a.service.Await(t.b.Context(), "READY", "1", a.began)
			check(t.b, err)
			ready.samples = append(ready.samples, milliseconds(n.Time.Sub(a.began)))
			a.end(syscall.SIGTERM)
		}
	}
	into.add(fresh)
	into.add(again)
	into.add(ready)
}
