package status_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// address returns an address on a device that is up.
func address(ip string, bits int, iface string) probe.Address {
	return probe.Address{IP: netip.MustParseAddr(ip), Bits: bits, Interface: iface, Kind: "device", Up: true, Carrier: true}
}

// network returns a network with addresses, and with a default route from the first one of each
// family.
func network(addresses ...probe.Address) probe.Network {
	n := probe.Network{Addresses: addresses}
	seen := map[bool]bool{}
	for _, a := range addresses {
		if !seen[a.IP.Is6()] {
			seen[a.IP.Is6()] = true
			n.Routes = append(n.Routes, probe.DefaultRoute{IPv6: a.IP.Is6(), Interface: a.Interface, Source: a.IP})
		}
	}
	return n
}

func with(a probe.Address, change func(*probe.Address)) probe.Address {
	change(&a)
	return a
}

func TestAddresses(t *testing.T) {
	lan, lan6 := address("10.0.0.5", 24, "eth0"), address("2001:db8::5", 64, "eth0")
	bridge := with(address("172.17.0.1", 16, "docker0"), func(a *probe.Address) { a.Kind = "bridge" })
	routeless := func(addresses ...probe.Address) probe.Network { return probe.Network{Addresses: addresses} }
	for _, c := range []struct {
		name     string
		network  probe.Network
		internal []string
		external []string
		want     string
		wrong    string
	}{
		{"both families", network(lan6, lan), nil, nil, "InternalIP=10.0.0.5 InternalIP=2001:db8::5 Hostname=h1", ""},
		{
			"the preferred default route decides",
			probe.Network{
				Addresses: []probe.Address{address("192.168.1.9", 24, "wlan0"), lan},
				Routes:    []probe.DefaultRoute{{Interface: "eth0", Source: lan.IP, Metric: 100}, {Interface: "wlan0", Source: netip.MustParseAddr("192.168.1.9"), Metric: 600}},
			},
			nil, nil, "InternalIP=10.0.0.5 Hostname=h1", "",
		},
		{
			"a default route without a source",
			probe.Network{
				Addresses: []probe.Address{bridge, with(address("10.0.0.9", 24, "eth0"), func(a *probe.Address) { a.Secondary = true }), lan},
				Routes:    []probe.DefaultRoute{{Interface: "eth0"}},
			},
			nil, nil, "InternalIP=10.0.0.5 Hostname=h1", "",
		},
		{
			"a default route through a bridge of the host's own",
			network(with(address("10.0.0.5", 24, "br-lan"), func(a *probe.Address) { a.Kind = "bridge" })),
			nil, nil, "InternalIP=10.0.0.5 Hostname=h1", "",
		},
		{
			"never a privacy address where there is a lasting one",
			network(with(address("2001:db8::1234", 64, "eth0"), func(a *probe.Address) { a.Temporary = true }), lan6),
			nil, nil, "InternalIP=2001:db8::5 Hostname=h1", "",
		},
		{
			"without a default route never loopback, link-local or containers",
			routeless(
				address("127.0.0.1", 8, "lo"), address("169.254.3.3", 16, "eth1"), address("fe80::1", 64, "eth0"), bridge,
				address("172.18.0.1", 16, "br-0123456789ab"), address("10.88.0.1", 16, "cni-podman0"), address("10.244.0.0", 32, "flannel.1"),
				with(address("10.245.0.0", 32, "overlay"), func(a *probe.Address) { a.Kind = "vxlan" }), address("10.1.1.1", 32, "cali12345"), lan,
			),
			nil, nil, "InternalIP=10.0.0.5 Hostname=h1", "",
		},
		{
			"without a default route a keepalived address comes last",
			routeless(address("10.0.0.250", 32, "eth0"), lan), nil, nil, "InternalIP=10.0.0.5 Hostname=h1", "",
		},
		{
			"without a default route an alias comes last",
			routeless(with(address("10.0.0.250", 24, "eth0"), func(a *probe.Address) { a.Label = "eth0:vip" }), lan),
			nil, nil, "InternalIP=10.0.0.5 Hostname=h1", "",
		},
		{
			"without a default route a live link comes first",
			routeless(with(address("10.1.0.5", 24, "eno1"), func(a *probe.Address) { a.Carrier = false }), lan),
			nil, nil, "InternalIP=10.0.0.5 Hostname=h1", "",
		},
		{"an address being checked for duplicates is none yet", routeless(with(lan6, func(a *probe.Address) { a.Tentative = true })), nil, nil, "Hostname=h1", "no interface has an address"},
		{"only containers' interfaces", routeless(bridge), nil, nil, "Hostname=h1", "no interface has an address"},
		{"an IP as configured", network(lan, address("10.9.0.5", 24, "eth1")), []string{"10.9.0.5"}, nil, "InternalIP=10.9.0.5 Hostname=h1", ""},
		{
			"a CIDR for each family", network(lan, lan6, address("10.9.0.5", 24, "eth1"), address("fd00:9::5", 64, "eth1")),
			[]string{"fd00:9::/32", "10.9.0.0/16"},
			nil, "InternalIP=10.9.0.5 InternalIP=fd00:9::5 Hostname=h1", "",
		},
		{
			"an interface gives its best of each family",
			network(lan, address("10.9.0.250", 32, "eth1"), address("10.9.0.5", 24, "eth1"), address("fd00:9::5", 64, "eth1"), address("fe80::5", 64, "eth1")),
			[]string{"eth1"},
			nil, "InternalIP=10.9.0.5 InternalIP=fd00:9::5 Hostname=h1", "",
		},
		{"a container's bridge if requested", network(lan, bridge), []string{"docker0"}, nil, "InternalIP=172.17.0.1 Hostname=h1", ""},
		{"the first that is there", network(lan), []string{"10.9.0.0/16", "eth0"}, nil, "InternalIP=10.0.0.5 Hostname=h1", "10.9.0.0/16"},
		{"a configured one that is not there", network(lan), []string{"10.9.0.5"}, nil, "Hostname=h1", "10.9.0.5"},
		{"an external IP that no interface holds", network(lan), nil, []string{"203.0.113.7"}, "InternalIP=10.0.0.5 ExternalIP=203.0.113.7 Hostname=h1", ""},
		{
			"an external IP of each family", network(lan), nil,
			[]string{"2001:db8:f::1", "203.0.113.8"},
			"InternalIP=10.0.0.5 ExternalIP=203.0.113.8 ExternalIP=2001:db8:f::1 Hostname=h1", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := status.AddressOptions{Internal: c.internal, External: c.external}
			if err := o.Validate(); err != nil {
				t.Fatal(err)
			}
			addresses, err := status.Addresses(c.network, o, "h1")
			var parts []string
			for _, a := range addresses {
				parts = append(parts, string(a.Type)+"="+a.Address)
			}
			if got := strings.Join(parts, " "); got != c.want {
				t.Errorf("Addresses() = %s, want %s", got, c.want)
			}
			if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("Addresses() = %v, want an error with %q", err, c.wrong)
			}
		})
	}
}

