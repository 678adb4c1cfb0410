// Command image writes an OCI image of hostler server for one or more architectures, as a tar
// archive of an OCI layout, without a daemon. The same programs give the same bytes.
//
// It has its own module, so that hostler does not depend on its library.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is distroless's "nonroot": a number, since the image has no passwd.
const user = 65532

// file is a file or folder of the image.
type file struct {
	name string
	mode int64
	uid  int
	text []byte // nil for a folder
}

func main() {
	var (
		version  = flag.String("version", "", "the `VERSION` of the programs")
		revision = flag.String("revision", "", "the `COMMIT` that they were built from")
		licence  = flag.String("license", "LICENSE", "the `FILE` of the license")
		to       = flag.String("to", "", "the `FILE` to write")
	)
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: image [flags] ARCH=PROGRAM...")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 || *version == "" || *to == "" {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(*to, *version, *revision, *licence, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// write writes the archive.
func write(to, version, revision, licence string, programs []string) error {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	created := time.Unix(seconds, 0).UTC()
	terms, err := os.ReadFile(licence)
	if err != nil {
		return err
	}
	labels := map[string]string{
		"org.opencontainers.image.title":       "hostler-server",
		"org.opencontainers.image.description": "Server for a fleet of container hosts",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://hostler.io/hostler",
		"org.opencontainers.image.version":     version,
		"org.opencontainers.image.revision":    revision,
		"org.opencontainers.image.created":     created.Format(time.RFC3339),
	}
	var images []mutate.IndexAddendum
	for _, argument := range programs {
		arch, path, found := strings.Cut(argument, "=")
		if !found {
			return fmt.Errorf("%q is not ARCH=PROGRAM", argument)
		}
		program, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		image, err := of(arch, created, labels, []file{
			{name: "etc/", mode: 0o755},
			{name: "etc/hostler/", mode: 0o755},
			{name: "licenses/", mode: 0o755},
			{name: "licenses/LICENSE", mode: 0o644, text: terms},
			{name: "run/", mode: 0o755},
			{name: "run/hostler-server/", mode: 0o755, uid: user},
			{name: "usr/", mode: 0o755},
			{name: "usr/bin/", mode: 0o755},
			{name: "usr/bin/hostler", mode: 0o755, text: program},
		})
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		images = append(images, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	// Versions may have a +, which a tag must not have.
	name := "hostler.io/hostler-server:" + strings.ReplaceAll(version, "+", "_")
	all := mutate.Annotations(mutate.IndexMediaType(mutate.AppendManifests(empty.Index, images...), types.OCIImageIndex), labels).(v1.ImageIndex)
	folder, err := os.MkdirTemp(filepath.Dir(to), ".image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	root, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	// containerd and Podman take the name of the image from these annotations.
	if err := root.AppendIndex(all, layout.WithAnnotations(map[string]string{
		"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name,
	})); err != nil {
		return err
	}
	return archive(folder, to, created)
}

// of builds the image for an architecture.
func of(arch string, created time.Time, labels map[string]string, files []file) (v1.Image, error) {
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.uid, Gid: f.uid, Size: int64(len(f.text)), ModTime: created, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := add(w, header, bytes.NewReader(f.text)); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	content, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer.Bytes())), nil }, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: created},
		Config: v1.Config{
			User:       fmt.Sprintf("%d:%d", user, user),
			Entrypoint: []string{"/usr/bin/hostler", "server", "--config", "/etc/hostler/server.yaml"},
			WorkingDir: "/", Env: []string{"PATH=/usr/bin"}, Labels: labels,
		},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: content, History: v1.History{Created: v1.Time{Time: created}, CreatedBy: "make image"}})
}

// archive writes a folder's files to a tar archive, in the order of their names.
func archive(folder, to string, created time.Time) (err error) {
	var names []string
	if err := fs.WalkDir(os.DirFS(folder), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, path)
		}
		return err
	}); err != nil {
		return err
	}
	slices.Sort(names)
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	w := tar.NewWriter(out)
	for _, name := range names {
		content, err := os.Open(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		info, err := content.Stat()
		if err == nil {
			err = add(w, &tar.Header{Name: name, Mode: 0o644, Size: info.Size(), ModTime: created, Typeflag: tar.TypeReg, Format: tar.FormatPAX}, content)
		}
		if err := errors.Join(err, content.Close()); err != nil {
			return err
		}
	}
	return w.Close()
}

// add writes one entry.
func add(w *tar.Writer, header *tar.Header, content io.Reader) error {
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(w, content)
	return err
}
