//go:build integration

package probe_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	goruntime "runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/test/lab"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pair creates two connected interfaces and enables them.
func pair(t *testing.T, name, peer string) (near, far netlink.Link) {
	t.Helper()
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: peer}))
	var err error
	near, err = netlink.LinkByName(name)
	must(t, err)
	far, err = netlink.LinkByName(peer)
	must(t, err)
	must(t, netlink.LinkSetUp(near))
	must(t, netlink.LinkSetUp(far))
	return near, far
}

func add(t *testing.T, link netlink.Link, cidr string) {
	t.Helper()
	a, err := netlink.ParseAddr(cidr)
	must(t, err)
	if a.IP.To4() == nil {
		a.Flags = 0x02 // IFA_F_NODAD: usable at once
	}
	must(t, netlink.AddrAdd(link, a))
}

func find(t *testing.T, n probe.Network, ip string) probe.Address {
	t.Helper()
	i := slices.IndexFunc(n.Addresses, func(a probe.Address) bool { return a.IP == netip.MustParseAddr(ip) })
	if i < 0 {
		t.Fatalf("Addresses() = %+v, want %s among them", n, ip)
	}
	return n.Addresses[i]
}

func TestAddressesOfANetworkNamespace(t *testing.T) {
	lab.InNetwork(t)
	uplink, uplinkPeer := pair(t, "lan0", "lan1")
	backup, _ := pair(t, "wan0", "wan1")
	add(t, uplink, "198.18.0.5/24")
	add(t, uplink, "198.18.0.6/24")
	add(t, uplink, "fd00:a::5/64")
	add(t, backup, "198.19.0.5/24")
	for _, r := range []*netlink.Route{
		{LinkIndex: backup.Attrs().Index, Gw: netip.MustParseAddr("198.19.0.1").AsSlice(), Priority: 500},
		{LinkIndex: uplink.Attrs().Index, Gw: netip.MustParseAddr("198.18.0.1").AsSlice(), Priority: 100},
		{LinkIndex: uplink.Attrs().Index, Gw: netip.MustParseAddr("fe80::1").AsSlice(), Family: netlink.FAMILY_V6},
	} {
		must(t, netlink.RouteAdd(r))
	}

	n := probe.Addresses()
	if n.Problem != "" || len(n.Routes) != 3 {
		t.Fatalf("Addresses() = %+v, want three default routes and no problem", n)
	}
	for i, want := range []probe.DefaultRoute{
		{Interface: "lan0", Gateway: netip.MustParseAddr("198.18.0.1"), Metric: 100, Source: netip.MustParseAddr("198.18.0.5")},
		{Interface: "wan0", Gateway: netip.MustParseAddr("198.19.0.1"), Metric: 500, Source: netip.MustParseAddr("198.19.0.5")},
		{IPv6: true, Interface: "lan0", Gateway: netip.MustParseAddr("fe80::1"), Metric: 1024, Source: netip.MustParseAddr("fd00:a::5")},
	} {
		if n.Routes[i] != want {
			t.Errorf("Addresses() has default route %+v, want %+v", n.Routes[i], want)
		}
	}
	if a := find(t, n, "198.18.0.5"); a.Interface != "lan0" || a.Bits != 24 || a.Kind != "veth" || !a.Up || !a.Carrier || a.Secondary {
		t.Errorf("Addresses() = %+v for the first address", a)
	}
	if a := find(t, n, "198.18.0.6"); !a.Secondary {
		t.Errorf("Addresses() = %+v, want the second address of a prefix secondary", a)
	}

	// A link-local control plane is on the link of its zone, whatever route comes first.
	_, host, err := net.ParseCIDR("fe80::3/128")
	must(t, err)
	must(t, netlink.RouteAdd(&netlink.Route{Dst: host, LinkIndex: backup.Attrs().Index, Priority: 500}))
	must(t, netlink.RouteAdd(&netlink.Route{Dst: host, LinkIndex: uplink.Attrs().Index, Priority: 600}))
	ways := probe.Addresses(netip.MustParseAddrPort("[fe80::3%wan0]:6443"), netip.MustParseAddrPort("[fe80::3%lan0]:6443")).ControlPlane
	if len(ways) != 2 || ways[0].Interface != "wan0" || ways[1].Interface != "lan0" {
		t.Errorf("Addresses() has ways %+v to link-local addresses, want them by wan0 and lan0", ways)
	}

	must(t, netlink.LinkSetDown(uplinkPeer))
	if a := find(t, probe.Addresses(), "198.18.0.5"); !a.Up || a.Carrier {
		t.Errorf("Addresses() = %+v with the cable pulled, want it up without carrier", a)
	}
}

