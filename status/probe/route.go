package probe

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// DefaultRoute is a route for all destinations without another route.
type DefaultRoute struct {
	IPv6      bool
	Interface string
	Gateway   netip.Addr // invalid if there is none
	Metric    int
	// Source is the kernel's source address for this route; invalid if unknown.
	Source netip.Addr
}

// TargetRoute is the kernel's route to one address.
type TargetRoute struct {
	To        netip.AddrPort
	Interface string     // outgoing; for an address of this host, the interface that has it
	Gateway   netip.Addr // invalid if there is none
	Source    netip.Addr // source address; invalid if unknown
	Own       bool       // To is an address of this host itself
	Problem   string     // why there is no route; empty if there is one
}

// routeTo requests the kernel's route for a connection to that address, which depends on its
// routing rules and tables. It sends no packets.
func routeTo(to netip.AddrPort, n Network, links map[int]netlink.Link) TargetRoute {
	w := TargetRoute{To: to}
	through := 0
	for index, link := range links {
		if link.Attrs().Name == to.Addr().Zone() {
			through = index // a link-local address belongs to one link
		}
	}
	a, err := queryRoute(to, through, 0)
	if err != nil {
		w.Problem = err.Error()
		return w
	}
	w.Gateway, w.Source, w.Own = a.gateway, a.source, a.kind == unix.RTN_LOCAL
	if link := links[a.link]; link != nil {
		w.Interface = link.Attrs().Name
	}
	// The kernel returns lo. It adds the route of an IPv6 address slightly later than the address.
	own := func(a Address) bool {
		zone := to.Addr().Zone()
		return a.IP == to.Addr().WithZone("") && (zone == "" || zone == a.Interface)
	}
	if i := slices.IndexFunc(n.Addresses, own); i >= 0 {
		w.Own, w.Interface = true, n.Addresses[i].Interface
	}
	return w
}

// defaultRoutes lists the default routes of the main table. The first one is the route that the
// kernel's rules select, even from another table.
func defaultRoutes(family int, links map[int]netlink.Link) ([]DefaultRoute, error) {
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
	if unsupported(err) {
		return nil, nil // IPv6 is disabled
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
			continue // a blackhole or unreachable default route leads nowhere
		}
		route := DefaultRoute{IPv6: family == netlink.FAMILY_V6, Interface: link.Attrs().Name, Metric: r.Priority}
		if ip, ok := netip.AddrFromSlice(gateway); ok {
			route.Gateway = ip.Unmap()
		}
		if ip, ok := netip.AddrFromSlice(r.Src); ok {
			route.Source = ip.Unmap()
		} else if a, err := queryRoute(everywhere(family), index, 0); err == nil {
			route.Source = a.source
		}
		result = append(result, route)
	}
	slices.SortStableFunc(result, func(a, b DefaultRoute) int { return cmp.Compare(a.Metric, b.Metric) })
	return withTaken(result, family, links), nil
}

// withTaken moves the default route that the kernel uses now to the front.
func withTaken(routes []DefaultRoute, family int, links map[int]netlink.Link) []DefaultRoute {
	to := everywhere(family)
	entry, err := queryRoute(to, 0, unix.RTM_F_FIB_MATCH)
	if err != nil || entry.bits != 0 { // a VPN may use two routes with half of all addresses each, which are not default routes
		return routes
	}
	a, err := queryRoute(to, 0, 0)
	if err != nil || a.kind != unix.RTN_UNICAST || links[a.link] == nil {
		return routes
	}
	taken := DefaultRoute{IPv6: family == netlink.FAMILY_V6, Interface: links[a.link].Attrs().Name, Gateway: a.gateway, Metric: entry.metric, Source: a.source}
	same := func(r DefaultRoute) bool { return r.Interface == taken.Interface && r.Gateway == taken.Gateway }
	if i := slices.IndexFunc(routes, same); i >= 0 {
		taken.Metric = routes[i].Metric
		routes = slices.Delete(routes, i, i+1)
	}
	return slices.Insert(routes, 0, taken)
}

// everywhere returns an address that only a default route matches: 0.0.0.1, as in "ip route get 1",
// or the first address of 2000::/3.
func everywhere(family int) netip.AddrPort {
	if family == netlink.FAMILY_V6 {
		return netip.AddrPortFrom(netip.MustParseAddr("2000::"), 0)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{0, 0, 0, 1}), 0)
}

// reply is the kernel's route to a destination.
type reply struct {
	kind            uint8 // of the route: RTN_UNICAST, RTN_LOCAL
	bits            uint8 // length of the matched prefix, if requested
	metric          int
	link            int
	gateway, source netip.Addr
}

// queryRoute requests the route to a destination. If it has a port, the route is for TCP to that
// port, because routing rules may depend on that. If link is not 0, the route must use that link.
// An error says why there is no route.
//
// netlink.RouteGet does not support ports. Kernels before 4.18 ignore them.
func queryRoute(to netip.AddrPort, link int, flags uint32) (reply, error) {
	ip := to.Addr()
	message := &nl.RtMsg{}
	message.Family, message.Dst_len, message.Flags = unix.AF_INET6, uint8(ip.BitLen()), flags
	if ip.Is4() {
		message.Family = unix.AF_INET
	}
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.RTA_DST, ip.AsSlice()))
	if link != 0 {
		request.AddData(nl.NewRtAttr(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, uint32(link))))
	}
	if port := to.Port(); port != 0 {
		request.AddData(nl.NewRtAttr(unix.RTA_IP_PROTO, []byte{unix.IPPROTO_TCP}))
		request.AddData(nl.NewRtAttr(unix.RTA_DPORT, binary.BigEndian.AppendUint16(nil, port)))
	}
	replies, err := request.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
	switch {
	case err != nil:
		return reply{}, err
	case len(replies) == 0 || len(replies[0]) < unix.SizeofRtMsg:
		return reply{}, errors.New("no answer from the kernel")
	}
	return parseRoute(replies[0])
}

// parseRoute parses an RTM_NEWROUTE message.
func parseRoute(message []byte) (reply, error) {
	head := nl.DeserializeRtMsg(message)
	a := reply{kind: head.Type, bits: head.Dst_len}
	attributes, err := nl.ParseRouteAttr(message[unix.SizeofRtMsg:])
	if err != nil {
		return a, fmt.Errorf("read the kernel's answer: %w", err)
	}
	for _, attribute := range attributes {
		value := attribute.Value
		switch attribute.Attr.Type {
		case unix.RTA_OIF:
			a.link = number(value)
		case unix.RTA_PRIORITY:
			a.metric = number(value)
		case unix.RTA_GATEWAY:
			a.gateway = address(value)
		case unix.RTA_PREFSRC:
			a.source = address(value)
		case unix.RTA_VIA: // struct rtvia: a gateway of the other address family
			if len(value) > 2 {
				a.gateway = address(value[2:])
			}
		}
	}
	return a, nil
}

func number(value []byte) int {
	if len(value) < 4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(value))
}

func address(value []byte) netip.Addr {
	ip, _ := netip.AddrFromSlice(value)
	return ip.Unmap()
}

// unsupported reports whether an error means that the kernel lacks the address family.
func unsupported(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}
