package gather

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"hostler.io/hostler/status/probe"
)

const (
	// resolveInterval is how often the control plane's name is resolved. resolvePause is the
	// minimum time between two lookups because of network changes, which even the start of a
	// container causes.
	resolveInterval = 5 * time.Minute
	resolvePause    = 30 * time.Second
	// resolveTimeout bounds one lookup. resolveRetry is the first pause after a failed one; it
	// grows to a minute.
	resolveTimeout  = 2 * time.Second
	resolveRetry    = time.Second
	maxResolveRetry = time.Minute
	// resolvingFor bounds the wait for the addresses after the start.
	resolvingFor = time.Minute
	// answerLifetime is how long an address stays valid that DNS does not return any more.
	// maxAnswers bounds how many are kept: DNS may rotate addresses.
	answerLifetime = time.Hour
	maxAnswers     = 8
)

// NetworkOptions configure a Network.
type NetworkOptions struct {
	// ControlPlane returns the address of the control plane as HOST:PORT; nil if the control plane
	// is on this host. It may read a file.
	ControlPlane func() (string, error)
	// Endpoint returns a text that changes when ControlPlane's result changes or is about to
	// change. It must not block.
	Endpoint func() string
	// Lost is called when the source address of connections to the control plane has disappeared.
	// These connections are dead, but neither end notices. It must not block, and may be nil.
	Lost func()
	Log  *slog.Logger

	// The functions below are replaced in tests. They default to this host's network and DNS.
	Scan   func(controlPlane ...netip.AddrPort) probe.Network
	Watch  func(ctx context.Context, destinations func() []netip.Addr, changes chan<- struct{}) error
	Lookup func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Network follows the host's addresses, and the routes from them to the control plane. It is safe
// for concurrent use.
type Network struct {
	o     NetworkOptions
	again chan struct{} // has a token if the control plane's address may have changed

	// The fields below are published by Run.
	now          atomic.Pointer[probe.Network]
	destinations atomic.Pointer[[]netip.Addr] // addresses of the control plane
	endpoint     atomic.Pointer[string]       // for which the addresses were last looked up

	// The fields below belong to Run's goroutine, and before that to NewNetwork.
	server  string // HOST:PORT of the answers
	answers []known
	failed  bool // whether the last lookup failed
}

// known is an address of the control plane.
type known struct {
	netip.AddrPort
	at time.Time // of the last answer that had it
}

// NewNetwork reads the network once, without DNS. It waits only briefly for the address of the
// control plane, because Run tries again.
func NewNetwork(o NetworkOptions) *Network {
	if o.Scan == nil {
		o.Scan, o.Watch, o.Lookup = probe.Addresses, probe.Watch, net.DefaultResolver.LookupNetIP
	}
	n := &Network{o: o, again: make(chan struct{}, 1)}
	n.now.Store(&probe.Network{})
	n.destinations.Store(new([]netip.Addr))
	resolving := false
	if o.ControlPlane != nil {
		n.endpoint.Store(new(o.Endpoint()))
		server, answered := soon(o.ControlPlane)
		resolving = !answered
		if host, port, split := splitServer(server); split {
			ip, err := netip.ParseAddr(host)
			resolving = err != nil
			if err == nil {
				n.take(found{server: server, addresses: []netip.AddrPort{netip.AddrPortFrom(ip.Unmap(), port)}})
			}
		}
	}
	n.scan(resolving)
	return n
}

// soon returns the result of ask. It returns nothing if ask fails, or takes too long for the
// agent's start, for example for a file on a filesystem that does not answer.
func soon(ask func() (string, error)) (server string, answered bool) {
	result := make(chan string, 1)
	go func() {
		server, _ := ask()
		result <- server
	}()
	select {
	case server = <-result:
		return server, true
	case <-time.After(resolveTimeout):
		return "", false
	}
}

// Current returns the last known network.
func (n *Network) Current() probe.Network {
	if n.o.ControlPlane != nil && n.o.Endpoint() != *n.endpoint.Load() {
		n.Again()
	}
	return *n.now.Load()
}

// Again requests a new lookup of the control plane's addresses.
func (n *Network) Again() {
	select {
	case n.again <- struct{}{}:
	default: // a request is pending
	}
}

// Run reads the network again whenever it may have changed, and calls changed if it has. It returns
// when ctx ends or the network cannot be watched, with the cause. Lookups run concurrently.
func (n *Network) Run(ctx context.Context, changed func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changes, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- n.o.Watch(ctx, n.to, changes) }()
	h := n.resolver()
	defer h.due.Stop()
	h.begin(ctx)
	resolving, settled := n.Current().Resolving, time.After(resolvingFor)
	for {
		check := true
		select {
		case <-changes:
			h.wake(ctx)
		case f := <-h.results:
			h.handle(ctx, f)
			resolving = resolving && f.err != nil
		case <-settled:
			resolving = false
		case <-n.again:
			check = false
			h.begin(ctx)
		case <-h.due.C:
			check = false
			h.begin(ctx)
		case err := <-ended:
			return err
		}
		before := *n.now.Load()
		if !check || !n.scan(resolving) {
			continue
		}
		if n.o.Lost != nil && lost(before, *n.now.Load()) {
			n.o.Lost()
		}
		changed()
	}
}