// to returns a route to a control plane through an interface.
func to(ip, source, iface string) probe.TargetRoute {
	w := probe.TargetRoute{To: netip.AddrPortFrom(netip.MustParseAddr(ip), 6443), Interface: iface}
	if source != "" {
		w.Source = netip.MustParseAddr(source)
	}
	return w
}

func noRouteTo(ip, problem string) probe.TargetRoute {
	w := to(ip, "", "")
	w.Problem = problem
	return w
}

// own returns a route to a control plane on this host.
func own(ip, iface string) probe.TargetRoute {
	w := to(ip, ip, iface)
	w.Own = true
	return w
}

// TestAddressesByTheRouteToTheControlPlane has a host with the default route on eth0, and another
// network on eth1.
func TestAddressesByTheRouteToTheControlPlane(t *testing.T) {
	front, back := address("192.0.2.5", 24, "eth0"), address("10.0.0.5", 24, "eth1")
	front6, back6 := address("2001:db8::5", 64, "eth0"), address("fd00:10::5", 64, "eth1")
	with := func(more []probe.Address, ways ...probe.TargetRoute) probe.Network {
		n := network(front, front6)
		n.Addresses = append(n.Addresses, back, back6)
		n.Addresses, n.ControlPlane = append(n.Addresses, more...), ways
		return n
	}
	of := func(ip string, bits int, iface, kind string, change func(*probe.Address)) []probe.Address {
		a := address(ip, bits, iface)
		a.Kind = kind
		if change != nil {
			change(&a)
		}
		return []probe.Address{a}
	}
	const byDefault = "192.0.2.5 (source of the default route via eth0)"
	const byDefault6 = ", 2001:db8::5 (source of the default route via eth0)"
	for _, c := range []struct {
		name    string
		network probe.Network
		want    string
	}{
		{"no control plane elsewhere", with(nil), byDefault + byDefault6},
		{"behind the other interface", with(nil, to("10.1.2.3", "10.0.0.5", "eth1")), "10.0.0.5 (source of the route to 10.1.2.3 via eth1)" + byDefault6},
		{"of IPv6 only", with(nil, to("fd00:20::3", "fd00:10::5", "eth1")), byDefault + ", fd00:10::5 (source of the route to fd00:20::3 via eth1)"},
		{"of both families", with(nil, to("fd00:20::3", "fd00:10::5", "eth1"), to("10.1.2.3", "10.0.0.5", "eth1")), "10.0.0.5 (source of the route to 10.1.2.3 via eth1), fd00:10::5 (source of the route to fd00:20::3 via eth1)"},
		{"of two addresses the first that was said counts", with(nil, to("10.1.2.3", "10.0.0.5", "eth1"), to("192.0.2.3", "192.0.2.5", "eth0")), "10.0.0.5 (source of the route to 10.1.2.3 via eth1)" + byDefault6},
		{"of two addresses the one that there is a way to", with(nil, noRouteTo("172.31.0.3", "network is unreachable"), to("10.1.2.3", "10.0.0.5", "eth1")), "10.0.0.5 (source of the route to 10.1.2.3 via eth1)" + byDefault6},
		{"no way to it", with(nil, noRouteTo("10.1.2.3", "network is unreachable")), byDefault + byDefault6},
		{"a load balancer on this host's loopback", with(nil, own("127.0.0.1", "lo"), own("::1", "lo")), byDefault + byDefault6},
		{"in a container on this host", with(of("172.18.0.1", 16, "br-0123456789ab", "bridge", nil), to("172.18.0.2", "172.18.0.1", "br-0123456789ab")), byDefault + byDefault6},
		{"an address of a service, on this host's kube-ipvs0", with(of("10.96.0.1", 32, "kube-ipvs0", "dummy", nil), own("10.96.0.1", "kube-ipvs0")), byDefault + byDefault6},
		{"over a VPN", with(of("100.64.0.5", 32, "wg0", "wireguard", nil), to("100.64.0.1", "100.64.0.5", "wg0")), "100.64.0.5 (source of the route to 100.64.0.1 via wg0)" + byDefault6},
		{"over a VLAN on a bond", with(of("10.20.7.3", 24, "bond0.207", "vlan", nil), to("10.20.7.1", "10.20.7.3", "bond0.207")), "10.20.7.3 (source of the route to 10.20.7.1 via bond0.207)" + byDefault6},
		{"over a VXLAN of the host's own", with(of("10.30.0.3", 24, "mgmt0", "vxlan", nil), to("10.30.0.1", "10.30.0.3", "mgmt0")), "10.30.0.3 (source of the route to 10.30.0.1 via mgmt0)" + byDefault6},
		{"on this host, at its own address", with(nil, own("10.0.0.5", "eth1")), "10.0.0.5 (the control plane at 10.0.0.5 is on this host, on eth1)" + byDefault6},
		{
			"on this host, at an address that wanders between hosts", with(of("10.0.0.250", 32, "eth1", "device", nil), own("10.0.0.250", "eth1")),
			"10.0.0.5 (the control plane at 10.0.0.250 is on this host, on eth1)" + byDefault6,
		},
		{
			"on this host, at an address that wanders, of the host's network", with(of("10.0.0.250", 24, "eth1", "device", func(a *probe.Address) { a.Secondary = true }), own("10.0.0.250", "eth1")),
			"10.0.0.5 (the control plane at 10.0.0.250 is on this host, on eth1)" + byDefault6,
		},
		{
			"on this host, at an address that wanders and came first, of another network", func() probe.Network {
				n := with(nil, own("198.51.100.9", "eth0"))
				n.Addresses = append(of("198.51.100.9", 24, "eth0", "device", nil), n.Addresses...)
				return n
			}(),
			"192.0.2.5 (the control plane at 198.51.100.9 is on this host, on eth0)" + byDefault6,
		},
		{"on this host, at an address that many have on lo", with(of("10.255.0.1", 32, "lo", "device", nil), own("10.255.0.1", "lo")), byDefault + byDefault6},
		{"on this host, at an address that many have on a dummy", with(of("10.255.0.1", 32, "anycast0", "dummy", nil), own("10.255.0.1", "anycast0")), byDefault + byDefault6},
		{
			"from an address of keepalived's with a label", with(of("10.0.0.250", 24, "eth1", "device", func(a *probe.Address) { a.Label = "eth1:vip" }), to("10.1.2.3", "10.0.0.250", "eth1")),
			"10.0.0.5 (most stable address of eth1, for the route to 10.1.2.3 via eth1)" + byDefault6,
		},
		{
			"from an address of keepalived's of a single host", with(of("fd00:10::250", 128, "eth1", "device", nil), to("fd00:20::3", "fd00:10::250", "eth1")),
			byDefault + ", fd00:10::5 (most stable address of eth1, for the route to fd00:20::3 via eth1)",
		},
		{
			"from a privacy address", with(of("fd00:10::abcd", 64, "eth1", "device", func(a *probe.Address) { a.Temporary = true }), to("fd00:20::3", "fd00:10::abcd", "eth1")),
			byDefault + ", fd00:10::5 (most stable address of eth1, for the route to fd00:20::3 via eth1)",
		},
		{
			"from a second address, as its route says", with(of("10.0.0.6", 24, "eth1", "device", func(a *probe.Address) { a.Secondary = true }), to("10.1.2.3", "10.0.0.6", "eth1")),
			"10.0.0.6 (source of the route to 10.1.2.3 via eth1)" + byDefault6,
		},
		{
			"from the address on lo of a routed host", with(of("10.255.0.5", 32, "lo", "device", nil), to("10.1.2.3", "10.255.0.5", "eth2")),
			"10.255.0.5 (source of the route to 10.1.2.3 via eth2)" + byDefault6,
		},
		{
			"from a container bridge's address, for want of one on the link", with(of("172.17.0.1", 16, "docker0", "bridge", nil), to("10.1.2.3", "172.17.0.1", "ppp0")),
			byDefault + byDefault6,
		},
		{"on the same link, from a link-local address", with(nil, to("fe80::3%eth1", "fe80::9", "eth1")), byDefault + ", fd00:10::5 (most stable address of eth1, for the route to fe80::3%eth1 via eth1)"},
		{"without a source address of the kernel", with(nil, to("10.1.2.3", "", "eth1")), "10.0.0.5 (most stable address of eth1, for the route to 10.1.2.3 via eth1)" + byDefault6},
		{
			"on a link without carrier", func() probe.Network {
				n := with(nil, to("10.1.2.3", "10.0.0.5", "eth1"))
				n.Addresses[2].Carrier = false
				return n
			}(),
			"10.0.0.5 (source of the route to 10.1.2.3 via eth1)" + byDefault6,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			choices, err := status.Choose(c.network, status.AddressOptions{}, "h1")
			var parts []string
			for _, a := range choices {
				if a.Type == corev1.NodeInternalIP {
					parts = append(parts, fmt.Sprintf("%s (%s)", a.Address, a.Reason))
				}
			}
			if got := strings.Join(parts, ", "); got != c.want || err != nil {
				t.Errorf("Choose() = %s, %v, want %s", got, err, c.want)
			}
		})
	}
}

