//go:build integration

package e2e_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// island is an agent's own network namespace. At first it has only a loopback that is down.
type island struct {
	t      testing.TB
	handle netns.NsHandle
}

func newIsland(t testing.TB) island {
	t.Helper()
	i := island{t, netns.None()}
	check(t, onThread(func() (err error) {
		i.handle, err = netns.New()
		return err
	}))
	t.Cleanup(func() { check(t, i.handle.Close()) })
	return i
}

// onThread calls a function on a thread that runs nothing else, then or later.
func onThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		goruntime.LockOSThread() // a locked thread ends with its goroutine
		result <- do()
	}()
	return <-result
}

// do calls a function in the namespace.
func (i island) do(what func() error) {
	i.t.Helper()
	check(i.t, i.try(what))
}

func (i island) try(what func() error) error {
	return onThread(func() error { return errors.Join(netns.Set(i.handle), what()) })
}

// file returns the path of the namespace for other processes.
func (i island) file() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), i.handle) }

// card creates an interface in the namespace, connected to an interface of the lab with the name
// far. Both are removed with the test.
func (i island) card(name, far string) {
	i.t.Helper()
	outside, err := netns.Get()
	check(i.t, err)
	defer outside.Close()
	i.do(func() error {
		cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: far, PeerNamespace: netlink.NsFd(int(outside))}
		if err := netlink.LinkAdd(cable); err != nil {
			return err
		}
		return raise(name)
	})
	check(i.t, raise(far))
	i.t.Cleanup(func() {
		if link, err := netlink.LinkByName(far); err == nil {
			check(i.t, netlink.LinkDel(link))
		}
	})
}

func raise(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// holds returns a function that adds or removes an address of an interface.
func holds(change func(netlink.Link, *netlink.Addr) error, name, cidr string) func() error {
	return func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(cidr)
		if err != nil {
			return err
		}
		return change(link, a)
	}
}

// leads returns a function that changes a route through an interface; an empty gateway means none.
func leads(change func(*netlink.Route) error, to, via, name, source string) func() error {
	return func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		_, network, err := net.ParseCIDR(to)
		if err != nil {
			return err
		}
		return change(&netlink.Route{Dst: network, Gw: net.ParseIP(via), Src: net.ParseIP(source), LinkIndex: link.Attrs().Index})
	}
}

// internal returns the InternalIPs of a Node.
func internal(n *corev1.Node) []string {
	var list []string
	if n == nil {
		return nil
	}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			list = append(list, a.Address)
		}
	}
	return list
}

// TestAnAgentThatStartsBeforeDHCP lets an agent check its host only once an hour, so that it learns
// of changes only from the kernel.
func TestAnAgentThatStartsBeforeDHCP(t *testing.T) {
	t.Parallel()
	i := newIsland(t)
	a := newAgent(t, "lease: {renewInterval: 1s}\nstatus: {updateInterval: 1h, reportInterval: 1h}\n")
	a.island = &i
	a.start()
	follows := func(what, reason string, addresses ...string) api.Status {
		t.Helper()
		return a.await(what, func(s api.Status) bool {
			c := condition(s, corev1.NodeNetworkUnavailable)
			want := corev1.ConditionFalse
			if reason != status.ReasonNetworkAvailable {
				want = corev1.ConditionTrue
			}
			return c.Status == want && c.Reason == reason && slices.Equal(internal(s.Node), addresses)
		})
	}
	first := follows("there is no address", status.ReasonNoAddress)
	mentions(t, "hostler status", a.screen(), "NetworkUnavailable, for ", "no interface has an address that other hosts can reach")
	a.awaitLease(first)

	i.card("eth0", "island0")
	i.do(holds(netlink.AddrAdd, "eth0", "198.51.100.5/24"))
	follows("DHCP's address has come", status.ReasonNetworkAvailable, "198.51.100.5")
	i.do(leads(netlink.RouteAdd, "0.0.0.0/0", "198.51.100.1", "eth0", ""))
	eventually(t, "the default route is why", func() bool {
		return strings.Contains(a.prints("status", "-o", "wide"), "source of the default route via eth0")
	})
	i.do(holds(netlink.AddrAdd, "eth0", "fd00:51::5/64"))
	follows("the other family has come", status.ReasonNetworkAvailable, "198.51.100.5", "fd00:51::5")
	i.do(holds(netlink.AddrDel, "eth0", "198.51.100.5/24"))
	i.do(holds(netlink.AddrDel, "eth0", "fd00:51::5/64"))
	i.do(holds(netlink.AddrAdd, "eth0", "198.51.100.77/24"))
	follows("the address was replaced", status.ReasonNetworkAvailable, "198.51.100.77")
	i.do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		return netlink.LinkSetDown(link)
	})
	follows("the interface is switched off", status.ReasonNoAddress)
	i.do(func() error { return raise("eth0") })
	follows("the interface is switched on", status.ReasonNetworkAvailable, "198.51.100.77")
	i.do(holds(netlink.AddrDel, "eth0", "198.51.100.77/24"))
	last := follows("the address has gone", status.ReasonNoAddress)

	last = a.awaitLease(last)
	if renewed := metricNames(t, a.onSocket(), "http://hostler/metrics"); renewed[`hostler_lease_renewals_total{result="error"}`] > "0" {
		t.Errorf("renewals of the lease failed: %v", renewed)
	}
	if l := loopOf(t, last, "lease"); !l.Healthy || l.Restarts > 0 || last.ControlPlane.Overdue != "" {
		t.Errorf("the lease's loop is %+v, overdue %q, want it undisturbed", l, last.ControlPlane.Overdue)
	}
	if l := loopOf(t, last, "network"); !l.Healthy || l.Restarts > 0 {
		t.Errorf("the network's loop is %+v, want it undisturbed", l)
	}
	a.stop()
	wantEvents(t, a, "NodeNetworkUnavailable", "NodeNetworkAvailable", "198.51.100.5 on eth0")
}

