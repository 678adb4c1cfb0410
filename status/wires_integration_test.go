//go:build integration

package status_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/test/lab"
)

// wires is a test's network namespace, on the thread of the test.
type wires struct{ t *testing.T }

func newWires(t *testing.T) wires {
	t.Helper()
	lab.InNetwork(t)
	w := wires{t}
	w.up("lo")
	return w
}

func (w wires) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w wires) link(name string) netlink.Link {
	w.t.Helper()
	l, err := netlink.LinkByName(name)
	w.must(err)
	return l
}

func (w wires) up(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.must(netlink.LinkSetUp(w.link(name)))
	}
}

// card creates interfaces with a carrier.
func (w wires) card(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-far"}))
		w.up(name, name+"-far")
	}
}

func (w wires) add(l netlink.Link) {
	w.t.Helper()
	w.must(netlink.LinkAdd(l))
	w.up(l.Attrs().Name)
}

// address adds an address; change may modify it.
func (w wires) address(iface, cidr string, change ...func(*netlink.Addr)) {
	w.t.Helper()
	a, err := netlink.ParseAddr(cidr)
	w.must(err)
	if a.IP.To4() == nil {
		a.Flags = unix.IFA_F_NODAD // usable at once
	}
	for _, c := range change {
		c(a)
	}
	w.must(netlink.AddrAdd(w.link(iface), a))
}

// route adds a route: "TO [via GATEWAY] [dev IFACE] [src IP] [metric N] [table N] [type N]".
func (w wires) route(words string) {
	w.t.Helper()
	f := strings.Fields(words)
	_, to, err := net.ParseCIDR(f[0])
	w.must(err)
	r := &netlink.Route{Dst: to, Family: netlink.FAMILY_V4}
	if to.IP.To4() == nil {
		r.Family = netlink.FAMILY_V6
	}
	for i := 1; i+1 < len(f); i += 2 {
		switch value := f[i+1]; f[i] {
		case "via":
			r.Gw = net.ParseIP(value)
		case "dev":
			r.LinkIndex = w.link(value).Attrs().Index
		case "src":
			r.Src = net.ParseIP(value)
		case "metric":
			_, err = fmt.Sscan(value, &r.Priority)
		case "table":
			_, err = fmt.Sscan(value, &r.Table)
		case "type":
			_, err = fmt.Sscan(value, &r.Type)
		}
		w.must(err)
	}
	w.must(netlink.RouteAdd(r))
}

func (w wires) rule(change func(*netlink.Rule)) {
	w.t.Helper()
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		r := netlink.NewRule()
		r.Family, r.Priority = family, 100
		change(r)
		w.must(netlink.RuleAdd(r))
	}
}

// sysctl sets an IPv6 setting of an interface.
func (w wires) sysctl(iface, key, value string) {
	w.t.Helper()
	w.must(os.WriteFile("/proc/sys/net/ipv6/conf/"+iface+"/"+key, []byte(value), 0))
}

// chosen reads the namespace, and returns the Node's addresses with the reasons.
func (w wires) chosen(o status.AddressOptions, controlPlane ...string) string {
	w.t.Helper()
	var to []netip.AddrPort
	for _, ip := range controlPlane {
		to = append(to, netip.AddrPortFrom(netip.MustParseAddr(ip), 6443))
	}
	n := probe.Addresses(to...)
	if n.Problem != "" {
		w.t.Fatalf("Addresses() = %+v, want no problem", n)
	}
	choices, err := status.Choose(n, o, "h1")
	var parts []string
	for _, c := range choices {
		if c.Type == corev1.NodeInternalIP {
			parts = append(parts, fmt.Sprintf("%s on %s: %s", c.Address, c.Interface, c.Reason))
		}
	}
	if err != nil {
		parts = append(parts, err.Error())
	}
	return strings.Join(parts, "; ")
}
