package lab

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Registry is an image registry on the lab's loopback. It serves a repository under any registry
// name.
type Registry struct {
	Address string // host:port
	server  *http.Server
	dir     string
	held    sync.Map // *hold by the digest of a layer
}

// hold delays a layer.
type hold struct {
	wanted, released chan struct{}
	once             sync.Once
}

// StartRegistry starts a registry that stores its layers in the lab's tmpfs.
func StartRegistry() (*Registry, error) {
	dir, err := os.MkdirTemp(Dir, "registry-")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start registry: %w", err), os.RemoveAll(dir))
	}
	quiet := log.New(io.Discard, "", 0)
	r := &Registry{Address: listener.Addr().String(), dir: dir}
	serve := registry.New(registry.Logger(quiet), registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)))
	r.server = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			r.await(q)
			serve.ServeHTTP(w, q)
		}),
		ErrorLog:          quiet,
		ReadHeaderTimeout: patience,
	}
	// Serve returns ErrServerClosed when Close is called.
	go func() { _ = r.server.Serve(listener) }()
	return r, nil
}

// Close stops the registry and deletes its images.
func (r *Registry) Close() error { return errors.Join(r.server.Close(), os.RemoveAll(r.dir)) }

// Hold delays pulls of a layer until release is called, which can be called again. wanted is closed
// when a client waits for the layer.
func (r *Registry) Hold(layer Layer) (wanted <-chan struct{}, release func(), err error) {
	digest, err := layer.layer.Digest()
	if err != nil {
		return nil, nil, fmt.Errorf("hold layer: %w", err)
	}
	h := &hold{wanted: make(chan struct{}), released: make(chan struct{})}
	r.held.Store(digest.String(), h)
	return h.wanted, sync.OnceFunc(func() { close(h.released) }), nil
}

// await waits while the requested layer is held.
func (r *Registry) await(q *http.Request) {
	held, ok := r.held.Load(path.Base(q.URL.Path))
	if !ok || q.Method != http.MethodGet {
		return
	}
	h := held.(*hold)
	h.once.Do(func() { close(h.wanted) })
	select {
	case <-h.released:
	case <-q.Context().Done():
	}
}

// Layer is an image layer. Images with the same Layer share it.
type Layer struct{ layer v1.Layer }

// RandomLayer creates a layer with one file of that size. It cannot be compressed and differs from
// all others.
func RandomLayer(sizeBytes int64) (Layer, error) {
	var seed [32]byte
	if _, err := crand.Read(seed[:]); err != nil {
		return Layer{}, err
	}
	file := "data/" + hex.EncodeToString(seed[:8])
	return newLayer(func(w *tar.Writer) error {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o644, Size: sizeBytes}); err != nil {
			return err
		}
		_, err := io.CopyN(w, rand.NewChaCha8(seed), sizeBytes)
		return err
	})
}

// FilesLayer creates a layer of that many empty files. It differs from all others.
func FilesLayer(count int) (Layer, error) {
	var seed [8]byte
	if _, err := crand.Read(seed[:]); err != nil {
		return Layer{}, err
	}
	dir := "data/" + hex.EncodeToString(seed[:]) + "/"
	return newLayer(func(w *tar.Writer) error {
		for i := range count {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprint(dir, i), Mode: 0o644}); err != nil {
				return err
			}
		}
		return nil
	})
}

// applets are links to busybox in every image.
var applets = [...]string{"sh", "sleep", "cat", "echo", "ls", "true", "false", "dd"}

// busyboxLayer returns the bottom layer of every image.
func (l *Lab) busyboxLayer() (Layer, error) {
	program, err := os.ReadFile(l.Tools.Busybox.Path)
	if err != nil {
		return Layer{}, err
	}
	return newLayer(func(w *tar.Writer) error {
		for _, dir := range []string{"bin/", "data/", "tmp/", "etc/"} {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755}); err != nil {
				return err
			}
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "bin/busybox", Mode: 0o755, Size: int64(len(program))}); err != nil {
			return err
		}
		if _, err := w.Write(program); err != nil {
			return err
		}
		for _, applet := range applets {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "bin/" + applet, Linkname: "busybox", Mode: 0o777}); err != nil {
				return err
			}
		}
		return nil
	})
}

// newLayer creates a layer from a function that writes its archive. The function must always write
// the same bytes.
func newLayer(write func(*tar.Writer) error) (Layer, error) {
	open := func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			archive := tar.NewWriter(w)
			// CloseWithError(nil) is Close.
			w.CloseWithError(errors.Join(write(archive), archive.Close()))
		}()
		return r, nil
	}
	// Compressing random content only takes time.
	layer, err := tarball.LayerFromOpener(open, tarball.WithCompressionLevel(gzip.NoCompression))
	if err != nil {
		return Layer{}, fmt.Errorf("make layer: %w", err)
	}
	return Layer{layer}, nil
}

// ImageSpec describes an image. Every image has a shell, and its layers.
type ImageSpec struct {
	// Names are full references, such as "docker.io/library/web:1". All of them name one image. Two
	// specs create two images, even with equal layers.
	Names      []string
	Layers     []Layer
	Command    []string          // default command; if nil, a sleep that ends on SIGTERM
	StopSignal string            // such as "SIGUSR1"; not set if empty
	Labels     map[string]string // in the image's configuration
}

