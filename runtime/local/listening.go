package local

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// listener is a listening unix socket.
type listener struct {
	inode string // of the socket
	file  file   // to which it was bound; zero if not known
	path  string // to which it was bound; only if file is not known
}

// file identifies a file of this host in any mount namespace, as struct unix_diag_vfs does. The
// device is that of the filesystem, as the kernel numbers it internally.
type file struct{ inode, device uint32 }

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
	showFile      = 2 // UDIAG_SHOW_VFS
	fileAttribute = 1 // UNIX_DIAG_VFS
	fileBytes     = 8
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
				if l, bound := listenerOf(m.Data); bound {
					list = append(list, l)
				}
			default: // NLMSG_ERROR: the kernel does not support the request
				return nil, fmt.Errorf("the kernel does not list unix sockets (message %d)", m.Header.Type)
			}
		}
	}
}

// listRequest returns a request for all listening unix sockets with their files.
func listRequest() []byte {
	b := make([]byte, 0, requestBytes)
	b = binary.NativeEndian.AppendUint32(b, requestBytes)
	b = binary.NativeEndian.AppendUint16(b, unix.SOCK_DIAG_BY_FAMILY)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b = append(b, make([]byte, 8)...) // sequence number and port
	b = append(b, unix.AF_UNIX, 0, 0, 0)
	b = binary.NativeEndian.AppendUint32(b, stateListen)
	b = binary.NativeEndian.AppendUint32(b, 0) // any inode
	b = binary.NativeEndian.AppendUint32(b, showFile)
	return binary.NativeEndian.AppendUint64(b, ^uint64(0)) // no cookie
}

// listenerOf parses one socket of the response. It returns false if the socket is not bound to a
// file.
func listenerOf(answer []byte) (l listener, bound bool) {
	if len(answer) < messageBytes {
		return listener{}, false
	}
	l.inode = strconv.FormatUint(uint64(binary.NativeEndian.Uint32(answer[inodeAt:])), 10)
	for rest := answer[messageBytes:]; len(rest) >= unix.SizeofNlAttr; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < unix.SizeofNlAttr || size > len(rest) {
			return listener{}, false
		}
		if value := rest[unix.SizeofNlAttr:size]; binary.NativeEndian.Uint16(rest[2:]) == fileAttribute && len(value) == fileBytes {
			l.file = file{inode: binary.NativeEndian.Uint32(value), device: binary.NativeEndian.Uint32(value[4:])}
			return l, true
		}
		rest = rest[min(len(rest), (size+unix.NLA_ALIGNTO-1)&^(unix.NLA_ALIGNTO-1)):]
	}
	return listener{}, false
}

// fileAt returns the file at a path without links. The device is that of stat(2), which differs from
// that of the filesystem on btrfs and overlayfs; no other filesystem has that number.
func fileAt(path string) (f file, err error) {
	var info unix.Stat_t
	if err := unix.Lstat(path, &info); err != nil {
		return file{}, err
	}
	return file{inode: uint32(info.Ino), device: deviceOf(unix.Major(info.Dev), unix.Minor(info.Dev))}, nil
}

// mountedAt returns the device of the filesystem at a path without links, or 0 if it is not known.
func mountedAt(path string) uint32 {
	mounts, err := readMounts(filepath.Join(hostProc, "self", "mountinfo"))
	if m := mountOf(mounts, path); err == nil && m != nil {
		return deviceOf(uint32(m.Major), uint32(m.Minor))
	}
	return 0
}

// deviceOf returns a device as the kernel numbers it internally: MKDEV of include/linux/kdev_t.h.
func deviceOf(major, minor uint32) uint32 { return major<<20 | minor }
