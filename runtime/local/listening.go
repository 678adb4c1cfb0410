package local

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// listener is a listening unix socket with the path to which it was bound.
type listener struct{ inode, path string }

// listening returns the listening sockets in the network namespace of this process.
func listening(root string) ([]listener, error) {
	if root == hostProc {
		if list, err := askListening(); err == nil {
			return list, nil
		}
	}
	return readListening(root)
}

// hostProc is the host's proc filesystem; tests use others.
const hostProc = "/proc"

// readListening reads the table of proc_pid_net(5). Any user can forge lines of it, because the
// kernel writes a socket's name unchanged, including line breaks. It is used for kernels without
// CONFIG_UNIX_DIAG.
func readListening(root string) (list []listener, err error) {
	f, err := os.Open(filepath.Join(root, "net", "unix"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	const accepts = "00010000" // __SO_ACCEPTCON
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// Num RefCount Protocol Flags Type St Inode Path
		if fields := strings.Fields(lines.Text()); len(fields) == 8 && fields[3] == accepts {
			list = append(list, listener{inode: fields[6], path: fields[7]})
		}
	}
	return list, lines.Err()
}

// The request and the response of sock_diag(7): struct nlmsghdr, then struct unix_diag_req or
// unix_diag_msg.
const (
	requestBytes  = unix.NLMSG_HDRLEN + 24
	messageBytes  = 16
	inodeAt       = 4
	showName      = 1 // UDIAG_SHOW_NAME
	nameAttribute = 0 // UNIX_DIAG_NAME
	stateListen   = 1 << 10
	// buffer is larger than any message of such a response.
	buffer = 64 << 10
)

// askListening requests the sockets from the kernel with sock_diag(7).
func askListening() (list []listener, err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, listRequest(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	for answer := make([]byte, buffer); ; {
		n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT) // the kernel has answered already (netlink(7))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		messages, err := syscall.ParseNetlinkMessage(answer[:n])
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return list, nil
			case unix.SOCK_DIAG_BY_FAMILY:
				if l, named := listenerOf(m.Data); named {
					list = append(list, l)
				}
			default: // NLMSG_ERROR: the kernel does not support the request
				return nil, fmt.Errorf("the kernel does not list unix sockets (message %d)", m.Header.Type)
			}
		}
	}
}

// listRequest returns a request for all listening unix sockets with their names.
func listRequest() []byte {
	b := make([]byte, 0, requestBytes)
	b = binary.NativeEndian.AppendUint32(b, requestBytes)
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b = append(b, make([]byte, 8)...) // sequence number and port
	b = append(b, unix.AF_UNIX, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, stateListen)
	b = binary.NativeEndian.AppendUint32(b, 0) // any inode
	b = binary.NativeEndian.AppendUint32(b, showName)
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // no cookie
}

// listenerOf parses one socket of the response. It returns false if the socket has no name, or a
// name that is not a path.
func listenerOf(answer []byte) (l listener, named bool) {
	if len(answer) < messageBytes {
		return listener{}, false
	}
	l.inode = strconv.FormatUint(uint64(binary.NativeEndian.Uint32(answer[inodeAt:])), 10)
	for rest := answer[messageBytes:]; len(rest) >= unix.SizeofNlAttr; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < unix.SizeofNlAttr || size > len(rest) {
			return listener{}, false
		}
		if binary.NativeEndian.Uint16(rest[2:]) == nameAttribute {
			path, _, _ := bytes.Cut(rest[unix.SizeofNlAttr:size], []byte{0}) // an abstract name begins with 0
			l.path = string(path)
			return l, filepath.IsAbs(l.path)
		}
		rest = rest[min(len(rest), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return listener{}, false
}
