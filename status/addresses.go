package status

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/status/probe"
)

// AddressOptions choose among the host's addresses. Each entry is an IP, a CIDR
// or the name of an interface; the first address of each family that fits one is
// taken.
type AddressOptions struct {
	// Internal defaults to the source addresses of the default routes.
	Internal []string
	// External may name an IP that no interface holds, as behind NAT. By default
	// there is no ExternalIP.
	External []string
}

// Validate refuses entries that can never fit.
func (o AddressOptions) Validate() error {
	var errs []error
	for _, list := range []struct {
		field   string
		entries []string
	}{{"node.address.internal", o.Internal}, {"node.address.external", o.External}} {
		for _, entry := range list.entries {
			if err := checkEntry(entry); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", list.field, err))
			}
		}
	}
	return errors.Join(errs...)
}

func checkEntry(entry string) error {
	if ip, err := netip.ParseAddr(entry); err == nil {
		if !unicast(ip.Unmap()) {
			return fmt.Errorf("%s is loopback, link-local, multicast or unspecified; other hosts cannot reach it", entry)
		}
		return nil
	}
	if strings.Contains(entry, "/") {
		if _, err := netip.ParsePrefix(entry); err != nil {
			return fmt.Errorf("%q is no CIDR; write it like 10.0.0.0/8", entry)
		}
		return nil
	}
	// What the kernel allows as a name, dev_valid_name().
	if entry == "" || len(entry) > 15 || strings.ContainsAny(entry, ": \t\n") {
		return fmt.Errorf("%q is neither an IP, nor a CIDR, nor the name of an interface", entry)
	}
	return nil
}

// Addresses returns the Node's addresses: InternalIP and ExternalIP, IPv4 before
// IPv6, then Hostname, which is the Node's name. An error says which configured
// address the host does not have (yet), or that it has none to offer; the
// addresses beside it are still right.
func Addresses(network probe.Network, options AddressOptions, nodeName string) ([]corev1.NodeAddress, error) {
	internal, err := internalAddresses(network, options.Internal)
	result := make([]corev1.NodeAddress, 0, 4)
	for _, a := range internal {
		result = append(result, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a.IP.String()})
	}
	for _, ip := range externalAddresses(network, options.External) {
		result = append(result, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: ip.String()})
	}
	return append(result, corev1.NodeAddress{Type: corev1.NodeHostName, Address: nodeName}), err
}

// internalAddresses chooses at most one address of each family, IPv4 first.
func internalAddresses(network probe.Network, entries []string) ([]probe.Address, error) {
	var chosen []probe.Address
	if len(entries) == 0 {
		for _, is6 := range []bool{false, true} {
			if a, found := defaultAddress(network, is6); found {
				chosen = append(chosen, a)
			}
		}
		if len(chosen) == 0 {
			return nil, errors.New("no interface has an address that other hosts could reach; configure the network, or name the address in node.address.internal")
		}
		return chosen, nil
	}
	var missing []string
	for _, entry := range entries {
		fits := matching(network, entry)
		if len(fits) == 0 {
			missing = append(missing, entry)
		}
		for _, a := range fits {
			if !slices.ContainsFunc(chosen, func(c probe.Address) bool { return c.IP.Is6() == a.IP.Is6() }) {
				chosen = append(chosen, a)
			}
		}
	}
	sortFamilies(chosen)
	if len(missing) > 0 {
		return chosen, fmt.Errorf("no interface has an address for node.address.internal: %s", strings.Join(missing, ", "))
	}
	return chosen, nil
}

func externalAddresses(network probe.Network, entries []string) []netip.Addr {
	var chosen []netip.Addr
	add := func(ip netip.Addr) {
		if !slices.ContainsFunc(chosen, func(c netip.Addr) bool { return c.Is6() == ip.Is6() }) {
			chosen = append(chosen, ip)
		}
	}
	for _, entry := range entries {
		if ip, err := netip.ParseAddr(entry); err == nil {
			add(ip.Unmap())
			continue
		}
		for _, a := range matching(network, entry) {
			add(a.IP)
		}
	}
	slices.SortFunc(chosen, netip.Addr.Compare)
	return chosen
}

