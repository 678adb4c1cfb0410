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

// Network is what the kernel knows of the host's addresses and ways out.
type Network struct {
	Addresses []Address      // by interface index, then as the kernel lists them
	Routes    []DefaultRoute // default routes of the main table, the preferred one of each family first
	Problem   string         // why it was not read; empty if it was
}

// Address is one address on one interface.
type Address struct {
	IP        netip.Addr
	Bits      int // length of the prefix
	Interface string
	Kind      string // what the kernel calls the link: "device", "bridge", "veth", "dummy", ...
	Label     string // IPv4 only; differs from Interface for an alias such as "eth0:1"

	Up      bool // the interface is switched on
	Carrier bool // its link is there (IFF_LOWER_UP)

	Secondary  bool // IPv4: not the first address of its prefix on the interface
	Temporary  bool // IPv6: a privacy address, replaced every day
	Deprecated bool // beyond its preferred lifetime
	Tentative  bool // not proven unique yet, or proven not to be
}

// DefaultRoute is one way to everywhere.
type DefaultRoute struct {
	IPv6      bool
	Interface string
	Gateway   netip.Addr // invalid on a link without one
	Metric    int
	// Source is the address that the kernel sends from on this route; invalid
	// where it does not say.
	Source netip.Addr
}

// Addresses reads interfaces, addresses and default routes of the network
// namespace that the process runs in. It needs no privileges.
func Addresses() Network {
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
		// An interface may have gone between the two lists.
		if link := byIndex[a.LinkIndex]; link != nil {
			n.Addresses = append(n.Addresses, address(a, link))
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
	return n
}

func address(a netlink.Addr, link netlink.Link) Address {
	ip, _ := netip.AddrFromSlice(a.IP)
	bits, _ := a.Mask.Size()
	attrs := link.Attrs()
	result := Address{
		IP:         ip.Unmap(),
		Bits:       bits,
		Interface:  attrs.Name,
		Kind:       link.Type(),
		Label:      a.Label,
		Up:         attrs.Flags&net.FlagUp != 0,
		Carrier:    attrs.RawFlags&unix.IFF_LOWER_UP != 0,
		Deprecated: a.Flags&unix.IFA_F_DEPRECATED != 0,
		Tentative:  a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) != 0,
	}
	// One bit with two names: IFA_F_SECONDARY and IFA_F_TEMPORARY.
	if a.Flags&unix.IFA_F_SECONDARY != 0 {
		result.Secondary = result.IP.Is4()
		result.Temporary = result.IP.Is6()
	}
	return result
}

func defaultRoutes(family int, links map[int]netlink.Link) ([]DefaultRoute, error) {
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // IPv6 switched off
	}
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var result []DefaultRoute
	for _, r := range routes {
		index, gateway := r.LinkIndex, r.Gw
		if len(r.MultiPath) > 0 {
			index, gateway = r.MultiPath[0].LinkIndex, r.MultiPath[0].Gw
		}
		link := links[index]
		if link == nil || r.Type != unix.RTN_UNICAST {
			continue // a default of type blackhole or unreachable is no way out
		}
		route := DefaultRoute{IPv6: family == netlink.FAMILY_V6, Interface: link.Attrs().Name, Metric: r.Priority}
		if ip, ok := netip.AddrFromSlice(gateway); ok {
			route.Gateway = ip.Unmap()
		}
		if ip, ok := netip.AddrFromSlice(r.Src); ok {
			route.Source = ip.Unmap()
		} else {
			route.Source = source(family, index)
		}
		result = append(result, route)
	}
	slices.SortStableFunc(result, func(a, b DefaultRoute) int { return cmp.Compare(a.Metric, b.Metric) })
	return result, nil
}

// source asks the kernel which address it would send from through an interface,
// by looking up a destination that nothing but a default route covers: 0.0.0.1,
// as in "ip route get 1", and the first address of 2000::/3. Nothing is sent.
func source(family, linkIndex int) netip.Addr {
	destination := net.IPv4(0, 0, 0, 1)
	if family == netlink.FAMILY_V6 {
		destination = net.ParseIP("2000::")
	}
	routes, err := netlink.RouteGetWithOptions(destination, &netlink.RouteGetOptions{OifIndex: linkIndex})
	if err != nil || len(routes) == 0 {
		return netip.Addr{}
	}
	ip, _ := netip.AddrFromSlice(routes[0].Src)
	return ip.Unmap()
}
