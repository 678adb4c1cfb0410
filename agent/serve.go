package agent

import (
	"context"
	"errors"
	"strings"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/inspect"
	"hostler.io/hostler/internal/listen"
)

// serveNetwork serves the API over the network. A port that is taken is a loop that
// fails, not an agent that does not start.
func (a *Agent) serveNetwork(ctx context.Context) error {
	routes := api.NetworkRoutes(a, a.metrics.Handler(), a.allowedNames, a.log.With("component", "api"))
	return a.overTLS("api.listen", a.config().API.Listen, "api").Serve(ctx, api.NewServer(routes))
}

// serveMetrics serves them on the configured address, if there is one, over the network
// by TLS.
func (a *Agent) serveMetrics(ctx context.Context) error {
	cfg := a.config().Metrics
	switch {
	case cfg.Listen == "":
		<-ctx.Done()
		return ctx.Err()
	case cfg.Loopback():
		return a.metrics.Serve(ctx, cfg.Listen, func() { a.loops.Named("metrics").Beat(nil) })
	}
	routes := api.NetworkMetrics(a.metrics.Handler(), a.allowedNames, a.log.With("component", "metrics"))
	return a.overTLS("metrics.listen", cfg.Listen, "metrics").Serve(ctx, api.NewServer(routes))
}

// overTLS is for what a loop serves over the network.
func (a *Agent) overTLS(key, address, loop string) listen.Network {
	return listen.Network{Key: key, Address: address, Files: a.files, Log: a.log.With("component", loop), Beat: a.loops.Named(loop).Beat}
}

// allowedNames are those in force: a name that a reload takes away is out with the next
// request.
func (a *Agent) allowedNames() api.Names { return api.Names(a.config().API.TLS.AllowedNames) }

// networkStatus is how the API is served over the network; nil where it is not.
func (a *Agent) networkStatus() *api.Network {
	if a.files == nil {
		return nil
	}
	cfg := a.config()
	n := &api.Network{Listen: cfg.API.Listen, Certificate: cfg.API.TLS.Certificate}
	if !cfg.Metrics.Loopback() {
		n.Metrics = cfg.Metrics.Listen
	}
	if err := a.files.Refresh(); err != nil {
		n.Message = err.Error()
	}
	if _, ends := a.files.Life(); !ends.IsZero() {
		n.Ends = &ends
	}
	return n
}

// networkFacts has what the loops that serve say, such as that an address is taken.
func (a *Agent) networkFacts() *doctor.Network {
	n := inspect.Network(a.config().API, a.files)
	if n == nil {
		return nil
	}
	for _, l := range a.loops {
		if h := l.Health(time.Now()); (h.Name == "api" || h.Name == "metrics") && !h.Healthy && n.Err == nil && !strings.HasPrefix(h.LastError, "api.tls") { // which is of seconds ago
			n.Err = errors.New(h.LastError)
		}
	}
	return n
}
