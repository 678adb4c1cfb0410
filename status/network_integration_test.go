//go:build integration

package status_test

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

// uplink has two network cards; the first has the default routes.
func (w wires) uplink() {
	w.t.Helper()
	w.card("eth0", "eth1")
	w.address("eth0", "198.51.100.5/24")
	w.address("eth0", "2001:db8::5/64")
	w.address("eth1", "10.0.0.5/24")
	w.address("eth1", "fd00:10::5/64")
	w.route("0.0.0.0/0 via 198.51.100.1 dev eth0")
	w.route("::/0 via 2001:db8::1 dev eth0")
}

func vip(label string) func(*netlink.Addr) {
	return func(a *netlink.Addr) { a.Label, a.Flags = label, unix.IFA_F_NOPREFIXROUTE|unix.IFA_F_NODAD }
}

func TestAddressesOfWiredHosts(t *testing.T) {
	const four, six = "198.51.100.5 on eth0: source of the default route via eth0", "2001:db8::5 on eth0: source of the default route via eth0"
	const back = "10.0.0.5 on eth1: source of the route to 10.1.2.3 via eth1"
	const back6 = "fd00:10::5 on eth1: source of the route to fd00:20::3 via eth1"
	const nothing = "no interface has an address that other hosts can reach; configure the network, or set node.address.internal"
	for _, c := range []struct {
		name         string
		build        func(w wires)
		controlPlane []string
		want         string
	}{
		{"no address at all", func(wires) {}, nil, nothing},
		{"a control plane behind the default routes", wires.uplink, []string{"203.0.113.3", "2001:db8:f::3"}, "198.51.100.5 on eth0: source of the route to 203.0.113.3 via eth0; 2001:db8::5 on eth0: source of the route to 2001:db8:f::3 via eth0"},
		{"a control plane on the other card's network", wires.uplink, []string{"10.0.0.3"}, "10.0.0.5 on eth1: source of the route to 10.0.0.3 via eth1; " + six},
		{"a control plane behind the other card, of IPv4", func(w wires) { w.uplink(); w.route("10.1.0.0/16 via 10.0.0.1 dev eth1") }, []string{"10.1.2.3"}, back + "; " + six},
		{"a control plane behind the other card, of IPv6", func(w wires) { w.uplink(); w.route("fd00:20::/32 via fd00:10::1 dev eth1") }, []string{"fd00:20::3"}, four + "; " + back6},
		{"a control plane that nothing leads to", func(w wires) { w.uplink(); w.route("10.1.0.0/16 type 7") }, []string{"10.1.2.3"}, four + "; " + six}, // unreachable
		{"a control plane in a black hole", func(w wires) { w.uplink(); w.route("10.1.0.0/16 type 6") }, []string{"10.1.2.3"}, four + "; " + six},
		{"a control plane on this host's loopback", wires.uplink, []string{"127.0.0.1", "::1"}, four + "; " + six},
		{"a control plane on this host", wires.uplink, []string{"10.0.0.5"}, "10.0.0.5 on eth1: the control plane at 10.0.0.5 is on this host, on eth1; " + six},
		{
			"a control plane whose address keepalived has brought here",
			func(w wires) {
				w.uplink()
				w.address("eth1", "10.0.0.250/32", vip("eth1:vip"))
				w.address("eth1", "fd00:10::250/128", vip(""))
			},
			[]string{"10.0.0.250", "fd00:10::250"},
			"10.0.0.5 on eth1: the control plane at 10.0.0.250 is on this host, on eth1; fd00:10::5 on eth1: the control plane at fd00:10::250 is on this host, on eth1",
		},
		{
			"the same on another interface",
			func(w wires) { w.uplink(); w.card("eth2"); w.address("eth2", "10.0.0.250/32", vip("eth2")) },
			[]string{"10.0.0.250"},
			four + "; " + six,
		},
		{
			"the same on a macvlan of keepalived's, which knows its network",
			func(w wires) {
				w.uplink()
				w.add(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "vrrp.51", ParentIndex: w.link("eth1").Attrs().Index}, Mode: netlink.MACVLAN_MODE_PRIVATE})
				w.address("vrrp.51", "10.0.0.250/24")
			},
			[]string{"10.0.0.250"},
			four + "; " + six,
		},
		{
			"an address of keepalived's that came before the host's own",
			func(w wires) {
				w.card("eth0")
				w.address("eth0", "198.51.100.250/24", func(a *netlink.Addr) { a.Label = "eth0:vip" })
				w.address("eth0", "198.51.100.5/24")
				w.route("0.0.0.0/0 via 198.51.100.1 dev eth0")
			},
			nil, "198.51.100.5 on eth0: most stable address of eth0, for the default route via eth0",
		},
		{
			"a rule that sends all by another table",
			func(w wires) {
				w.uplink()
				w.route("0.0.0.0/0 via 10.0.0.1 dev eth1 table 100")
				w.route("::/0 via fd00:10::1 dev eth1 table 100")
				w.rule(func(r *netlink.Rule) { r.Table = 100 })
			},
			[]string{"10.1.2.3", "fd00:20::3"},
			back + "; " + back6,
		},
		{
			"a default route in another table alone, without a control plane",
			func(w wires) {
				w.card("eth0", "eth1")
				w.address("eth0", "198.51.100.5/24")
				w.address("eth1", "10.0.0.5/24")
				w.route("0.0.0.0/0 via 10.0.0.1 dev eth1 table 100")
				w.rule(func(r *netlink.Rule) { r.Table = 100 })
			},
			nil, "10.0.0.5 on eth1: source of the default route via eth1",
		},
		{
			"a rule for the control plane's port",
			func(w wires) {
				w.uplink()
				w.route("0.0.0.0/0 via 10.0.0.1 dev eth1 table 100")
				w.route("::/0 via fd00:10::1 dev eth1 table 100")
				w.rule(func(r *netlink.Rule) {
					r.Table, r.IPProto, r.Dport = 100, unix.IPPROTO_TCP, netlink.NewRulePortRange(6443, 6443)
				})
			},
			[]string{"10.1.2.3", "fd00:20::3"},
			back + "; " + back6,
		},
		{
			"a rule for packets that somebody has marked",
			func(w wires) {
				w.uplink()
				w.route("0.0.0.0/0 via 10.0.0.1 dev eth1 table 100")
				w.rule(func(r *netlink.Rule) { r.Table, r.Mark = 100, 1 })
			},
			[]string{"203.0.113.3"},
			"198.51.100.5 on eth0: source of the route to 203.0.113.3 via eth0; " + six,
		},
		{
			"two default routes, of which the metric decides",
			func(w wires) {
				w.card("eth0", "eth1")
				w.address("eth0", "198.51.100.5/24")
				w.address("eth1", "10.0.0.5/24")
				w.route("0.0.0.0/0 via 198.51.100.1 dev eth0 metric 200")
				w.route("0.0.0.0/0 via 10.0.0.1 dev eth1 metric 100")
			},
			nil, "10.0.0.5 on eth1: source of the default route via eth1",
		},
		{
			"a black hole behind the default route",
			func(w wires) {
				w.card("eth0", "eth1")
				w.address("eth0", "198.51.100.5/24")
				w.address("eth1", "10.0.0.5/24")
				w.route("0.0.0.0/0 type 6 metric 4000")
				w.route("0.0.0.0/0 via 10.0.0.1 dev eth1 metric 100")
			},
			nil, "10.0.0.5 on eth1: source of the default route via eth1",
		},
		{
			"a black hole for a default route",
			func(w wires) { w.card("eth0"); w.address("eth0", "198.51.100.5/24"); w.route("0.0.0.0/0 type 6") },
			[]string{"203.0.113.3"},
			"198.51.100.5 on eth0: no route found; most stable address of eth0",
		},
		{
			"a VPN that covers all in two halves",
			func(w wires) {
				w.uplink()
				w.card("vpn0")
				w.address("vpn0", "10.8.0.2/24")
				w.route("0.0.0.0/1 dev vpn0")
				w.route("128.0.0.0/1 dev vpn0")
			},
			nil, four + "; " + six,
		},
		{
			"a VPN to the control plane, from one end to the other",
			func(w wires) {
				w.uplink()
				w.card("vpn0")
				w.address("vpn0", "10.8.0.2/32", func(a *netlink.Addr) { _, a.Peer, _ = net.ParseCIDR("10.8.0.1/32") })
			},
			[]string{"10.8.0.1"},
			"10.8.0.2 on vpn0: source of the route to 10.8.0.1 via vpn0; " + six,
		},
		{
			"a bridge of the host's own beside those of containers",
			func(w wires) {
				w.card("eth0")
				for _, name := range []string{"br0", "docker0", "cni0"} {
					w.add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}})
				}
				w.must(netlink.LinkSetMaster(w.link("eth0"), w.link("br0")))
				w.address("docker0", "172.17.0.1/16")
				w.address("cni0", "10.85.0.1/16")
				w.address("br0", "198.51.100.5/24")
				w.route("0.0.0.0/0 via 198.51.100.1 dev br0")
			},
			[]string{"172.17.0.2"},
			"198.51.100.5 on br0: source of the default route via br0",
		},
		{
			"bridges of containers only",
			func(w wires) {
				w.add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "docker0"}})
				w.address("docker0", "172.17.0.1/16")
			},
			nil, nothing,
		},
		{
			"a macvlan of the host's own",
			func(w wires) {
				w.card("eth0")
				w.add(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "lan0", ParentIndex: w.link("eth0").Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE})
				w.address("lan0", "198.51.100.5/24")
				w.route("0.0.0.0/0 via 198.51.100.1 dev lan0")
			},
			nil, "198.51.100.5 on lan0: source of the default route via lan0",
		},
		{
			"addresses that many hosts have, on lo and on an interface without a wire",
			func(w wires) {
				w.card("eth0")
				w.add(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "anycast0"}})
				w.address("lo", "10.255.0.1/32")
				w.address("anycast0", "10.255.0.2/32")
				w.address("anycast0", "fd00:255::2/128")
				w.address("eth0", "198.51.100.5/24")
				w.address("eth0", "2001:db8::5/64")
			},
			[]string{"10.255.0.1", "10.255.0.2", "fd00:255::2"},
			"198.51.100.5 on eth0: no route found; most stable address of eth0; 2001:db8::5 on eth0: no route found; most stable address of eth0",
		},
		{
			"a routed host, whose address is on lo",
			func(w wires) {
				w.card("eth0", "eth1", "mgmt0")
				w.address("lo", "10.255.0.5/32")
				w.address("mgmt0", "192.0.2.5/24")
				w.address("eth0", "169.254.0.5/31")
				w.route("0.0.0.0/0 via 169.254.0.4 dev eth0 src 10.255.0.5")
			},
			nil, "10.255.0.5 on lo: source of the default route via eth0",
		},
		{
			"a link without an address, for which the kernel takes a bridge's of containers",
			func(w wires) {
				w.add(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "docker0"}})
				w.address("docker0", "172.17.0.1/16")
				w.card("eth0", "eth1")
				w.route("0.0.0.0/0 dev eth0")
				w.address("eth1", "10.0.0.5/24")
			},
			nil, "10.0.0.5 on eth1: no route found; most stable address of eth1",
		},
		{
			"the cable of the way to the control plane pulled",
			func(w wires) {
				w.uplink()
				w.must(netlink.LinkSetDown(w.link("eth1-far")))
			},
			[]string{"10.0.0.3"},
			"10.0.0.5 on eth1: source of the route to 10.0.0.3 via eth1; " + six,
		},
		{
			"an IPv6 address that is not to be used any more, and one that is not proven yet",
			func(w wires) {
				w.card("eth0")
				w.sysctl("eth0", "dad_transmits", "100")
				w.address("eth0", "2001:db8::1/64", func(a *netlink.Addr) { a.ValidLft = 3600 }) // deprecated
				w.address("eth0", "2001:db8::2/64", func(a *netlink.Addr) { a.Flags = 0 })       // tentative
				w.address("eth0", "2001:db8::5/64")
				w.route("::/0 via fe80::1 dev eth0")
			},
			[]string{"2001:db8::9"},
			"2001:db8::5 on eth0: source of the route to 2001:db8::9 via eth0",
		},
		{
			"an IPv6 address that is not proven yet, alone",
			func(w wires) {
				w.card("eth0")
				w.sysctl("eth0", "dad_transmits", "100")
				w.address("eth0", "2001:db8::2/64", func(a *netlink.Addr) { a.Flags = 0 })
			},
			nil, nothing,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWires(t)
			c.build(w)
			if got := w.chosen(status.AddressOptions{}, c.controlPlane...); got != c.want {
				t.Errorf("Choose() = %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestAPrivacyAddressIsNotTheNodes makes the kernel prefer one, as on a desktop.
func TestAPrivacyAddressIsNotTheNodes(t *testing.T) {
	w := newWires(t)
	w.card("eth0")
	w.sysctl("eth0", "dad_transmits", "0")
	w.sysctl("eth0", "use_tempaddr", "2")
	w.address("eth0", "2001:db8::5/64", func(a *netlink.Addr) { a.Flags |= unix.IFA_F_MANAGETEMPADDR })
	w.route("::/0 via fe80::1 dev eth0")
	prefers := func() bool {
		n := probe.Addresses(netip.MustParseAddrPort("[2001:db8:f::3]:6443"))
		for _, a := range n.Addresses {
			if a.Temporary && a.IP == n.ControlPlane[0].Source {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(5 * time.Minute); !prefers(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the kernel prefers no privacy address: %+v", probe.Addresses())
		}
	}
	want := "2001:db8::5 on eth0: most stable address of eth0, for the route to 2001:db8:f::3 via eth0"
	if got := w.chosen(status.AddressOptions{}, "2001:db8:f::3"); got != want {
		t.Errorf("Choose() = %s\nwant %s", got, want)
	}
}

func TestConfiguredAddressesOfAWiredHost(t *testing.T) {
	w := newWires(t)
	w.uplink()
	for selectors, want := range map[string]string{
		"eth1":                     "10.0.0.5 on eth1: node.address.internal: eth1; fd00:10::5 on eth1: node.address.internal: eth1",
		"10.0.0.0/8":               "10.0.0.5 on eth1: node.address.internal: 10.0.0.0/8",
		"fd00::/8 198.51.100.5":    "198.51.100.5 on eth0: node.address.internal: 198.51.100.5; fd00:10::5 on eth1: node.address.internal: fd00::/8",
		"eth1-far":                 "node.address.internal: no interface has an address for eth1-far",
		"198.51.100.5 2001:db8::9": "198.51.100.5 on eth0: node.address.internal: 198.51.100.5; node.address.internal: no interface has an address for 2001:db8::9",
	} {
		// The configuration wins, wherever the control plane is.
		if got := w.chosen(status.AddressOptions{Internal: strings.Fields(selectors)}, "203.0.113.3"); got != want {
			t.Errorf("Choose(%s) = %s\nwant %s", selectors, got, want)
		}
	}
}

func TestAddressesThatAppearLateAndDisappear(t *testing.T) {
	w := newWires(t)
	o := status.AddressOptions{}
	const nothing = "no interface has an address"
	step := func(when, want string) {
		t.Helper()
		if got := w.chosen(o, "10.1.2.3"); !strings.HasPrefix(got, want) || want == "" {
			t.Errorf("%s: Choose() = %s, want %s", when, got, want)
		}
	}
	step("before anything is there", nothing)
	w.card("eth0", "eth1")
	step("with link-local addresses only", nothing)
	w.address("eth0", "198.51.100.5/24")
	step("with DHCP's address", "198.51.100.5 on eth0: no route found")
	w.route("0.0.0.0/0 via 198.51.100.1 dev eth0")
	step("with DHCP's route", "198.51.100.5 on eth0: source of the route to 10.1.2.3 via eth0")
	w.address("eth1", "10.0.0.5/24")
	w.route("10.1.0.0/16 via 10.0.0.1 dev eth1")
	step("with the network of the control plane", "10.0.0.5 on eth1: source of the route to 10.1.2.3 via eth1")
	w.must(netlink.LinkSetDown(w.link("eth1")))
	step("with that switched off", "198.51.100.5 on eth0: source of the route to 10.1.2.3 via eth0")
	w.must(netlink.LinkDel(w.link("eth0")))
	step("with all of it gone", nothing)
}
