//go:build integration

package fleet_test

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
)

// files is the number of files that a process may open, if the system allows it.
const files = 1 << 18

// limits has the limits of the agents of one process.
type limits struct {
	connections int
	memory      float64 // bytes
}

// widen raises the limit of open files for this process and for servers that it starts later, and
// lets the lab's network use all its ports.
func widen(b *testing.B) limits {
	b.Helper()
	limit := syscall.Rlimit{Cur: files, Max: files}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		check(b, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
		limit.Cur = limit.Max
		check(b, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) // otherwise servers would inherit the earlier limit
	}
	const first, last = 10_000, 65_000
	check(b, os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", fmt.Appendf(nil, "%d %d", first, last), 0o644))
	fs, err := procfs.NewDefaultFS()
	check(b, err)
	info, err := fs.Meminfo()
	check(b, err)
	const reserve = 1000 // for other files
	return limits{min(int(limit.Cur)-reserve, last-first-reserve), float64(*info.MemAvailableBytes) * 0.7}
}

// step returns the step of n agents at the standard pace. If that is not possible, it returns one
// of fewer agents with shorter Leases, which renew as often together, and the reason.
func (r limits) step(k kind, results []result, n int) (step, string) {
	last := results[0]
	for _, r := range results {
		if r.held && r.pace == standard() {
			last = r
		}
	}
	s := step{n, standard(), *brief}
	each := (last.values["memory: fleet"] + last.values["memory: of the control plane"]) * megabyte / float64(last.agents)
	why := ""
	switch {
	case n*k.connections > r.connections:
		why = fmt.Sprintf("than the %s connections that are possible here", thousands(r.connections))
	case float64(n)*each > r.memory:
		why = "memory than is free here"
	default:
		return s, ""
	}
	s.agents = last.agents
	s.pace.Interval = (standard().Interval * time.Duration(last.agents) / time.Duration(n)).Round(time.Millisecond)
	return s, fmt.Sprintf("%s agents would need more %s: %s at intervals of %s stand in for them", thousands(n), why, thousands(s.agents), s.pace.Interval)
}

// search finds how many agents are supported, starting from a number that is. It doubles the number
// a few times at most, until it is too large, and then narrows the range to a quarter. It returns
// the largest supported number, and the smallest unsupported one; 0 if there is none.
func search(carried, doublings int, kept func(n int) bool) (carries, fails int) {
	for range doublings {
		if !kept(2 * carried) {
			fails = 2 * carried
			break
		}
		carried *= 2
	}
	for fails-carried > carried/4 {
		if n := (carried + fails) / 2; kept(n) {
			carried = n
		} else {
			fails = n
		}
	}
	return carried, fails
}
