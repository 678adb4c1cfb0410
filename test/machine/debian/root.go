package debian

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"hostler.io/hostler/test/lab"
)

// Root is a release that is ready to boot, in the cache, where nothing is changed. Its fields are
// paths.
type Root struct {
	Image   string // ext4 with a journal, because scenarios cut the power
	Kernel  string
	Initrd  string
	Busybox string
}

// DiskBytes is the size of a machine's disk, which is sparse.
const DiskBytes = 4 << 30

// kernelHook unpacks Debian's cloud kernel without installing it: its package depends on tools that
// build an initramfs, which is built here.
const kernelHook = `set -eu
export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"
kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p' | head -n 1)
mkdir "$1/kernel"
cd "$1/kernel"
apt-get download -q -o APT::Sandbox::User=root "$kernel"
dpkg-deb -x *.deb .
mv boot/vmlinuz-* "$1/boot/vmlinuz"
mkdir -p "$1/usr/lib/modules"
for modules in lib/modules usr/lib/modules; do # the latter from Debian 13 on
	if [ -d "$modules" ]; then mv "$modules"/* "$1/usr/lib/modules/"; fi
done
cd /
rm -r "$1/kernel"
`

// rootScript runs inside a new root.
const rootScript = `set -eu
groupadd --system hostler
useradd --system --user-group --no-create-home --home-dir / --shell /usr/sbin/nologin hostler-exec
passwd -d root >/dev/null
# dpkg could leave them out, but mmdebstrap needs Python then.
rm -rf /usr/share/doc /usr/share/man /usr/share/locale
cd /usr/lib/modules/*/kernel
rm -rf drivers/gpu drivers/infiniband drivers/net/ethernet drivers/nvme drivers/scsi drivers/target drivers/media drivers/hv drivers/hid drivers/usb \
	fs/ocfs2 fs/nfs fs/nfsd fs/cifs fs/smb fs/ceph fs/gfs2 fs/dlm fs/xfs fs/btrfs
depmod "$(basename /usr/lib/modules/*)"
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
	getty@tty1.service console-getty.service serial-getty@ttyS0.service systemd-networkd.service systemd-firstboot.service kexec.service kexec-load.service \
	modprobe@drm.service modprobe@efi_pstore.service modprobe@fuse.service modprobe@configfs.service modprobe@dm_mod.service \
	systemd-random-seed.service systemd-pstore.service systemd-ask-password-console.path systemd-ask-password-wall.path systemd-udev-load-credentials.service \
	dev-hugepages.mount dev-mqueue.mount sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
	systemd-tmpfiles-setup-dev-early.service systemd-tmpfiles-setup-dev.service kmod-static-nodes.service netavark-dhcp-proxy.service netavark-dhcp-proxy.socket \
	systemd-sysext.socket systemd-creds.socket systemd-initctl.socket systemd-tmpfiles-clean.timer proc-sys-fs-binfmt_misc.automount; do # slow, and of no use
	ln -sf /dev/null "/etc/systemd/system/$unit"
done
# Likewise; those of fstab, SysV scripts and Quadlet stay.
mkdir -p /etc/systemd/system-generators
for generator in cryptsetup debug getty gpt-auto hibernate-resume integritysetup rc-local run ssh system-update tpm2 veritysetup; do
	ln -s /dev/null "/etc/systemd/system-generators/systemd-$generator-generator"
done
# Podman and Docker are for the scenarios that switch them on.
systemctl --quiet disable podman.socket podman.service podman-restart.service podman-auto-update.timer podman-auto-update.service \
	docker.socket docker.service
# By default its package turns each reboot into a kexec.
printf 'LOAD_KEXEC=false\n' >/etc/default/kexec
systemctl --quiet enable machine-guest.service machine-network.service
# Nobody logs in, which would start logind.
mkdir -p /etc/systemd/system/multi-user.target.wants
ln -sf /usr/lib/systemd/system/systemd-logind.service /etc/systemd/system/multi-user.target.wants/
mkdir -p /var/log/journal
rm -f /var/lib/dbus/machine-id
# Nothing is to be brought up to date at the first boot.
touch -r /usr /etc/.updated /var/.updated
`

// rootFiles returns the files of every root, by path.
func rootFiles() map[string]string {
	return map[string]string{
		"etc/hostname":                    "machine\n",
		"etc/hosts":                       "127.0.0.1 localhost machine\n",
		"etc/fstab":                       "",
		"etc/machine-id":                  "",
		"etc/resolv.conf":                 "nameserver 127.0.0.1\n",
		"etc/modules-load.d/machine.conf": "overlay\nbutton\nevdev\ndummy\nvirtio_rng\n",

		// A machine has hundreds of devices, but only these are used.
		"etc/systemd/system/systemd-udev-trigger.service.d/machine.conf": "[Service]\nExecStart=\nExecStart=udevadm trigger --action=add --subsystem-match=block --subsystem-match=input --subsystem-match=net\n",
		"etc/systemd/journald.conf.d/machine.conf":                       "[Journal]\nStorage=persistent\n",
		// With it CRI reports NetworkReady. Its plugin is never called: pods use the machine's network.
		"etc/cni/net.d/10-machine.conflist": `{"cniVersion": "0.4.0", "name": "machine", "plugins": [{"type": "loopback"}]}` + "\n",
		// It answers until the very end, so that a test sees the shutdown continue. No job ever stops it.
		"etc/systemd/system/machine-guest.service": `[Unit]
Description=what the test has inside this machine
DefaultDependencies=no
IgnoreOnIsolate=yes
StartLimitIntervalSec=0
[Service]
ExecStart=/usr/local/bin/guest serve
Restart=always
RestartSec=100ms
KillMode=process
OOMScoreAdjust=-900
[Install]
WantedBy=sysinit.target
`,
		// An address and a default route that lead nowhere.
		"etc/systemd/system/machine-network.service": `[Unit]
Description=an address for this machine
DefaultDependencies=no
After=systemd-modules-load.service
Before=network.target
Wants=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'ip link set lo up; ip link add net0 type dummy || ip link add net0 type veth peer name net0-peer || ip link add net0 type ifb; ip address add 192.0.2.10/24 dev net0; ip link set net0 up; ip link set net0-peer up 2>/dev/null; ip route add default via 192.0.2.1'
[Install]
WantedBy=sysinit.target
`,
	}
}

