package lab

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Address is the lab's address on Interface. Its default route leads to a peer that forwards
// nothing.
const (
	Address   = "192.0.2.10"
	Interface = "lab0"
	gateway   = "192.0.2.1"
)

// setUpNamespaces prepares new namespaces: their own /run, /proc, /sys and /var/log, writable
// copies of /etc and /var/lib, and a network with a default route.
func (l *Lab) setUpNamespaces() error {
	if err := unix.Sethostname([]byte(l.Hostname)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	// The following mounts must not reach the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	keep, err := l.hostPaths()
	if err != nil {
		return err
	}
	// With an empty /run, no socket of a host daemon can be reached. Abstract sockets belong to the
	// host's network namespace.
	if err := replace("/run", keep, tmpfs("mode=755")); err != nil {
		return err
	}
	if err := os.MkdirAll(Dir, 0o755); err != nil {
		return err
	}
	// /var/run is a link on most hosts; snaps keep their daemons' sockets in /var/snap.
	for _, dir := range []string{"/var/run", "/var/snap"} {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() {
			if err := replace(dir, keep, tmpfs("mode=755")); err != nil {
				return err
			}
		}
	}
	// Hide the logs of the host's pods, which the lab does not have.
	if err := replace("/var/log", keep, tmpfs("mode=755")); err != nil {
		return err
	}
	for _, dir := range []string{"/etc", "/var/lib"} {
		if err := replace(dir, keep, overlay(dir)); err != nil {
			return err
		}
	}
	if _, err := os.Stat("/dev/shm"); err == nil {
		if err := replace("/dev/shm", keep, tmpfs("mode=1777")); err != nil {
			return err
		}
	}
	if err := mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := replaceSys(); err != nil {
		return err
	}
	if err := setUpEtc(); err != nil {
		return err
	}
	if err := setUpNetwork(); err != nil {
		return fmt.Errorf("set up network: %w", err)
	}
	return nil
}

// hostPaths returns paths that stay the host's even below a replaced folder: the working folder,
// the program, and the folders for results.
func (l *Lab) hostPaths() ([]string, error) {
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	paths := []string{cwd, exe, os.TempDir()}
	if home := os.Getenv("HOME"); home != "" {
		paths = append(paths, home)
	}
	for _, t := range l.Tools.all() {
		paths = append(paths, t.Path)
	}
	return paths, nil
}

func tmpfs(data string) func(target string) error {
	return func(target string) error {
		return mount("tmpfs", target, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, data)
	}
}

// overlay returns a function that makes a folder writable without writing to it.
func overlay(dir string) func(target string) error {
	return func(target string) error {
		layers := filepath.Join(Dir, "overlay", strings.ReplaceAll(dir, "/", "_"))
		upper, work := filepath.Join(layers, "upper"), filepath.Join(layers, "work")
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755)); err != nil {
			return err
		}
		return mount("overlay", target, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", dir, upper, work))
	}
}

// replace mounts something over a folder. It mounts those entries of the folder again that contain
// a path to keep.
func replace(dir string, keep []string, over func(target string) error) error {
	fds := map[string]int{}
	for _, path := range keep {
		rest, ok := strings.CutPrefix(path, dir+"/")
		if !ok {
			continue
		}
		entry, _, _ := strings.Cut(rest, "/")
		if _, done := fds[entry]; done {
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, filepath.Join(dir, entry), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("keep %s/%s: %w", dir, entry, err)
		}
		defer unix.Close(fd)
		fds[entry] = fd
	}
	if err := over(dir); err != nil {
		return err
	}
	for entry, fd := range fds {
		target := filepath.Join(dir, entry)
		if err := putBack(fd, target); err != nil {
			return fmt.Errorf("put back %s: %w", target, err)
		}
	}
	return nil
}

