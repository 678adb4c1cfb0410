package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// quietTime is how long Watch gathers further changes before it reports: every
// container that starts makes a handful.
const quietTime = 200 * time.Millisecond

// Watch reports on changes whenever an address, an interface or a default route
// of the process's network namespace may have changed: read Addresses again and
// compare. It reports one change as soon as it is subscribed, so that nothing
// between an earlier look and this one is missed; changes in quick succession
// count as one. It blocks until ctx ends or the subscription is lost, and returns
// why. It needs no privileges.
func Watch(ctx context.Context, changes chan<- struct{}) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("watch addresses: open netlink socket: %w", err)
	}
	// One socket and no decoding: what the messages say is asked afresh anyway.
	socket := os.NewFile(uintptr(fd), "netlink")
	defer socket.Close()
	groups := group(unix.RTNLGRP_LINK) | group(unix.RTNLGRP_IPV4_IFADDR) | group(unix.RTNLGRP_IPV6_IFADDR) |
		group(unix.RTNLGRP_IPV4_ROUTE) | group(unix.RTNLGRP_IPV6_ROUTE)
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
		relevant, err = receive(socket, buffer)
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

// receive waits for one datagram and tells whether it is worth a look.
func receive(socket *os.File, buffer []byte) (relevant bool, err error) {
	n, err := socket.Read(buffer)
	if errors.Is(err, unix.ENOBUFS) {
		return true, nil // the kernel dropped messages: anything may have changed
	}
	if err != nil {
		return false, err
	}
	return worthALook(buffer[:n]), nil
}

// settle lets a burst of changes pass: it waits and then drops what came
// meanwhile, for that is part of the change about to be reported.
func settle(ctx context.Context, socket *os.File, buffer []byte) error {
	select {
	case <-time.After(quietTime):
		return empty(ctx, socket, buffer)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// empty reads what the socket holds, without waiting for more.
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

// worthALook tells whether a datagram of route messages holds anything but
// routes to particular destinations, which a router changes by the thousand. A
// message that cannot be told counts.
func worthALook(datagram []byte) bool {
	messages, err := syscall.ParseNetlinkMessage(datagram)
	if err != nil || len(messages) == 0 {
		return true
	}
	for _, m := range messages {
		isRoute := m.Header.Type == unix.RTM_NEWROUTE || m.Header.Type == unix.RTM_DELROUTE
		// struct rtmsg: family, length of the destination's prefix, ...
		if !isRoute || len(m.Data) < 2 || m.Data[1] == 0 {
			return true
		}
	}
	return false
}
