package status_test

import (
	"net/netip"
	"strings"
	"testing"

	"hostler.io/hostler/status"
	"hostler.io/hostler/status/probe"
)

func TestAddressOptionsThatCanNeverFit(t *testing.T) {
	for _, c := range []struct {
		name, selector, message string
	}{
		{"nothing", "", `"" is neither an IP nor a CIDR nor the name of an interface`},
		{"loopback", "127.0.0.1", "other hosts cannot reach it"},
		{"no address", "0.0.0.0", "other hosts cannot reach it"},
		{"multicast", "224.0.0.1", "other hosts cannot reach it"},
		{"link-local with its zone", "fe80::1%eth0", "link-local"},
		{"a zone without effect", "2001:db8::1%eth0", "write it as 2001:db8::1"},
		{"IPv4 in the clothes of IPv6", "::ffff:10.0.0.5", "write it as 10.0.0.5"},
		{"an IPv4 network in the clothes of IPv6", "::ffff:10.0.0.0/104", "write it as 10.0.0.0/8"},
		{"a network with a blank behind it", "10.0.0.0/8 ", "has leading or trailing spaces"},
		{"a network with too long a prefix", "10.0.0.0/33", "is not a CIDR; write it like 10.0.0.0/8"},
		{"a network with a mask", "10.0.0.0/255.0.0.0", "is not a CIDR"},
		{"a network with host bits", "10.0.0.5/24", "write 10.0.0.5 or 10.0.0.0/24"},
		{"a network of loopback", "127.1.0.0/16", "other hosts cannot reach it"},
		{"all that is link-local", "fe80::/10", "other hosts cannot reach it"},
		{"a part of what is multicast", "ff02::/16", "other hosts cannot reach it"},
		{"two words", "a name", "neither an IP nor a CIDR nor the name of an interface"},
		{"a name too long for the kernel", "averyverylongname", "neither an IP"},
		{"a label", "eth0:1", "neither an IP"},
		{"a folder", "..", "neither an IP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := status.AddressOptions{Internal: []string{c.selector}}.Validate()
			if err == nil || !strings.Contains(err.Error(), "node.address.internal[0]: ") || !strings.Contains(err.Error(), c.message) {
				t.Errorf("Validate(%q) = %v, want an error of node.address.internal[0] with %q", c.selector, err, c.message)
			}
			err = status.AddressOptions{External: []string{"192.0.2.1", c.selector}}.Validate()
			if err == nil || !strings.Contains(err.Error(), "node.address.external[1]: ") {
				t.Errorf("Validate(%q) = %v, want an error of node.address.external[1]", c.selector, err)
			}
		})
	}
}

func TestAddressOptionsOfManyValues(t *testing.T) {
	for _, c := range []struct {
		name               string
		internal, external []string
		message            string // empty if it is valid
	}{
		{"an IP and a network of the other family", []string{"10.0.0.5", "fd00::/8"}, nil, ""},
		{"two interfaces", []string{"eth0.100", "wg0"}, nil, ""},
		{"lo, which holds the address of a routed host", []string{"lo"}, nil, ""},
		{"everything", []string{"0.0.0.0/0", "::/0"}, nil, ""},
		{"two networks of one family", []string{"10.0.0.0/8", "192.168.0.0/16"}, nil, "node.address.internal: two of family IPv4"},
		{"an IP and a network of one family", []string{"fd00::5", "2001:db8::/32"}, nil, "node.address.internal: two of family IPv6"},
		{"three interfaces", []string{"a", "b", "c"}, nil, "node.address.internal: 3 values"},
		{"two external IPs of one family", nil, []string{"192.0.2.1", "192.0.2.2"}, "node.address.external: two of family IPv4"},
		{"an external interface", nil, []string{"eth0"}, `node.address.external[0]: "eth0" is not an IP address`},
		{"an external network", nil, []string{"192.0.2.0/24"}, "is not an IP address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := status.AddressOptions{Internal: c.internal, External: c.external}.Validate()
			if (err == nil) != (c.message == "") || err != nil && !strings.Contains(err.Error(), c.message) {
				t.Errorf("Validate() = %v, want %q", err, c.message)
			}
		})
	}
}

// FuzzSelector checks that a host can have a matching address for every accepted selector.
func FuzzSelector(f *testing.F) {
	for _, text := range []string{"eth0", "eth0.100", "10.0.0.5", "fd00::/8", "0.0.0.0/0", "::/0", "::ffff:10.0.0.5", "fe80::1%eth0", "10.0.0.0/8 ", "10.0.0.5/24", "0.0.0.0/31", "::/126"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o := status.AddressOptions{Internal: []string{text}}
		if o.Validate() != nil {
			return
		}
		candidates := []netip.Addr{netip.MustParseAddr("10.0.0.5")}
		if ip, err := netip.ParseAddr(text); err == nil {
			candidates = []netip.Addr{ip}
		} else if cidr, err := netip.ParsePrefix(text); err == nil {
			candidates = []netip.Addr{cidr.Addr(), cidr.Addr().Next(), cidr.Addr().Next().Next(), last(cidr), last(cidr).Prev(), netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")}
		}
		for _, ip := range candidates {
			name := text
			if strings.Contains(text, "/") || len(text) > 15 {
				name = "eth0"
			}
			n := probe.Network{Addresses: []probe.Address{{IP: ip, Bits: ip.BitLen(), Interface: name, Up: true, Carrier: true}}}
			if addresses, err := status.Addresses(n, o, "h1"); err == nil && len(addresses) == 2 && addresses[0].Address == ip.String() {
				return
			}
		}
		t.Errorf("Validate(%q) accepts what none of %v fits", text, candidates)
	})
}

// last returns the last address of a network.
func last(cidr netip.Prefix) netip.Addr {
	bytes := cidr.Addr().AsSlice()
	for i := cidr.Bits(); i < cidr.Addr().BitLen(); i++ {
		bytes[i/8] |= 0x80 >> (i % 8)
	}
	ip, _ := netip.AddrFromSlice(bytes)
	return ip
}