// resolver schedules lookups of the control plane's addresses, one at a time. Lookups run in their
// own goroutine; all fields belong to Run's.
type resolver struct {
	*Network
	results chan found
	under   bool        // a lookup is in progress
	more    bool        // another one is requested
	due     *time.Timer // for the next lookup; reset by the result of the current one
	began   time.Time   // start of the last lookup
	retry   time.Duration
}

func (n *Network) resolver() *resolver {
	return &resolver{Network: n, results: make(chan found, 1), due: time.NewTimer(resolveInterval), retry: resolveRetry}
}

// begin starts a lookup, or requests one after the current one. It does nothing if the control
// plane is on this host.
func (h *resolver) begin(ctx context.Context) {
	if h.o.ControlPlane == nil || h.under {
		h.more = h.under
		return
	}
	h.under, h.more, h.began = true, false, time.Now()
	h.endpoint.Store(new(h.o.Endpoint()))
	go func() { h.results <- h.search(ctx) }()
}

// wake handles a change of the network: a lookup that failed may succeed now, and earlier results
// may be outdated.
func (h *resolver) wake(ctx context.Context) {
	pause := resolvePause
	switch {
	case h.failed:
		pause, h.retry = resolveRetry, resolveRetry
	case h.literal():
		return
	}
	if wait := pause - time.Since(h.began); wait > 0 {
		h.due.Reset(wait)
		return
	}
	h.begin(ctx)
}

// handle handles the result of a lookup.
func (h *resolver) handle(ctx context.Context, f found) {
	h.under = false
	h.take(f)
	if f.err == nil {
		h.retry = resolveRetry
		h.due.Reset(resolveInterval)
	} else {
		h.due.Reset(h.retry)
		h.retry = min(2*h.retry, maxResolveRetry)
	}
	if h.more {
		h.begin(ctx)
	}
}

// found is the result of a lookup of the control plane's addresses.
type found struct {
	server    string // HOST:PORT; empty if unknown
	addresses []netip.AddrPort
	err       error
}

// search looks up the addresses of the control plane, with a time limit.
func (n *Network) search(ctx context.Context) found {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	server, err := n.o.ControlPlane()
	host, port, split := splitServer(server)
	if err != nil || !split {
		return found{err: cmp.Or(err, error(&net.AddrError{Err: "host or port missing", Addr: server}))}
	}
	f := found{server: server}
	ips := []netip.Addr{}
	if ip, err := netip.ParseAddr(host); err == nil {
		ips = append(ips, ip)
	} else {
		ips, f.err = n.o.Lookup(ctx, "ip", host)
	}
	for _, ip := range ips {
		f.addresses = append(f.addresses, netip.AddrPortFrom(ip.Unmap(), port))
	}
	// The order within one answer has no meaning.
	slices.SortFunc(f.addresses, netip.AddrPort.Compare)
	return f
}

// take adds addresses to the known addresses of the control plane, in the order of their first
// appearance. The first one stays first even if DNS rotates them. A failed lookup adds nothing.
func (n *Network) take(f found) {
	if f.err != nil && !n.failed && n.o.Log != nil {
		n.o.Log.Debug("cannot resolve control plane address, using the previous ones", "error", f.err)
	}
	n.failed = f.err != nil
	if f.server != "" && f.server != n.server {
		n.server, n.answers = f.server, nil
	}
	if f.err == nil {
		now := time.Now()
		for _, to := range f.addresses {
			i := slices.IndexFunc(n.answers, func(k known) bool { return k.AddrPort == to })
			if i < 0 {
				n.answers, i = append(n.answers, known{AddrPort: to}), len(n.answers)
			}
			n.answers[i].at = now
		}
		n.answers = slices.DeleteFunc(n.answers, func(k known) bool { return now.Sub(k.at) > answerLifetime })
		n.answers = n.answers[:min(len(n.answers), maxAnswers)]
	}
	var destinations []netip.Addr
	for _, k := range n.answers {
		destinations = append(destinations, k.Addr().WithZone(""))
	}
	n.destinations.Store(&destinations)
}

// literal reports whether the control plane's host is an IP address.
func (n *Network) literal() bool {
	host, _, split := splitServer(n.server)
	_, err := netip.ParseAddr(host)
	return split && err == nil
}

// to returns the control plane's addresses.
func (n *Network) to() []netip.Addr { return *n.destinations.Load() }

// scan reads the network, and reports whether it has changed.
func (n *Network) scan(resolving bool) bool {
	var to []netip.AddrPort
	for _, k := range n.answers {
		to = append(to, k.AddrPort)
	}
	network := n.o.Scan(to...)
	network.Resolving = resolving
	if reflect.DeepEqual(network, *n.now.Load()) {
		return false
	}
	n.now.Store(&network)
	return true
}

// lost reports whether the host has lost a source address of connections to the control plane.
func lost(before, now probe.Network) bool {
	for _, route := range before.ControlPlane {
		held := func(a probe.Address) bool { return a.IP == route.Source }
		if slices.ContainsFunc(before.Addresses, held) && !slices.ContainsFunc(now.Addresses, held) {
			return true
		}
	}
	return false
}

func splitServer(server string) (host string, port uint16, ok bool) {
	host, text, err := net.SplitHostPort(server)
	if err != nil {
		return "", 0, false
	}
	number, err := strconv.ParseUint(text, 10, 16)
	return host, uint16(number), err == nil
}
