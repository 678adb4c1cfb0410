package machine

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	"hostler.io/hostler/test/machine/debian"
	"hostler.io/hostler/test/machine/job"
)

// containerdConfig is Debian's, with the settings that tests need.
const containerdConfig = `version = 2
%s
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = %t
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = %t
`

// uplinkUnit configures the interface to QEMU's user network.
const uplinkUnit = `[Unit]
Description=a way to the lab for this machine
DefaultDependencies=no
After=machine-network.service
Before=network.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'modprobe virtio_net && ip address add 10.0.2.15/24 dev eth0 && ip link set eth0 up && ip route add 198.18.0.0/16 via 10.0.2.2'
`

// Package is the path of hostler's package in a Bare machine.
const Package = "/root/hostler.deb"

// source is a file that was built for all machines.
type source struct {
	path, from string
	mode       os.FileMode
}

// ownFiles returns a machine's files in addition to its root: hostler as its package installs it,
// the guest program, and the files that the test requests.
func ownFiles(o Options, installed debian.Files) (debian.Files, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	files := debian.Files{
		{Path: "etc/machine-id", Mode: 0o444, Data: []byte(hex.EncodeToString(id) + "\n")},
		// A container has no cgroup controllers, and may not set OOM scores either.
		{Path: "etc/containerd/config.toml", Mode: 0o644, Data: fmt.Appendf(nil, containerdConfig, o.Containerd, job.Image, o.Bed == Container, o.SystemdCgroup)},
	}
	program := source{"usr/bin/hostler", "hostler", 0o755}
	if o.Bare {
		program = source{strings.TrimPrefix(Package, "/"), packageFile, 0o644}
	} else {
		files = append(files, debian.File{Path: "etc/systemd/system/multi-user.target.wants/hostler.service", Link: "/usr/lib/systemd/system/hostler.service"})
		files = append(files, installed...)
	}
	if o.Config != "" {
		files = append(files, debian.File{Path: "etc/hostler/hostler.yaml", Mode: 0o644, Data: []byte(o.Config)})
	}
	if o.Uplink {
		files = append(files,
			debian.File{Path: "etc/systemd/system/machine-uplink.service", Mode: 0o644, Data: []byte(uplinkUnit)},
			debian.File{Path: "etc/systemd/system/sysinit.target.wants/machine-uplink.service", Link: "/etc/systemd/system/machine-uplink.service"})
	}
	if o.Bed == Container && o.Release == Debian12 {
		// As in docs/howto/service-rights.md for hosts that are containers: otherwise the agent would see
		// the real host's boot ID.
		files = append(files, debian.File{Path: "etc/systemd/system/hostler.service.d/container.conf", Mode: 0o644, Data: []byte("[Service]\nProtectKernelTunables=no\n")})
	}
	if o.Bed == Container {
		// It precedes the real one in every PATH.
		files = append(files, debian.File{Path: "usr/local/sbin/runc", Link: "/usr/local/bin/guest"})
	}
	sources := []source{
		program,
		{"usr/local/bin/guest", "guest", 0o755},
		{strings.TrimPrefix(job.ImageArchive, "/"), imageFile(o.Release), 0o644},
	}
	for _, s := range sources {
		data, err := os.ReadFile(Built(s.from))
		if err != nil {
			return nil, err
		}
		files = append(files, debian.File{Path: s.path, Mode: s.mode, Data: data})
	}
	for path, text := range o.Files {
		files = append(files, debian.File{Path: path, Mode: 0o644, Data: []byte(text)})
	}
	return files, nil
}
