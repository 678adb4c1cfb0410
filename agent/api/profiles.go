package api

import (
	"net/http"
	"net/http/pprof"
)

// profileRoutes serve Go's profiles. Only root may read them: they show the agent's memory and use
// processor time.
func profileRoutes() []route {
	const prefix = "GET /debug/pprof/"
	profile := func(name, summary string, handler http.HandlerFunc) route {
		return route{pattern: prefix + name, access: act, reach: local, handler: handler, summary: summary, format: octets}
	}
	return []route{
		profile("profile", "A CPU profile over so many seconds, 30 by default.", pprof.Profile),
		profile("trace", "An execution trace over so many seconds, 1 by default.", pprof.Trace),
		profile("{name}", "One of Go's other profiles, such as heap, goroutine, allocs, mutex and block.", pprof.Index),
	}
}