// If keepalived added its address before the host's own, the kernel marks the latter as secondary.
func TestAnAliasThatCameFirstIsNotTheHosts(t *testing.T) {
	vip := with(address("10.0.0.250", 24, "eth0"), func(a *probe.Address) { a.Label = "eth0:vip" })
	lan := with(address("10.0.0.5", 24, "eth0"), func(a *probe.Address) { a.Label, a.Secondary = "eth0", true })
	addresses, err := status.Addresses(network(vip, lan), status.AddressOptions{}, "h1")
	if err != nil || addresses[0].Address != "10.0.0.5" {
		t.Errorf("Addresses() = %v, %v, want 10.0.0.5", addresses, err)
	}
}

func TestChoicesSayWhy(t *testing.T) {
	lan, nat := address("10.0.0.5", 24, "eth0"), address("203.0.113.8", 24, "eth1")
	o := status.AddressOptions{Internal: []string{"10.0.0.0/8"}, External: []string{"2001:db8:f::1", "203.0.113.8"}}
	got, err := status.Choose(network(lan, nat), o, "h1")
	want := []status.Choice{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.5", Interface: "eth0", Reason: "node.address.internal: 10.0.0.0/8"},
		{Type: corev1.NodeExternalIP, Address: "203.0.113.8", Interface: "eth1", Reason: "node.address.external"},
		{Type: corev1.NodeExternalIP, Address: "2001:db8:f::1", Reason: "node.address.external"},
		{Type: corev1.NodeHostName, Address: "h1", Reason: "name of the Node"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Choose() = %+v, %v, want %+v", got, err, want)
	}
	got, err = status.Choose(probe.Network{Addresses: []probe.Address{lan}}, status.AddressOptions{}, "h1")
	if err != nil || got[0].Reason != "no route found; most stable address of eth0" {
		t.Errorf("Choose() without routes = %+v, %v", got, err)
	}
}

// The published addresses must not change while a name is being resolved.
func TestANodeHasNoAddressesWhileTheControlPlanesNameIsResolved(t *testing.T) {
	facts, o := healthy(), policyOptions()
	facts.Network = network(address("10.0.0.5", 24, "eth0"))
	facts.Network.Resolving = true
	if node, _ := status.Node(facts, o, status.Memory{}, noon); len(node.Status.Addresses) != 0 {
		t.Errorf("addresses = %v, want none, which leaves those that are stored", node.Status.Addresses)
	}
	o.Addresses.Internal = []string{"eth0"}
	if node, _ := status.Node(facts, o, status.Memory{}, noon); len(node.Status.Addresses) != 2 {
		t.Errorf("addresses = %v, want those that are configured", node.Status.Addresses)
	}
}