// controlPlane is not on any link of the test's interfaces.
var controlPlane = netip.MustParseAddrPort("10.1.2.3:6443")

func TestWatchNoticesWhatChanges(t *testing.T) {
	lab.InNetwork(t)
	// Automatic changes of IPv6 would be mistaken for those of the test.
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	near, _ := pair(t, "lan0", "lan1")
	here, err := netns.Get()
	must(t, err)
	defer here.Close()

	address := netip.MustParseAddr("198.18.0.5")
	network := func(cidr string) *net.IPNet { _, n, _ := net.ParseCIDR(cidr); return n }
	has := func(n probe.Network) bool {
		return slices.ContainsFunc(n.Addresses, func(a probe.Address) bool { return a.IP == address })
	}
	steps := []struct {
		name string
		do   func() error
		seen func(n probe.Network) bool
	}{
		{
			"an address comes",
			func() error {
				return netlink.AddrAdd(near, &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(24, 32)}})
			},
			has,
		},
		{
			"a default route comes",
			func() error {
				return netlink.RouteAdd(&netlink.Route{LinkIndex: near.Attrs().Index, Gw: netip.MustParseAddr("198.18.0.1").AsSlice()})
			},
			func(n probe.Network) bool { return len(n.Routes) == 1 },
		},
		{
			"a route to the control plane comes",
			func() error {
				return netlink.RouteAdd(&netlink.Route{Dst: network("10.1.0.0/16"), LinkIndex: near.Attrs().Index, Gw: netip.MustParseAddr("198.18.0.2").AsSlice()})
			},
			func(n probe.Network) bool { return n.ControlPlane[0].Gateway == netip.MustParseAddr("198.18.0.2") },
		},
		{
			"a rule comes",
			func() error {
				rule := netlink.NewRule()
				rule.Family, rule.Dst, rule.Type = netlink.FAMILY_V4, network("10.0.0.0/8"), unix.FR_ACT_BLACKHOLE
				return netlink.RuleAdd(rule)
			},
			func(n probe.Network) bool { return n.ControlPlane[0].Problem != "" },
		},
		{
			"the link is switched off",
			func() error { return netlink.LinkSetDown(near) },
			func(n probe.Network) bool { return len(n.Routes) == 0 && has(n) },
		},
		{
			"the link goes",
			func() error { return netlink.LinkDel(near) },
			func(n probe.Network) bool { return !has(n) },
		},
	}

	// Watch opens its socket on this goroutine's thread; another thread in the same namespace makes
	// changes.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	changes := make(chan struct{})
	result := make(chan string, 1)
	go func() {
		defer cancel()
		goruntime.LockOSThread() // never unlocked: the thread ends with its namespace
		if err := netns.Set(here); err != nil {
			result <- err.Error()
			return
		}
		if !reported(ctx, changes, func(probe.Network) bool { return true }) {
			result <- "nothing reported at the start"
			return
		}
		for _, s := range steps {
			if err := s.do(); err != nil {
				result <- s.name + ": " + err.Error()
				return
			}
			if !reported(ctx, changes, s.seen) {
				result <- s.name + ": not reported"
				return
			}
		}
		result <- ""
	}()
	if err := probe.Watch(ctx, func() []netip.Addr { return []netip.Addr{controlPlane.Addr()} }, changes); err == nil || ctx.Err() == nil {
		t.Errorf("Watch() = %v, want it to end with its context only", err)
	}
	if problem := <-result; problem != "" {
		t.Error(problem)
	}
}

// reported waits for a change after which seen returns true.
func reported(ctx context.Context, changes <-chan struct{}, seen func(probe.Network) bool) bool {
	for {
		select {
		case <-changes:
			if seen(probe.Addresses(controlPlane)) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}