// TestTheAddressIsThatOfTheRouteToTheControlPlane has a host with one interface for everything and
// one for the control plane, which is configured by name.
func TestTheAddressIsThatOfTheRouteToTheControlPlane(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	i := newIsland(t)
	i.card("eth0", "front0")
	i.card("eth1", "back0")
	i.card("eth2", "back1")
	for name, cidr := range map[string]string{"eth0": "198.51.100.5/24", "eth1": "10.77.0.5/24", "eth2": "10.78.0.5/24"} {
		i.do(holds(netlink.AddrAdd, name, cidr))
	}
	check(t, holds(netlink.AddrAdd, "back0", "10.77.0.1/24")())
	check(t, holds(netlink.AddrAdd, "back1", "10.78.0.1/24")())
	i.do(leads(netlink.RouteAdd, "0.0.0.0/0", "198.51.100.1", "eth0", ""))
	const name = "api.island.example"
	resolves(t, "10.77.0.1 "+name)

	file := filepath.Join(t.TempDir(), "kubeconfig")
	before, err := c.NodeKubeconfig("island")
	check(t, err)
	text, err := os.ReadFile(before)
	check(t, err)
	host, _, err := net.SplitHostPort(strings.TrimPrefix(c.Server, "https://"))
	check(t, err)
	points := func(to string, port int) {
		t.Helper()
		server := fmt.Sprintf("\"https://%s:%d\", \"tls-server-name\": %q", to, port, host)
		check(t, os.WriteFile(file, []byte(strings.Replace(string(text), fmt.Sprintf("%q", c.Server), server, 1)), 0o600))
	}
	points(name, relay(t, "10.77.0.1", strings.TrimPrefix(c.Server, "https://")))

	a := newAgent(t, fmt.Sprintf("controlPlane: {type: kubernetes, kubernetes: {kubeconfig: %s}}\nnode: {name: island}\nlease: {duration: 40s, renewInterval: 1s}\nstatus: {updateInterval: 1h, reportInterval: 1h}\n", file))
	a.island = &i
	a.start()
	var seen []string // in the cluster, without repetitions
	follows := func(what, address, why string) {
		t.Helper()
		eventually(t, what, func() bool {
			n := c.node("island")
			if now := strings.Join(internal(n), " "); n != nil && (len(seen) == 0 || seen[len(seen)-1] != now) {
				seen = append(seen, now)
			}
			return slices.Equal(internal(n), []string{address})
		})
		eventually(t, what+", and the host says why", func() bool { return strings.Contains(a.prints("status", "-o", "wide"), why) })
	}
	follows("the address is that of the card for the control plane", "10.77.0.5", "source of the route to 10.77.0.1 via eth1")
	if slices.Contains(seen, "198.51.100.5") {
		t.Errorf("the cluster has seen addresses %q, want the default route's never", seen)
	}
	i.do(leads(netlink.RouteAdd, "10.77.0.1/32", "10.78.0.1", "eth2", "10.78.0.5"))
	follows("the route to the control plane has moved to another card", "10.78.0.5", "source of the route to 10.77.0.1 via eth2")
	i.do(leads(netlink.RouteDel, "10.77.0.1/32", "10.78.0.1", "eth2", "10.78.0.5"))
	follows("the route is back", "10.77.0.5", "source of the route to 10.77.0.1 via eth1")
	// Connections from a removed address do not work any more.
	i.do(holds(netlink.AddrDel, "eth1", "10.77.0.5/24"))
	i.do(holds(netlink.AddrAdd, "eth1", "10.77.0.6/24"))
	follows("the address is replaced", "10.77.0.6", "source of the route to 10.77.0.1 via eth1")
	// Only the name is lost; the last address stays in use.
	resolves(t, "")
	i.do(holds(netlink.AddrAdd, "eth0", "198.51.100.6/24"))
	a.prints("reload")
	follows("the name is not known any more", "10.77.0.6", "source of the route to 10.77.0.1 via eth1")
	points("10.78.0.1", relay(t, "10.78.0.1", strings.TrimPrefix(c.Server, "https://")))
	a.prints("reload")
	follows("the kubeconfig names a server elsewhere", "10.78.0.5", "source of the route to 10.78.0.1 via eth2")
	s := a.await("the lease's loop is healthy", func(s api.Status) bool { return loopOf(t, s, "lease").Healthy })
	if l := loopOf(t, s, "lease"); l.Restarts > 0 {
		t.Errorf("the lease's loop is %+v, want it undisturbed", l)
	}
	a.stop()
}

// resolves adds a line to /etc/hosts of the lab, until the test ends.
func resolves(t testing.TB, line string) {
	t.Helper()
	const file = "/etc/hosts"
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var kept []string
	for l := range strings.Lines(string(before)) {
		if !strings.Contains(l, "island.example") {
			kept = append(kept, l)
		}
	}
	check(t, os.WriteFile(file, []byte(strings.Join(kept, "")+line+"\n"), 0o644))
	if line != "" {
		t.Cleanup(func() { resolves(t, "") })
	}
}

// relay forwards connections to an address of the lab to another one, and returns its port.
func relay(t testing.TB, from, to string) int {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(from, "0"))
	check(t, err)
	t.Cleanup(lab.Relay(listener, to))
	return listener.Addr().(*net.TCPAddr).Port
}
