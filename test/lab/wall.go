package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	goruntime "runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Wall is a network namespace for servers, connected to the lab's by a pair of interfaces. Without
// an answer to ARP, the kernel would report an error after a while. So the lab has a static
// neighbour entry, and packets are dropped silently.
type Wall struct {
	Address string // of the servers' side

	file string // bind mount of the namespace
	link string // name of both interfaces, each in its own namespace
}

// BuildWall creates a namespace that is bound to a file, with interfaces named link. Its address is
// the second one of a network of 256, such as "198.18.7". Its default route leads to the lab, which
// has the first address, and from there to the walls of other networks.
func BuildWall(file, link, network string) (*Wall, error) {
	w := &Wall{file: file, link: link, Address: network + ".2"}
	err := w.build(network + ".1")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a network namespace: %w", err), w.Remove())
	}
	return w, nil
}

// Wrapping returns the beginning of the command line that runs a program inside.
func (w *Wall) Wrapping() []string { return []string{"nsenter", "--net=" + w.file, "--"} }

func (w *Wall) build(lab string) error {
	if err := os.WriteFile(w.file, nil, 0o600); err != nil {
		return err
	}
	// Not /proc/self, which is the first thread: that may be locked to another wall's namespace.
	outside, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer outside.Close()
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := unix.Mount("/proc/thread-self/ns/net", w.file, "", unix.MS_BIND, ""); err != nil {
			return err
		}
		attributes := netlink.NewLinkAttrs()
		attributes.Name = w.link
		pair := &netlink.Veth{LinkAttrs: attributes, PeerName: w.link, PeerNamespace: netlink.NsFd(int(outside.Fd()))}
		return errors.Join(netlink.LinkAdd(pair), setUp("lo", ""), setUp(w.link, w.Address), addDefaultRoute(w.link, lab))
	})
	if err != nil {
		return err
	}
	if err := setUp(w.link, lab); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return err
	}
	return w.addNeighbour()
}

// setUp enables an interface, and sets its address unless that is empty.
func setUp(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if address != "" {
		own := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address).To4(), Mask: net.CIDRMask(24, 32)}}
		if err := netlink.AddrAdd(link, own); err != nil {
			return fmt.Errorf("add address %s: %w", address, err)
		}
	}
	return netlink.LinkSetUp(link)
}

// addDefaultRoute adds a default route to the lab's side.
func addDefaultRoute(name, lab string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(lab)})
}

// addNeighbour adds a permanent neighbour entry for the servers on the lab's side.
func (w *Wall) addNeighbour() error {
	var hardware net.HardwareAddr
	err := w.inside(func(link netlink.Link) error {
		hardware = link.Attrs().HardwareAddr
		return nil
	})
	if err != nil {
		return err
	}
	link, err := netlink.LinkByName(w.link)
	if err != nil {
		return err
	}
	return netlink.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: netlink.FAMILY_V4, State: netlink.NUD_PERMANENT,
		IP: net.ParseIP(w.Address), HardwareAddr: hardware,
	})
}

// inside calls a function in the namespace, with its interface.
func (w *Wall) inside(do func(netlink.Link) error) error {
	file, err := os.Open(w.file)
	if err != nil {
		return err
	}
	defer file.Close()
	return onThread(func() error {
		if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		link, err := netlink.LinkByName(w.link)
		if err != nil {
			return err
		}
		return do(link)
	})
}

// onThread calls a function on a thread that runs nothing else, then or later.
func onThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		// A locked thread ends with its goroutine.
		goruntime.LockOSThread()
		result <- do()
	}()
	return <-result
}

// Remove deletes the interfaces, whose names the next wall with that number needs, and the file of
// the namespace. The namespace itself ends some time after its last process.
func (w *Wall) Remove() error {
	var errs []error
	link, err := netlink.LinkByName(w.link)
	if err == nil {
		err = netlink.LinkDel(link) // this also deletes the other one
	}
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); !gone {
		errs = append(errs, err)
	}
	if err := unix.Unmount(w.file, unix.MNT_DETACH); !errors.Is(err, unix.EINVAL) { // EINVAL means that it is not mounted
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Cut drops all packets between the lab and the servers, like a broken network: no connection is
// reset.
func (w *Wall) Cut() error { return w.set("cut", netlink.LinkSetDown) }

// Restore ends a Cut.
func (w *Wall) Restore() error {
	return w.set("mend", func(link netlink.Link) error {
		// The default route was removed with the interface.
		return errors.Join(netlink.LinkSetUp(link), addDefaultRoute(w.link, strings.TrimSuffix(w.Address, ".2")+".1"))
	})
}

func (w *Wall) set(what string, do func(netlink.Link) error) error {
	if err := w.inside(do); err != nil {
		return fmt.Errorf("%s the network: %w", what, err)
	}
	return nil
}
