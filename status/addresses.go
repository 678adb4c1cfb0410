package status

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/internal/field"
	"hostler.io/hostler/status/probe"
)

// Choice is one address of the Node, and the reason for it.
type Choice struct {
	Type      corev1.NodeAddressType `json:"type"`
	Address   string                 `json:"address"`
	Interface string                 `json:"interface,omitempty"` // that has it; empty if none does
	Reason    string                 `json:"reason"`
}

// Choose returns the Node's addresses: InternalIP and ExternalIP, IPv4 before IPv6, then Hostname,
// which is the Node's name. If the host lacks a configured address, or has no address, the error
// says so. The other addresses are valid even then.
func Choose(network probe.Network, options AddressOptions, nodeName string) ([]Choice, error) {
	internal, err := internalAddresses(network, options.Internal)
	choices := make([]Choice, 0, 4)
	for _, c := range internal {
		choices = append(choices, Choice{Type: corev1.NodeInternalIP, Address: c.IP.String(), Interface: c.Interface, Reason: c.why})
	}
	for _, ip := range externalAddresses(options.External) {
		choices = append(choices, Choice{Type: corev1.NodeExternalIP, Address: ip.String(), Interface: holder(network, ip), Reason: "node.address.external"})
	}
	return append(choices, Choice{Type: corev1.NodeHostName, Address: nodeName, Reason: "name of the Node"}), err
}

// Addresses returns the addresses of Choose in the format of a Node.
func Addresses(network probe.Network, options AddressOptions, nodeName string) ([]corev1.NodeAddress, error) {
	choices, err := Choose(network, options, nodeName)
	result := make([]corev1.NodeAddress, 0, len(choices))
	for _, c := range choices {
		result = append(result, corev1.NodeAddress{Type: c.Type, Address: c.Address})
	}
	return result, err
}

// holder returns the interface that has an address, or "".
func holder(network probe.Network, ip netip.Addr) string {
	for _, a := range network.Addresses {
		if a.IP == ip {
			return a.Interface
		}
	}
	return ""
}

// chosen is one of the host's addresses, and the reason for it.
type chosen struct {
	probe.Address
	why string
}

// internalAddresses chooses at most one address of each family, IPv4 first.
func internalAddresses(network probe.Network, selectors []string) ([]chosen, error) {
	var result []chosen
	if len(selectors) == 0 {
		for _, is6 := range []bool{false, true} {
			if c, found := byRoute(network, is6); found {
				result = append(result, c)
			}
		}
		if len(result) == 0 {
			return nil, errors.New("no interface has an address that other hosts can reach; configure the network, or set node.address.internal")
		}
		return result, nil
	}
	var missing []string
	for _, selector := range selectors {
		fits := matching(network, selector)
		if len(fits) == 0 {
			missing = append(missing, selector)
		}
		for _, a := range fits {
			if !slices.ContainsFunc(result, func(c chosen) bool { return c.IP.Is6() == a.IP.Is6() }) {
				result = append(result, chosen{a, "node.address.internal: " + selector})
			}
		}
	}
	slices.SortStableFunc(result, func(a, b chosen) int { return a.IP.BitLen() - b.IP.BitLen() })
	if len(missing) > 0 {
		return result, field.Errorf("node.address.internal", "%s%s", noAddressFor, strings.Join(missing, ", "))
	}
	return result, nil
}

// noAddressFor begins the error of CheckAddresses.
const noAddressFor = "no interface has an address for "

// CheckAddresses returns an error for configured internal addresses that no interface has. They may
// be mistyped, or virtual and on another host now. It ignores external ones, which may be behind
// NAT.
func CheckAddresses(network probe.Network, options AddressOptions) error {
	if len(options.Internal) == 0 || network.Problem != "" {
		return nil
	}
	_, err := internalAddresses(network, options.Internal)
	return err
}

// MissingAddresses is CheckAddresses with a hint.
func MissingAddresses(network probe.Network, options AddressOptions) error {
	if err := CheckAddresses(network, options); err != nil {
		return fmt.Errorf("%w\nhint: %s", err, StepAddressMissing(err.Error()))
	}
	return nil
}

// externalAddresses returns the configured addresses. No interface may have them, because of NAT.
func externalAddresses(configured []string) []netip.Addr {
	var result []netip.Addr
	for _, text := range configured {
		if ip, err := netip.ParseAddr(text); err == nil {
			result = append(result, ip)
		}
	}
	slices.SortFunc(result, netip.Addr.Compare)
	return result
}

// matching returns the usable addresses that match a selector, the best first.
func matching(network probe.Network, selector string) []probe.Address {
	fits := func(a probe.Address) bool { return a.Interface == selector }
	if ip, err := netip.ParseAddr(selector); err == nil {
		fits = func(a probe.Address) bool { return a.IP == ip }
	} else if cidr, err := netip.ParsePrefix(selector); err == nil {
		fits = func(a probe.Address) bool { return cidr.Contains(a.IP) }
	}
	return usable(network, fits)
}

// byRoute chooses without configuration. It prefers the source address to the control plane, then
// the source address of the default route. Else it returns the best address of an interface that is
// not for containers.
func byRoute(network probe.Network, is6 bool) (chosen, bool) {
	for _, target := range network.ControlPlane {
		if c, found := addressTowards(network, target, is6); found {
			return c, true
		}
	}
	for _, route := range network.Routes {
		if route.IPv6 != is6 {
			continue
		}
		if a, exact, found := stableSource(network, route.Source, route.Interface, is6); found {
			return explained(a, exact, "the default route via "+route.Interface), true
		}
	}
	others := usable(network, func(a probe.Address) bool {
		return a.IP.Is6() == is6 && a.Up && !forContainers(a)
	})
	if len(others) == 0 {
		return chosen{}, false
	}
	return chosen{others[0], "no route found; most stable address of " + others[0].Interface}, true
}

