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
	go func() { ended <- probe.Watch(ctx, changes) }()
	select {
	case <-changes:
	case err := <-ended:
		t.Fatalf("Watch() = %v, want it to go on", err)
	case <-time.After(10 * time.Second):
		t.Fatal("Watch() reported nothing within 10s, want one change at the start")
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Watch() = %v, want %v", err, context.Canceled)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Watch() did not end within 10s of its context")
	}
}

// message builds one netlink message of a type with its first payload bytes.
func message(kind uint16, payload ...byte) []byte {
	payload = append(payload, make([]byte, 12)...)[:12]
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+len(payload)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = append(m, make([]byte, 10)...)
	return append(m, payload...)
}

func TestWorthALook(t *testing.T) {
	toOneNet := message(unix.RTM_NEWROUTE, unix.AF_INET, 24)
	for _, c := range []struct {
		name     string
		datagram []byte
		want     bool
	}{
		{"a route to one net", toOneNet, false},
		{"a default route", message(unix.RTM_DELROUTE, unix.AF_INET6, 0), true},
		{"an address", message(unix.RTM_NEWADDR), true},
		{"an interface", message(unix.RTM_DELLINK), true},
		{"a route to one net, then an address", append(slices.Clone(toOneNet), message(unix.RTM_DELADDR)...), true},
		{"a message cut short", toOneNet[:14], true},
		{"nothing", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := probe.WorthALook(c.datagram); got != c.want {
				t.Errorf("worthALook() = %t, want %t", got, c.want)
			}
		})
	}
}

func FuzzWorthALook(f *testing.F) {
	f.Add(message(unix.RTM_NEWROUTE, unix.AF_INET, 24))
	f.Add([]byte{255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, datagram []byte) {
		if !probe.WorthALook(datagram) && len(datagram) < unix.NLMSG_HDRLEN {
			t.Errorf("worthALook(%v) = false, want what cannot be told to count", datagram)
		}
	})
}
