package machine

import (
	"archive/tar"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"hostler.io/hostler/test/lab"
	"hostler.io/hostler/test/machine/job"
)

// file is one that a machine has over its root.
type file struct {
	path string // relative to the machine's root
	mode os.FileMode
	data []byte
	link string // makes it a symbolic link
}

// containerdConfig is Debian's, and what tests need.
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

// ownFiles are a machine's files over its root: hostler as its package installs
// it, the guest program, and what the test asks for.
func ownFiles(o Options) ([]file, error) {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	files := []file{
		{path: "etc/machine-id", mode: 0o444, data: []byte(hex.EncodeToString(id) + "\n")},
		// Where there are no controllers nobody may be given another OOM score
		// either: both are a container's.
		{path: "etc/containerd/config.toml", mode: 0o644, data: fmt.Appendf(nil, containerdConfig, o.Containerd, job.Image, o.Bed == Container, o.SystemdCgroup)},
		{path: "etc/systemd/system/multi-user.target.wants/hostler.service", link: "/usr/lib/systemd/system/hostler.service"},
	}
	if o.Config != "" {
		files = append(files, file{path: "etc/hostler/hostler.yaml", mode: 0o644, data: []byte(o.Config)})
	}
	if o.Bed == Container {
		// It comes before the real one in everybody's PATH.
		files = append(files, file{path: "usr/local/sbin/runc", link: "/usr/local/bin/guest"})
	}
	type source struct {
		path, from string
		mode       os.FileMode
	}
	sources := []source{
		{"usr/bin/hostler", "hostler", 0o755},
		{"usr/lib/systemd/system/hostler.service", "hostler.service", 0o644},
		{"usr/local/bin/guest", "guest", 0o755},
		{strings.TrimPrefix(job.ImageArchive, "/"), imageFile(o.Release), 0o644},
	}
	for _, scope := range []string{"cri-containerd", "crio", "docker", "libpod"} {
		sources = append(sources, source{"usr/lib/systemd/system/" + scope + "-.scope.d/10-hostler.conf", "scope.conf", 0o644})
	}
	for _, s := range sources {
		data, err := os.ReadFile(filepath.Join(lab.Dir, "built", s.from))
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: s.path, mode: s.mode, data: data})
	}
	for path, text := range o.Files {
		files = append(files, file{path: path, mode: 0o644, data: []byte(text)})
	}
	return files, nil
}

// writeTo puts the files into a root.
func writeTo(dir string, files []file) error {
	for _, f := range files {
		path := filepath.Join(dir, f.path)
		if f.link == "" {
			if err := writeFile(path, f.data, f.mode); err != nil {
				return err
			}
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.RemoveAll(path), os.Symlink(f.link, path)); err != nil {
			return err
		}
	}
	return nil
}

// pack writes the files as an archive.
func pack(files []file, to io.Writer) error {
	out := tar.NewWriter(to)
	for _, f := range files {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: int64(f.mode), Size: int64(len(f.data))}
		if f.link != "" {
			header = &tar.Header{Typeflag: tar.TypeSymlink, Name: f.path, Linkname: f.link, Mode: 0o777}
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := out.Write(f.data); err != nil {
			return err
		}
	}
	return out.Close()
}