func (l *Lab) build(spec ImageSpec) (v1.Image, error) {
	if len(spec.Names) == 0 {
		return nil, errors.New("build image: it has no name")
	}
	base, err := l.busyboxLayer()
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", spec.Names[0], err)
	}
	layers := []v1.Layer{base.layer}
	for _, layer := range spec.Layers {
		layers = append(layers, layer.layer)
	}
	img, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, fmt.Errorf("build image %s: %w", spec.Names[0], err)
	}
	command := spec.Command
	if command == nil {
		command = ServeFor(0)
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", goruntime.GOARCH
	config.Created = v1.Time{Time: time.Now().UTC()}
	config.Config = v1.Config{Cmd: command, StopSignal: spec.StopSignal, Labels: spec.Labels, Env: []string{"PATH=/bin", "IMAGE=" + spec.Names[0]}}
	return mutate.ConfigFile(img, config)
}

// push pushes an image to a registry under all its names.
func (l *Lab) push(ctx context.Context, r *Registry, spec ImageSpec) error {
	img, err := l.build(spec)
	if err != nil {
		return err
	}
	for _, ref := range spec.Names {
		tag, err := name.NewTag(ref)
		if err != nil {
			return fmt.Errorf("push image: %w", err)
		}
		local, err := name.NewTag(r.Address+"/"+tag.RepositoryStr()+":"+tag.TagStr(), name.Insecure)
		if err != nil {
			return fmt.Errorf("push image: %w", err)
		}
		if err := remote.Write(local, img, remote.WithContext(ctx)); err != nil {
			return fmt.Errorf("push image %s: %w", ref, err)
		}
	}
	return nil
}

// Pull creates an image and pushes it to the registry. containerd then pulls it over CRI under all
// its names, so that it has a digest. Pull returns the image's ID.
func (c *Containerd) Pull(ctx context.Context, spec ImageSpec) (id string, err error) {
	if err := c.lab.push(ctx, c.Registry, spec); err != nil {
		return "", err
	}
	for _, ref := range spec.Names {
		reply, err := c.Images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}})
		if err != nil {
			return "", fmt.Errorf("pull image %s: %w", ref, err)
		}
		id = reply.ImageRef
	}
	return id, nil
}

// Archive writes an image in the format of `ctr images import` and `docker load`.
func (l *Lab) Archive(spec ImageSpec, to io.Writer) error {
	img, err := l.build(spec)
	if err != nil {
		return err
	}
	refs := map[name.Reference]v1.Image{}
	for _, ref := range spec.Names {
		tag, err := name.NewTag(ref)
		if err != nil {
			return err
		}
		refs[tag] = img
	}
	if err := tarball.MultiRefWrite(refs, to); err != nil {
		return fmt.Errorf("write image %s: %w", spec.Names[0], err)
	}
	return nil
}

// Import creates an image and loads it into containerd like one that was built on this host: it is
// in no registry, and has no digest. It returns the image's ID when CRI lists it.
func (c *Containerd) Import(ctx context.Context, spec ImageSpec) (id string, err error) {
	var archive bytes.Buffer
	if err := c.lab.Archive(spec, &archive); err != nil {
		return "", fmt.Errorf("import image: %w", err)
	}
	file := filepath.Join(c.dir, "import.tar")
	if err := os.WriteFile(file, archive.Bytes(), 0o600); err != nil {
		return "", err
	}
	defer os.Remove(file)
	if err := c.ctr(ctx, "images", "import", "--snapshotter", c.Snapshotter, file); err != nil {
		return "", fmt.Errorf("import image %s: %w", spec.Names[0], err)
	}
	// CRI gets an event about the image.
	err = c.Await(ctx, func(ctx context.Context) error {
		for _, ref := range spec.Names {
			status, err := c.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: ref}})
			if err != nil {
				return err
			}
			if status.Image == nil {
				return fmt.Errorf("image %s is not listed yet", ref)
			}
			id = status.Image.Id
		}
		return nil
	})
	return id, err
}

// ctr runs containerd's command line in CRI's namespace.
func (c *Containerd) ctr(ctx context.Context, args ...string) error {
	ctr := c.lab.Tools.Ctr
	_, err := run(ctx, c.dir, "env", append(append(ctr.Environ(), ctr.Path, "--address", c.socket(), "--namespace", "k8s.io"), args...)...)
	return err
}

// Pin makes containerd keep an image. Versions before 1.7 do not support that.
func (c *Containerd) Pin(ctx context.Context, ref string) error {
	if err := c.ctr(ctx, "images", "label", ref, "io.cri-containerd.pinned=pinned"); err != nil {
		return fmt.Errorf("pin image %s: %w", ref, err)
	}
	return nil
}

// RemoveImage removes an image over CRI, by name or ID.
func (c *Containerd) RemoveImage(ctx context.Context, image string) error {
	_, err := c.Images.RemoveImage(ctx, &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: image}})
	if err != nil {
		return fmt.Errorf("remove image %s: %w", image, err)
	}
	return nil
}

// ServeFor returns the command of a container that runs until SIGTERM and then takes that time, in
// whole seconds, to end with code 0. It prints "ready" when it handles the signal.
func ServeFor(toEnd time.Duration) []string {
	return shell("trap 'echo ending; sleep %d; echo ended; exit 0' TERM; echo ready; while :; do sleep 86400 & wait $!; done", int(toEnd.Seconds()))
}

// IgnoreTerm returns the command of a container that only SIGKILL ends.
func IgnoreTerm() []string {
	return shell("trap '' TERM; echo ready; while :; do sleep 86400; done")
}

// ExitWith returns the command of a container that ends at once with that code.
func ExitWith(code int) []string { return shell("exit %d", code) }

func shell(format string, args ...any) []string {
	return []string{"/bin/sh", "-c", strings.TrimSpace(fmt.Sprintf(format, args...))}
}
