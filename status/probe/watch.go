package probe

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// quietTime is how long Watch collects further changes before it reports: the start of a container
// causes several.
const quietTime = 200 * time.Millisecond

// Watch sends on changes when the process's network namespace may have changed. It follows
// addresses, interfaces, routing rules, nexthops, default routes, and routes to the destinations.
// The receiver calls Addresses again and compares. Watch also sends once after it has subscribed,
// so that no change between an earlier check and the subscription is missed. Changes in quick
// succession count as one.
//
// It blocks until ctx ends or the subscription is lost, and returns the cause. destinations is
// called for each route that changes, and must not block. It needs no privileges.
func Watch(ctx context.Context, destinations func() []netip.Addr, changes chan<- struct{}) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("watch addresses: open netlink socket: %w", err)
	}
	// Messages are not decoded, because each only leads to a new read.
	socket := os.NewFile(uintptr(fd), "netlink")
	defer socket.Close()
	groups := group(unix.RTNLGRP_LINK) | group(unix.RTNLGRP_IPV4_IFADDR) | group(unix.RTNLGRP_IPV6_IFADDR) |
		group(unix.RTNLGRP_IPV4_ROUTE) | group(unix.RTNLGRP_IPV6_ROUTE) |
		group(unix.RTNLGRP_IPV4_RULE) | group(unix.RTNLGRP_IPV6_RULE) | group(unix.RTNLGRP_NEXTHOP)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return fmt.Errorf("watch addresses: subscribe: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { socket.SetReadDeadline(time.Now()) })
	defer stop()

	buffer := make([]byte, 8<<10)
	for relevant := true; ; {
		if relevant {
			select {
			case changes <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		relevant, err = receive(socket, buffer, destinations)
		if relevant {
			err = settle(ctx, socket, buffer)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("watch addresses: %w", err)
		}
	}
}

func group(number uint) uint32 { return 1 << (number - 1) }

// receive waits for one datagram and reports whether it is relevant.
func receive(socket *os.File, buffer []byte, destinations func() []netip.Addr) (relevant bool, err error) {
	n, err := socket.Read(buffer)
	if errors.Is(err, unix.ENOBUFS) {
		return true, nil // the kernel has dropped messages, so anything may have changed
	}
	if err != nil {
		return false, err
	}
	return isRelevant(buffer[:n], destinations), nil
}

// settle waits, and then drops all messages that arrived meanwhile. They belong to the change that
// is about to be reported.
func settle(ctx context.Context, socket *os.File, buffer []byte) error {
	select {
	case <-time.After(quietTime):
		return empty(ctx, socket, buffer)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// empty reads all messages in the socket, without waiting for more.
func empty(ctx context.Context, socket *os.File, buffer []byte) error {
	connection, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var readErr error
	err = connection.Read(func(fd uintptr) bool {
		for readErr == nil && ctx.Err() == nil {
			_, readErr = unix.Read(int(fd), buffer)
			if errors.Is(readErr, unix.ENOBUFS) || errors.Is(readErr, unix.EINTR) {
				readErr = nil
			}
		}
		return true
	})
	if errors.Is(readErr, unix.EAGAIN) {
		readErr = nil
	}
	return errors.Join(err, readErr)
}

// isRelevant reports whether a datagram has relevant messages. Only routes to other destinations
// are irrelevant; a router changes them by the thousand. Unknown messages are relevant.
func isRelevant(datagram []byte, destinations func() []netip.Addr) bool {
	if len(datagram) == 0 {
		return true
	}
	for len(datagram) > 0 {
		// struct nlmsghdr: length, type, ...
		if len(datagram) < unix.NLMSG_HDRLEN {
			return true
		}
		length, kind := int(binary.NativeEndian.Uint32(datagram)), binary.NativeEndian.Uint16(datagram[4:])
		if length < unix.NLMSG_HDRLEN || length > len(datagram) {
			return true
		}
		if kind != unix.RTM_NEWROUTE && kind != unix.RTM_DELROUTE {
			return true
		}
		to, reported := destination(datagram[unix.NLMSG_HDRLEN:length])
		if !reported || to.Bits() == 0 || wanted(to, destinations()) {
			return true
		}
		datagram = datagram[min(aligned(length), len(datagram)):]
	}
	return false
}

// wanted reports whether a route to that network may lead to a destination.
func wanted(to netip.Prefix, destinations []netip.Addr) bool {
	for _, d := range destinations {
		if to.Contains(d) {
			return true
		}
	}
	return false
}

// destination returns a route's destination, without allocating.
func destination(route []byte) (to netip.Prefix, reported bool) {
	// struct rtmsg: family, prefix length of the destination, ...
	if len(route) < unix.SizeofRtMsg {
		return to, false
	}
	none := netip.IPv4Unspecified()
	if route[0] == unix.AF_INET6 {
		none = netip.IPv6Unspecified()
	}
	bits := int(route[1])
	if bits == 0 {
		return netip.PrefixFrom(none, 0), true
	}
	for rest := route[unix.SizeofRtMsg:]; len(rest) >= unix.SizeofRtAttr; {
		length, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])
		if length < unix.SizeofRtAttr || length > len(rest) {
			break
		}
		if kind == unix.RTA_DST {
			ip, ok := netip.AddrFromSlice(rest[unix.SizeofRtAttr:length])
			to = netip.PrefixFrom(ip, bits)
			return to, ok && to.IsValid()
		}
		rest = rest[min(aligned(length), len(rest)):]
	}
	return to, false
}

// aligned returns the length with padding; NLMSG_ALIGNTO and RTA_ALIGNTO are the same.
func aligned(length int) int { return (length + 3) &^ 3 }
