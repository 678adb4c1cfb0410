package status_test

import (
	"net/netip"
	"strings"
	"testing"

	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// address is one on a live device.
func address(ip string, bits int, iface string) probe.Address {
	return probe.Address{IP: netip.MustParseAddr(ip), Bits: bits, Interface: iface, Kind: "device", Up: true, Carrier: true}
}

// network has addresses, and a default route from the first of each family.
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
			"a default route that tells no source",
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
		{"a container's bridge if asked for", network(lan, bridge), []string{"docker0"}, nil, "InternalIP=172.17.0.1 Hostname=h1", ""},
		{"the first that is there", network(lan), []string{"10.9.0.0/16", "eth0"}, nil, "InternalIP=10.0.0.5 Hostname=h1", "10.9.0.0/16"},
		{"a configured one that is not there", network(lan), []string{"10.9.0.5"}, nil, "Hostname=h1", "10.9.0.5"},
		{"an external IP that no interface holds", network(lan), nil, []string{"203.0.113.7"}, "InternalIP=10.0.0.5 ExternalIP=203.0.113.7 Hostname=h1", ""},
		{
			"an external interface", network(lan, address("203.0.113.8", 24, "eth1")), nil,
			[]string{"2001:db8:f::1", "eth1"},
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

func TestAddressOptionsThatCanNeverFit(t *testing.T) {
	for _, entry := range []string{"127.0.0.1", "fe80::1%eth0", "::ffff:127.0.0.1", "0.0.0.0", "224.0.0.1", "10.0.0.0/33", "", "a name", "averyverylongname", "eth0:1"} {
		t.Run(entry, func(t *testing.T) {
			for _, o := range []status.AddressOptions{{Internal: []string{entry}}, {External: []string{entry}}} {
				if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "node.address.") {
					t.Errorf("Validate(%q) = %v, want an error that names the field", entry, err)
				}
			}
		})
	}
}
