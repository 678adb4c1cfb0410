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

// Wall is a network namespace for servers, connected to that of the lab by a pair of interfaces. If
// no host answers ARP, the kernel reports an error after a while. Therefore the lab has a static
// neighbour entry, and packets are dropped silently.
type Wall struct {
	Address string // of the servers' side

	file string // holds the namespace
	link string // name of both interfaces, each in its namespace
}

// BuildWall creates a namespace whose name is in a file, with interfaces of that name, at the
// second address of a network of 256, such as "198.18.7". Its route leads through the lab, which
// has the first address, and on to the walls of the other networks.
func BuildWall(file, link, network string) (*Wall, error) {
	w := &Wall{file: file, link: link, Address: network + ".2"}
	err := w.build(network + ".1")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make a network namespace: %w", err), w.Remove())
	}
	return w, nil
}

// Wrapping is what the command line of a program that is to run inside begins with.
func (w *Wall) Wrapping() []string { return []string{"nsenter", "--net=" + w.file, "--"} }

func (w *Wall) build(lab string) error {
	if err := os.WriteFile(w.file, nil, 0o600); err != nil {
		return err
	}
	// Not /proc/self, which is the first thread: that one may be where another
	// wall was built, and has stayed there.
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
		return errors.Join(netlink.LinkAdd(pair), raise("lo", ""), raise(w.link, w.Address), leadOut(w.link, lab))
	})
	if err != nil {
		return err
	}
	if err := raise(w.link, lab); err != nil {
		return err
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return err
	}
	return w.learn()
}

// raise sets an interface up, with an address if it is to have one.
func raise(name, address string) error {
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

// leadOut sends all that has no other way to the lab's side.
func leadOut(name, lab string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(lab)})
}

// learn teaches the lab's side for good where the servers are.
func (w *Wall) learn() error {
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

// inside calls a function in the namespace, with the interface there.
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

// onThread calls a function on a thread that nothing else runs on, then or later.
func onThread(do func() error) error {
	result := make(chan error, 1)
	go func() {
		// Not unlocked, the thread ends with the goroutine.
		goruntime.LockOSThread()
		result <- do()
	}()
	return <-result
}

// Remove deletes the interfaces, whose names the next wall of that number needs, and the name of
// the namespace, which ends some time after its last process.
func (w *Wall) Remove() error {
	var errs []error
	link, err := netlink.LinkByName(w.link)
	if err == nil {
		err = netlink.LinkDel(link) // and the other one with it
	}
	if _, gone := errors.AsType[netlink.LinkNotFoundError](err); !gone {
		errs = append(errs, err)
	}
	if err := unix.Unmount(w.file, unix.MNT_DETACH); !errors.Is(err, unix.EINVAL) { // which says that it is not mounted
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Cut lets all packets between the lab and the servers vanish, as a broken
// network does: no connection is reset.
func (w *Wall) Cut() error { return w.set("cut", netlink.LinkSetDown) }

// Restore ends a Cut.
func (w *Wall) Restore() error {
	return w.set("mend", func(link netlink.Link) error {
		// With the interface went the way out.
		return errors.Join(netlink.LinkSetUp(link), leadOut(w.link, strings.TrimSuffix(w.Address, ".2")+".1"))
	})
}

func (w *Wall) set(what string, do func(netlink.Link) error) error {
	if err := w.inside(do); err != nil {
		return fmt.Errorf("%s the network: %w", what, err)
	}
	return nil
}
