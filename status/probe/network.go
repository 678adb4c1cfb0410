package probe

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Network has the host's addresses and routes, from the kernel.
type Network struct {
	Addresses []Address      // by interface index, then in the kernel's order
	Routes    []DefaultRoute // the preferred one of each family
	// ControlPlane are the routes to the control plane's addresses, the most important first; none
	// if the control plane is only on this host.
	ControlPlane []TargetRoute
	// Resolving means that the control plane's name has not been resolved yet.
	Resolving bool
	Problem   string // why it was not read; empty if it was
}

// Address is one address on one interface.
type Address struct {
	IP        netip.Addr
	Bits      int // prefix length
	Interface string
	Kind      string // the kernel's type of the link: "device", "bridge", "veth", "dummy", ...
	Label     string // IPv4 only; differs from Interface for an alias such as "eth0:1"

	Up      bool // the interface is enabled
	Carrier bool // it has a carrier (IFF_LOWER_UP)

	Secondary  bool // IPv4: not the first address of its prefix on the interface
	Temporary  bool // IPv6: a privacy address, replaced daily
	Deprecated bool // beyond its preferred lifetime
	Tentative  bool // not proven unique yet, or a duplicate
}

// Addresses reads interfaces, addresses, default routes and the routes to the addresses of a
// control plane, in the network namespace of the process. It needs no privileges.
func Addresses(controlPlane ...netip.AddrPort) Network {
	links, err := netlink.LinkList()
	if err != nil {
		return Network{Problem: fmt.Sprintf("list network interfaces: %v", err)}
	}
	byIndex := make(map[int]netlink.Link, len(links))
	for _, l := range links {
		byIndex[l.Attrs().Index] = l
	}
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return Network{Problem: fmt.Sprintf("list network addresses: %v", err)}
	}
	var n Network
	slices.SortStableFunc(addrs, func(a, b netlink.Addr) int { return cmp.Compare(a.LinkIndex, b.LinkIndex) })
	for _, a := range addrs {
		// An interface may disappear between the two lists.
		if link := byIndex[a.LinkIndex]; link != nil {
			n.Addresses = append(n.Addresses, held(a, link))
		}
	}
	var errs []error
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := defaultRoutes(family, byIndex)
		errs = append(errs, err)
		n.Routes = append(n.Routes, routes...)
	}
	if err := errors.Join(errs...); err != nil {
		n.Problem = err.Error()
	}
	for _, to := range controlPlane {
		n.ControlPlane = append(n.ControlPlane, routeTo(to, n, byIndex))
	}
	return n
}

// held converts an address of an interface.
func held(a netlink.Addr, link netlink.Link) Address {
	bits, _ := a.Mask.Size()
	attrs := link.Attrs()
	result := Address{
		IP:         address(a.IP),
		Bits:       bits,
		Interface:  attrs.Name,
		Kind:       link.Type(),
		Label:      a.Label,
		Up:         attrs.Flags&net.FlagUp != 0,
		Carrier:    attrs.RawFlags&unix.IFF_LOWER_UP != 0,
		Deprecated: a.Flags&unix.IFA_F_DEPRECATED != 0,
		Tentative:  a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0,
	}
	// IFA_F_SECONDARY and IFA_F_TEMPORARY are the same bit.
	if a.Flags&unix.IFA_F_SECONDARY != 0 {
		result.Secondary = result.IP.Is4()
		result.Temporary = result.IP.Is6()
	}
	return result
}
