package status

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"hostler.io/hostler/internal/field"
)

// AddressOptions select among the host's addresses.
type AddressOptions struct {
	// Internal has at most one selector for each address family: an IP, a CIDR or an interface
	// name. The first matching address of each family is chosen. The default is the source address
	// to the control plane, else the source address of the default route.
	Internal []string
	// External are IPs, at most one of each family. No interface needs to have them. By default
	// there is no ExternalIP.
	External []string
}

// Validate refuses selectors that can never match or are misleading. Each error is a *field.Error.
func (o AddressOptions) Validate() error {
	const internal, external = "node.address.internal", "node.address.external"
	var errs []error
	for _, list := range []struct {
		path  string
		texts []string
		check func(string) (family, error)
	}{{internal, o.Internal, checkSelector}, {external, o.External, checkExternal}} {
		if n := len(list.texts); n > 2 {
			errs = append(errs, field.Errorf(list.path, "%d values; at most one for each address family", n))
		}
		seen := map[family]bool{}
		for i, text := range list.texts {
			f, err := list.check(text)
			switch {
			case err != nil:
				errs = append(errs, field.Errorf(fmt.Sprintf("%s[%d]", list.path, i), "%w", err))
			case f != anyFamily && seen[f]:
				errs = append(errs, field.Errorf(list.path, "two of family %s; at most one for each", f))
			}
			seen[f] = true
		}
	}
	return errors.Join(errs...)
}

// family is an address family; anyFamily is for an interface, which may have both.
type family string

const anyFamily family = ""

func familyOf(ip netip.Addr) family {
	if ip.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

// checkSelector returns the family that a selector can match.
func checkSelector(text string) (family, error) {
	if text != strings.TrimSpace(text) {
		return anyFamily, fmt.Errorf("%q has leading or trailing spaces", text)
	}
	if ip, err := netip.ParseAddr(text); err == nil {
		return checkIP(ip)
	}
	if strings.Contains(text, "/") {
		cidr, err := netip.ParsePrefix(text)
		if err != nil {
			return anyFamily, fmt.Errorf("%q is not a CIDR; write it like 10.0.0.0/8", text)
		}
		return checkCIDR(cidr)
	}
	if strings.Contains(text, ".") && strings.Trim(text, "0123456789.") == "" && strings.Trim(text, ".") != "" {
		return anyFamily, fmt.Errorf("%q is not a whole IPv4 address; write an address like 192.0.2.7, or a network like 192.0.2.0/24", text)
	}
	// The kernel's rules for names, dev_valid_name().
	if text == "" || text == "." || text == ".." || len(text) > 15 || strings.ContainsAny(text, ": \t\n\v\f\r\u00a0") {
		return anyFamily, fmt.Errorf("%q is neither an IP nor a CIDR nor the name of an interface", text)
	}
	return anyFamily, nil
}

// checkExternal returns the family of an ExternalIP.
func checkExternal(text string) (family, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return anyFamily, fmt.Errorf("%q is not an IP address", text)
	}
	return checkIP(ip)
}

func checkIP(ip netip.Addr) (family, error) {
	switch {
	case ip.Is4In6():
		return anyFamily, fmt.Errorf("%s is an IPv4 address; write it as %s", ip, ip.Unmap().WithZone(""))
	case !unicast(ip):
		return anyFamily, fmt.Errorf("%s is loopback, link-local, multicast or unspecified; other hosts cannot reach it", ip)
	case ip.Zone() != "":
		return anyFamily, fmt.Errorf("%s names an interface, which other hosts do not know; write it as %s", ip, ip.WithZone(""))
	}
	return familyOf(ip), nil
}

func checkCIDR(cidr netip.Prefix) (family, error) {
	ip := cidr.Addr()
	switch {
	case ip.Is4In6():
		return anyFamily, fmt.Errorf("%s is meant for IPv4; write it as %s/%d", cidr, ip.Unmap(), max(0, cidr.Bits()-96))
	case cidr != cidr.Masked():
		return anyFamily, fmt.Errorf("%s is an address within %s; write %s or %[2]s", cidr, cidr.Masked(), ip)
	}
	for _, useless := range []string{"127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "0.0.0.0/32", "255.255.255.255/32", "::/127", "fe80::/10", "ff00::/8"} {
		if net := netip.MustParsePrefix(useless); net.Bits() <= cidr.Bits() && net.Contains(ip) {
			return anyFamily, fmt.Errorf("all of %s is loopback, link-local, multicast or unspecified; other hosts cannot reach it", cidr)
		}
	}
	return familyOf(ip), nil
}