// addressTowards chooses an address by the route to one address of the control plane. It finds none
// if the route shows nothing: to an address on this host's loopback, such as a load balancer, or in
// a container on this host.
func addressTowards(network probe.Network, target probe.TargetRoute, is6 bool) (chosen, bool) {
	to := target.To.Addr()
	if target.Problem != "" || to.Is6() != is6 || to.IsLoopback() || containerName(target.Interface) {
		return chosen{}, false
	}
	if !target.Own {
		a, exact, found := stableSource(network, target.Source, target.Interface, is6)
		return explained(a, exact, fmt.Sprintf("the route to %s via %s", to, target.Interface)), found
	}
	// The address may move between hosts together with the control plane, so only its interface
	// counts. If that has only single-host addresses, it is lo or a dummy interface, and does not
	// count either.
	there := usable(network, func(a probe.Address) bool {
		return a.IP.Is6() == is6 && a.Interface == target.Interface && a.Bits < a.IP.BitLen()
	})
	if len(there) == 0 {
		return chosen{}, false
	}
	best := there[0]
	for _, a := range there {
		isSource := slices.ContainsFunc(network.Routes, func(r probe.DefaultRoute) bool { return r.Source == a.IP })
		if byFitness(a, best) == 0 && isSource { // among equals, prefer the kernel's choice
			best = a
		}
	}
	return chosen{best, fmt.Sprintf("the control plane at %s is on this host, on %s", to, target.Interface)}, true
}

// explained returns an address with the reason: it is the source of a route, or replaces it.
func explained(a probe.Address, exact bool, route string) chosen {
	if exact {
		return chosen{a, "source of " + route}
	}
	return chosen{a, fmt.Sprintf("most stable address of %s, for %s", a.Interface, route)}
}

// stableSource returns the kernel's source address for packets through an interface, and exact. If
// that address is likely to change, it returns the best other address of the interface, and exact
// is false.
func stableSource(network probe.Network, source netip.Addr, leaves string, is6 bool) (a probe.Address, exact, found bool) {
	beside := func(name string) []probe.Address {
		return usable(network, func(a probe.Address) bool { return a.IP.Is6() == is6 && a.Interface == name })
	}
	// An interface may have no address of its own. Then the kernel uses one of another interface,
	// on a routed host one on lo.
	all := usable(network, func(a probe.Address) bool { return a.IP == source && (a.Interface == leaves || !forContainers(a)) })
	if len(all) > 0 {
		a = all[0]
		there := beside(a.Interface)
		if isStable(a) || penalty(there[0]) >= penalty(a) {
			return a, true, true
		}
		return there[0], false, true
	}
	if there := beside(leaves); len(there) > 0 {
		return there[0], false, true
	}
	return a, false, false
}

// isStable reports whether a source address is likely to stay on this host. A secondary address
// counts if the kernel sends from it, because somebody configured that.
func isStable(a probe.Address) bool {
	return !a.Deprecated && !a.Temporary && !alias(a) && a.Bits < a.IP.BitLen()
}

// alias reports whether an address is an IPv4 alias with its own label, such as "eth0:vip".
func alias(a probe.Address) bool { return a.Label != "" && a.Label != a.Interface }

// usable returns the addresses that other hosts could reach and that match fits, the best first.
func usable(network probe.Network, fits func(probe.Address) bool) []probe.Address {
	var found []probe.Address
	for _, a := range network.Addresses {
		if unicast(a.IP) && !a.Tentative && fits(a) {
			found = append(found, a)
		}
	}
	slices.SortStableFunc(found, byFitness)
	return found
}

// byFitness sorts the addresses first that are most likely to stay on this host. Their link is up,
// and they do not expire soon. They are not secondary, and not single-host addresses like the
// virtual ones of keepalived.
func byFitness(a, b probe.Address) int { return penalty(a) - penalty(b) }

func penalty(a probe.Address) int {
	score := 0
	for _, fault := range []struct {
		is     bool
		weight int
	}{
		{!a.Up, 128},
		{!a.Carrier, 64},
		{a.Deprecated, 32},
		{a.Temporary, 16},
		{alias(a), 8}, // more than the next two: if an alias was added first, the host's own address is secondary
		{a.Secondary, 4},
		{a.Bits == a.IP.BitLen(), 2},
		{a.Kind == "dummy", 1},
	} {
		if fault.is {
			score += fault.weight
		}
	}
	return score
}

// unicast reports whether other hosts could reach the address.
func unicast(ip netip.Addr) bool {
	broadcast := ip == netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return ip.IsValid() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified() && !broadcast
}

// forContainers reports whether an address belongs to containers, virtual machines, or tunnels
// between their hosts.
func forContainers(a probe.Address) bool {
	switch a.Kind {
	case "vxlan", "geneve", "ipip", "sit":
		return true
	}
	return containerName(a.Interface)
}

// containerName reports whether an interface belongs to containers or keepalived, by the names that
// runtimes, network plugins and keepalived use. Other bridges, such as br0 or br-lan, belong to the
// host.
func containerName(name string) bool {
	if id, found := strings.CutPrefix(name, "br-"); found && len(id) == 12 && strings.Trim(id, "0123456789abcdef") == "" {
		return true // a Docker network
	}
	for _, prefix := range []string{
		"docker", "podman", "cni", "cbr", "nerdctl", "veth", "lxc", "lxdbr", "incusbr", "virbr",
		"flannel", "cali", "vxlan.calico", "tunl", "cilium", "weave", "kube-", "nodelocaldns", "ovn-", "antrea-", "azv", "vrrp.",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