// putBack attaches a detached mount at a target, which it creates if it is missing.
func putBack(fd int, target string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if _, err := os.Lstat(target); errors.Is(err, fs.ErrNotExist) {
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = os.Mkdir(target, 0o755)
		} else {
			err = os.WriteFile(target, nil, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return unix.MoveMount(fd, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH)
}

// replaceSys mounts /sys with the view of the new network namespace. It keeps the cgroup
// hierarchies, which pods need.
func replaceSys() error {
	const cgroups = "/sys/fs/cgroup"
	fd, err := unix.OpenTree(unix.AT_FDCWD, cgroups, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("keep %s: %w", cgroups, err)
	}
	defer unix.Close(fd)
	// Otherwise hidden mounts would be listed twice.
	if err := unix.Unmount("/sys", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount /sys: %w", err)
	}
	if err := mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	return putBack(fd, cgroups)
}

// setUpEtc limits logind's configuration to that of the lab, and adds a machine ID if the host
// has none.
func setUpEtc() error {
	for _, dir := range []string{"/usr/lib/systemd/logind.conf.d", "/usr/local/lib/systemd/logind.conf.d"} {
		if _, err := os.Stat(dir); err == nil {
			if err := tmpfs("mode=755")(dir); err != nil {
				return err
			}
		}
	}
	if err := os.RemoveAll("/etc/systemd/logind.conf.d"); err != nil {
		return err
	}
	if err := os.MkdirAll("/etc/systemd/logind.conf.d", 0o755); err != nil {
		return err
	}
	// Name lookups must fail at once: there is no network.
	if err := errors.Join(os.RemoveAll("/etc/resolv.conf"), os.WriteFile("/etc/resolv.conf", []byte("nameserver 127.0.0.1\n"), 0o644)); err != nil {
		return err
	}
	if err := addUser("hostler-exec", 64990); err != nil { // as the packages do
		return err
	}
	id, err := os.ReadFile("/etc/machine-id")
	if err == nil && len(strings.TrimSpace(string(id))) == 32 {
		return nil
	}
	random := make([]byte, 16)
	if _, err := rand.Read(random); err != nil {
		return err
	}
	return os.WriteFile("/etc/machine-id", []byte(hex.EncodeToString(random)+"\n"), 0o444)
}

// addUser adds a user with a group of the same name and ID, unless the host has it.
func addUser(name string, id int) error {
	if _, err := user.Lookup(name); err == nil {
		return nil
	}
	for file, line := range map[string]string{"/etc/passwd": "%s:x:%d:%[2]d::/:/usr/sbin/nologin\n", "/etc/group": "%s:x:%d:\n"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(file, fmt.Appendf(text, line, name, id), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// setUpNetwork enables loopback and one interface with an address and a default route. Kernels
// have different drivers: the first one that works is used.
func setUpNetwork() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = Interface
	kinds := []netlink.Link{
		&netlink.Veth{LinkAttrs: attrs, PeerName: Interface + "-peer"},
		&netlink.Dummy{LinkAttrs: attrs},
		&netlink.Ifb{LinkAttrs: attrs},
		&netlink.Bridge{LinkAttrs: attrs},
	}
	var problems []error
	i := slices.IndexFunc(kinds, func(link netlink.Link) bool {
		err := netlink.LinkAdd(link)
		if err != nil {
			problems = append(problems, fmt.Errorf("add %s interface: %w", link.Type(), err))
		}
		return err == nil
	})
	if i < 0 {
		return errors.Join(problems...)
	}
	if peer, err := netlink.LinkByName(Interface + "-peer"); err == nil {
		if err := netlink.LinkSetUp(peer); err != nil {
			return err
		}
	}
	link, err := netlink.LinkByName(Interface)
	if err != nil {
		return err
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(Address).To4(), Mask: net.CIDRMask(24, 32)}}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add address %s: %w", Address, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.ParseIP(gateway)}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("add default route: %w", err)
	}
	return nil
}

// mount calls mount(2). Its error names source and target.
func mount(source, target, fstype string, flags uintptr, data string) error {
	if err := unix.Mount(source, target, fstype, flags, data); err != nil {
		return fmt.Errorf("mount %s on %s: %w", fstype, target, err)
	}
	return nil
}