// matching returns the usable addresses that fit one entry, the best first.
func matching(network probe.Network, entry string) []probe.Address {
	fits := func(a probe.Address) bool { return a.Interface == entry }
	if ip, err := netip.ParseAddr(entry); err == nil {
		fits = func(a probe.Address) bool { return a.IP == ip.Unmap() }
	} else if cidr, err := netip.ParsePrefix(entry); err == nil {
		fits = func(a probe.Address) bool { return cidr.Contains(a.IP) }
	}
	var found []probe.Address
	for _, a := range network.Addresses {
		if unicast(a.IP) && !a.Tentative && fits(a) {
			found = append(found, a)
		}
	}
	slices.SortStableFunc(found, byFitness)
	return found
}

// defaultAddress chooses without configuration: what the kernel sends from on
// the preferred default route, else the best address of an interface that is not
// there for containers.
func defaultAddress(network probe.Network, is6 bool) (probe.Address, bool) {
	for _, route := range network.Routes {
		if route.IPv6 != is6 {
			continue
		}
		var there []probe.Address
		for _, a := range network.Addresses {
			if a.Interface == route.Interface && a.IP.Is6() == is6 && unicast(a.IP) && !a.Tentative {
				there = append(there, a)
			}
		}
		slices.SortStableFunc(there, byFitness)
		i := slices.IndexFunc(there, func(a probe.Address) bool { return a.IP == route.Source })
		// A privacy address changes every day; a Node's should not.
		if i >= 0 && !there[i].Temporary {
			return there[i], true
		}
		if len(there) > 0 {
			return there[0], true
		}
	}
	var others []probe.Address
	for _, a := range network.Addresses {
		if a.IP.Is6() == is6 && unicast(a.IP) && !a.Tentative && a.Up && !containerInterface(a.Interface, a.Kind) {
			others = append(others, a)
		}
	}
	if len(others) == 0 {
		return probe.Address{}, false
	}
	slices.SortStableFunc(others, byFitness)
	return others[0], true
}

// byFitness puts first what is likeliest to stay the host's own: on a live link,
// not about to expire, no second address on its interface and none of a single
// host, which is how keepalived adds a virtual one.
func byFitness(a, b probe.Address) int { return unfitness(a) - unfitness(b) }

func unfitness(a probe.Address) int {
	score := 0
	for _, fault := range []struct {
		is     bool
		weight int
	}{
		{!a.Up, 64},
		{!a.Carrier, 32},
		{a.Deprecated, 16},
		{a.Temporary, 8},
		{a.Secondary, 4},
		{a.Label != "" && a.Label != a.Interface, 4},
		{a.Bits == a.IP.BitLen(), 2},
		{a.Kind == "dummy", 1},
	} {
		if fault.is {
			score += fault.weight
		}
	}
	return score
}

func sortFamilies(addresses []probe.Address) {
	slices.SortStableFunc(addresses, func(a, b probe.Address) int { return a.IP.BitLen() - b.IP.BitLen() })
}

// unicast tells whether other hosts could reach the address at all.
func unicast(ip netip.Addr) bool {
	return ip.IsValid() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified()
}

// containerInterface tells whether an interface is there for containers or
// virtual machines, by the names that runtimes and network plug-ins give. A
// bridge of another name is the host's own, such as br0 or br-lan.
func containerInterface(name, kind string) bool {
	switch kind {
	case "vxlan", "geneve", "ipip", "sit":
		return true
	}
	if id, found := strings.CutPrefix(name, "br-"); found && len(id) == 12 && strings.Trim(id, "0123456789abcdef") == "" {
		return true // a Docker network
	}
	for _, prefix := range []string{
		"docker", "podman", "cni", "cbr", "nerdctl", "veth", "lxc", "lxdbr", "incusbr", "virbr",
		"flannel", "cali", "vxlan.calico", "tunl", "cilium", "weave", "kube-", "nodelocaldns", "ovn-", "antrea-", "azv",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}
