package listen

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// PlainTCP bounds a listener without TLS.
func PlainTCP(l net.Listener, log *slog.Logger) net.Listener {
	return Bound(l, Bounds{Each: perUser, All: allUsers, Who: caller, Log: log})
}

// caller returns the group of a TCP connection: the user for a connection from this host, else the
// IP address. For IPv6 it is the network, because a host can have many addresses there. Root has
// its own group.
func caller(c net.Conn) (who any, own bool) {
	from, to := address(c.RemoteAddr()), address(c.LocalAddr())
	ip := from.Addr()
	if ip.IsLoopback() || ip == to.Addr() {
		uid, err := ownerOf(from, to)
		if err != nil {
			return "unknown user", false
		}
		return fmt.Sprintf("uid %d", uid), uid == 0
	}
	if ip.Is6() {
		if network, err := ip.Prefix(64); err == nil {
			return network, false
		}
	}
	return ip, false
}

// address returns the address of one end of a TCP connection, with IPv4-mapped addresses as IPv4.
func address(addr net.Addr) netip.AddrPort {
	tcp, is := addr.(*net.TCPAddr)
	if !is {
		return netip.AddrPort{}
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// The request and the answer of sock_diag(7): struct nlmsghdr, then struct
// inet_diag_req_v2 or inet_diag_msg.
const (
	requestBytes = unix.NLMSG_HDRLEN + 56
	answerBytes  = unix.NLMSG_HDRLEN + 72
	uidAt        = unix.NLMSG_HDRLEN + 64
	inodeAt      = unix.NLMSG_HDRLEN + 68
)

// ownerOf returns the user of the socket at the other end of a local connection. /proc/net/tcp also
// has it, but each read lists all sockets.
func ownerOf(end, peer netip.AddrPort) (uid uint32, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Close(fd) }()
	// The kernel has answered once Sendto returns (netlink(7)); there is nothing to wait for.
	if err := unix.Sendto(fd, question(end, peer), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, err
	}
	answer := make([]byte, 512)
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT)
	if err != nil {
		return 0, err
	}
	if n < answerBytes || binary.NativeEndian.Uint16(answer[4:]) != unix.SOCK_DIAG_BY_FAMILY {
		return 0, errors.New("the kernel does not know the socket")
	}
	if binary.NativeEndian.Uint32(answer[inodeAt:]) == 0 { // the user of a closed socket reads as 0, that is, root
		return 0, errors.New("the socket is closed")
	}
	return binary.NativeEndian.Uint32(answer[uidAt:]), nil
}

// question returns a request for the one socket with these addresses.
func question(end, peer netip.AddrPort) []byte {
	family := byte(unix.AF_INET)
	if end.Addr().Is6() {
		family = unix.AF_INET6
	}
	b := make([]byte, 0, requestBytes)
	b = binary.NativeEndian.AppendUint32(b, requestBytes)
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // sequence number and port
	b = append(b, family, unix.IPPROTO_TCP, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, ^uint32(0)) // in any state
	b = binary.BigEndian.AppendUint16(b, end.Port())
	b = binary.BigEndian.AppendUint16(b, peer.Port())
	for _, ip := range []netip.Addr{end.Addr(), peer.Addr()} {
		var field [16]byte
		copy(field[:], ip.AsSlice())
		b = append(b, field[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, 0)             // on any interface
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // INET_DIAG_NOCOOKIE
}
