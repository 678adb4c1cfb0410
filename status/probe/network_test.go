package probe_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/status/probe"
)

func TestAddressesOfThisHost(t *testing.T) {
	n := probe.Addresses()
	if n.Problem != "" {
		t.Fatalf("Addresses() = %+v, want no problem", n)
	}
	i := slices.IndexFunc(n.Addresses, func(a probe.Address) bool { return a.IP == netip.MustParseAddr("127.0.0.1") })
	if i < 0 {
		t.Fatalf("Addresses() = %+v, want 127.0.0.1 among them", n)
	}
	if a := n.Addresses[i]; a.Interface != "lo" || a.Bits != 8 || !a.Up || !a.Carrier || a.Tentative {
		t.Errorf("Addresses() = %+v for loopback, want it up, on lo, with 8 bits", a)
	}
	for _, route := range n.Routes {
		if route.Interface == "" || route.Source.Is6() && !route.IPv6 {
			t.Errorf("Addresses() has default route %+v, want an interface and a source of its family", route)
		}
	}
}

func TestWatchReportsOnceAtTheStartAndEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- probe.Watch(ctx, nowhere, changes) }()
	select {
	case <-changes:
	case err := <-ended:
		t.Fatalf("Watch() = %v, want it to continue", err)
	case <-time.After(5 * time.Minute):
		t.Fatal("Watch() reported nothing, want one change at the start")
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch() = %v, want %v", err, context.Canceled)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("Watch() did not end within minutes of its context")
	}
}

// nowhere returns no destinations.
func nowhere() []netip.Addr { return nil }

// message returns a netlink message of that type.
func message(kind uint16, payload ...byte) []byte {
	payload = append(payload, make([]byte, max(0, unix.SizeofRtMsg-len(payload)))...)
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(payload)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = append(m, make([]byte, 10)...)
	return append(m, payload...)
}

// route returns a message about a changed route, with as many attributes before the destination as
// the kernel sends.
func route(kind uint16, to string) []byte {
	prefix := netip.MustParsePrefix(to)
	family := byte(unix.AF_INET6)
	if prefix.Addr().Is4() {
		family = unix.AF_INET
	}
	payload := append([]byte{family, byte(prefix.Bits())}, make([]byte, unix.SizeofRtMsg-2)...)
	attribute := func(kind uint16, value []byte) {
		payload = binary.NativeEndian.AppendUint16(payload, uint16(unix.SizeofRtAttr+len(value)))
		payload = append(binary.NativeEndian.AppendUint16(payload, kind), value...)
		for len(payload)%4 != 0 {
			payload = append(payload, 0)
		}
	}
	attribute(unix.RTA_TABLE, []byte{254, 0, 0, 0})
	attribute(unix.RTA_PREF, []byte{1}) // its value is padded
	if prefix.Bits() > 0 {
		attribute(unix.RTA_DST, prefix.Addr().AsSlice())
	}
	return message(kind, payload...)
}

func TestIsRelevant(t *testing.T) {
	wanted := func() []netip.Addr {
		return []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::3")}
	}
	elsewhere := route(unix.RTM_NEWROUTE, "192.0.2.0/24")
	for _, c := range []struct {
		name     string
		datagram []byte
		want     bool
	}{
		{"a route to where nobody wants to go", elsewhere, false},
		{"two of them", append(slices.Clone(elsewhere), route(unix.RTM_DELROUTE, "2001:db8:1::/48")...), false},
		{"a route to a host next to the control plane", route(unix.RTM_NEWROUTE, "10.1.2.2/32"), false},
		{"a route that covers the control plane", route(unix.RTM_NEWROUTE, "10.0.0.0/8"), true},
		{"a route to the control plane alone", route(unix.RTM_DELROUTE, "2001:db8::3/128"), true},
		{"one of those behind another", append(slices.Clone(elsewhere), route(unix.RTM_DELROUTE, "10.1.2.0/24")...), true},
		{"a default route", route(unix.RTM_DELROUTE, "::/0"), true},
		{"an address", message(unix.RTM_NEWADDR), true},
		{"an interface", message(unix.RTM_DELLINK), true},
		{"a rule", message(unix.RTM_NEWRULE), true},
		{"a route to elsewhere, then an address", append(slices.Clone(elsewhere), message(unix.RTM_DELADDR)...), true},
		{"a message cut short", elsewhere[:14], true},
		{"a route whose destination is cut short", elsewhere[:len(elsewhere)-2], true},
		{"a route without a destination", message(unix.RTM_NEWROUTE, unix.AF_INET, 24), true},
		{"nothing", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := probe.IsRelevant(c.datagram, wanted); got != c.want {
				t.Errorf("isRelevant() = %t, want %t", got, c.want)
			}
		})
	}
}

// On a router with a full table, routes change all day.
func TestRoutesToElsewhereCostNoMemory(t *testing.T) {
	datagram := route(unix.RTM_NEWROUTE, "192.0.2.0/24")
	list := []netip.Addr{netip.MustParseAddr("10.1.2.3")}
	wanted := func() []netip.Addr { return list }
	if n := testing.AllocsPerRun(100, func() { probe.IsRelevant(datagram, wanted) }); n != 0 {
		t.Errorf("isRelevant() of a route allocates %v times, want none", n)
	}
}

func FuzzIsRelevant(f *testing.F) {
	f.Add(route(unix.RTM_NEWROUTE, "192.0.2.0/24"))
	f.Add(route(unix.RTM_DELROUTE, "::/0"))
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		if !probe.IsRelevant(datagram, nowhere) && len(datagram) < unix.NLMSG_HDRLEN {
			t.Errorf("isRelevant(%v) = false, want true for an unknown datagram", datagram)
		}
	})
}