// Prepare builds a release's root, unless the cache has it. It needs the network only then. It is
// safe for concurrent use, even by several processes.
func Prepare(ctx context.Context, release Release, log *slog.Logger) (Root, error) {
	r, err := recipeFor(release)
	if err != nil {
		return Root{}, err
	}
	cache, err := lab.CacheDir()
	if err != nil {
		return Root{}, err
	}
	dir := filepath.Join(cache, "machine", r.key())
	err = lab.MakeOnce(dir, func(temporary string) error {
		log.Info("building a root", "release", string(release), "cache", dir)
		return r.build(ctx, temporary, log)
	})
	if err != nil {
		return Root{}, fmt.Errorf("build root of Debian %s: %w", release, err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	return Root{Image: file("root.ext4"), Kernel: file("vmlinuz"), Initrd: file("initrd"), Busybox: file("busybox")}, nil
}

// build fills a folder with the files of a root.
func (r recipe) build(ctx context.Context, dir string, log *slog.Logger) error {
	tools, err := lab.Fetch(ctx, lab.FetchOptions{Kits: []lab.Kit{lab.KitBootstrap, lab.KitContainers}}, log)
	if err != nil {
		return err
	}
	tree, hook := filepath.Join(dir, "tree"), filepath.Join(dir, "kernel-hook")
	defer os.RemoveAll(tree)
	if err := os.WriteFile(hook, []byte("#!/bin/sh\n"+kernelHook), 0o755); err != nil {
		return err
	}
	if err := r.bootstrap(ctx, tools.Bootstrap, dir, tree, packages(r.release), "--variant=minbase", "--customize-hook="+hook); err != nil {
		return err
	}
	for path, text := range rootFiles() {
		if err := writeFile(filepath.Join(tree, path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	initrd, err := makeInitrd(ctx, tree)
	if err != nil {
		return fmt.Errorf("make initramfs: %w", err)
	}
	// Also inside the root, for kexec.
	if err := os.WriteFile(filepath.Join(tree, "boot/initrd"), initrd, 0o644); err != nil {
		return err
	}
	if err := command(ctx, lab.Tool{Path: "chroot"}, tree, "sh", "-c", rootScript); err != nil {
		return err
	}
	image := filepath.Join(dir, "root.ext4")
	file, err := os.Create(image)
	if err != nil {
		return err
	}
	return errors.Join(
		file.Truncate(DiskBytes), file.Close(),
		command(ctx, tools.Mkfs, "-q", "-F", "-d", tree, "-L", "root", "-E", "lazy_itable_init=0,nodiscard", "-i", "32768", image),
		command(ctx, lab.Tool{Path: "install"}, "-m", "755", filepath.Join(tree, "boot/vmlinuz"), filepath.Join(tree, "usr/bin/busybox"), dir),
		os.WriteFile(filepath.Join(dir, "initrd"), initrd, 0o644))
}

// bootstrap installs packages of the release in a tree. It leaves the package sources in dir.
func (r recipe) bootstrap(ctx context.Context, mmdebstrap lab.Tool, dir, tree string, packages []string, options ...string) error {
	codename, err := r.release.codename()
	if err != nil {
		return err
	}
	args := append([]string{
		"--mode=root", "--include=" + strings.Join(packages, ","), `--aptopt=APT::Install-Recommends "false"`, "--dpkgopt=force-unsafe-io",
	}, options...)
	args = append(args, codename, tree)
	for _, name := range sortedKeys(r.sources) {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(r.sources[name]), 0o644); err != nil {
			return err
		}
		args = append(args, file)
	}
	return command(ctx, mmdebstrap, args...)
}

// Disk creates a machine's own disk at path: a copy-on-write image of the root.
func (r Root) Disk(ctx context.Context, q QEMU, path string) error {
	if out, err := q.Command(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", r.Image, path).CombinedOutput(); err != nil {
		return fmt.Errorf("make disk: %w:\n%s", err, lab.LastLines(string(out), 20))
	}
	return nil
}

// command runs a program in its own mount namespace, so that its mounts end with it.
func command(ctx context.Context, tool lab.Tool, args ...string) error {
	cmd := exec.CommandContext(ctx, tool.Path, args...)
	cmd.Env = append(append(os.Environ(), tool.Environ()...), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", "TZ=UTC")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w:\n%s", filepath.Base(tool.Path), err, lab.LastLines(string(out), 20))
	}
	return nil
}
