package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// PodmanContainer describes a container of Podman.
type PodmanContainer struct {
	Name    string
	Image   string // an existing image
	Command []string
	Labels  map[string]string
	Pod     string // created with MakePod; none if empty

	StopSignal  string        // the image's if empty
	StopTimeout time.Duration // whole seconds; Podman's default if zero
	Restart     string        // policy, such as "always"; "no" if empty
	Flags       []string      // additional flags of `podman run`

	// Ready is a text that the container prints when it is ready. Run waits for it.
	Ready     string
	Unstarted bool // only created, not started
}

// Run creates a container, starts it, and returns its ID when it is ready.
func (p *Podman) Run(ctx context.Context, c PodmanContainer) (string, error) {
	args := []string{"run", "--detach"}
	if c.Unstarted {
		args = []string{"create"}
	}
	args = append(args, "--name", c.Name, "--pull", "never")
	if c.Pod == "" {
		args = append(args, "--network", "none", "--cgroup-parent", p.cgroup)
	} else {
		args = append(args, "--pod", c.Pod)
	}
	for key, value := range c.Labels {
		args = append(args, "--label", key+"="+value)
	}
	if c.StopSignal != "" {
		args = append(args, "--stop-signal", c.StopSignal)
	}
	if c.StopTimeout > 0 {
		args = append(args, "--stop-timeout", fmt.Sprint(int(c.StopTimeout/time.Second)))
	}
	if c.Restart != "" {
		args = append(args, "--restart", c.Restart)
	}
	id, err := p.Command(ctx, append(append(append(args, c.Flags...), c.Image), c.Command...)...)
	if err != nil || c.Ready == "" || c.Unstarted {
		return id, err
	}
	return id, p.AwaitOutput(ctx, id, c.Ready)
}

// MakePod creates a pod without a network, starts it, and returns its ID.
func (p *Podman) MakePod(ctx context.Context, name string, labels map[string]string) (string, error) {
	args := []string{"pod", "create", "--name", name, "--network", "none", "--cgroup-parent", p.cgroup}
	for key, value := range labels {
		args = append(args, "--label", key+"="+value)
	}
	id, err := p.Command(ctx, args...)
	if err == nil {
		_, err = p.Command(ctx, "pod", "start", id)
	}
	return id, err
}

// AwaitOutput waits until a container has printed a text.
func (p *Podman) AwaitOutput(ctx context.Context, id, text string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		printed, err := os.ReadFile(filepath.Join(p.Root, p.Driver+"-containers", id, "userdata", "ctr.log"))
		if err == nil && strings.Contains(string(printed), text) {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("container %s has not printed %q, but %q", id, text, printed), err)
		}
	}
}

// Load creates an image and loads it like one that was built on this host: it is in no registry. It
// returns the image's ID.
func (p *Podman) Load(ctx context.Context, spec ImageSpec) (id string, err error) {
	archive, err := os.CreateTemp(p.dir, "image-")
	if err != nil {
		return "", err
	}
	defer os.Remove(archive.Name())
	if err := errors.Join(p.lab.Archive(spec, archive), archive.Close()); err != nil {
		return "", fmt.Errorf("load image: %w", err)
	}
	if _, err := p.Command(ctx, "load", "--quiet", "--input", archive.Name()); err != nil {
		return "", err
	}
	return p.imageID(ctx, spec.Names[0])
}

// Share copies an image into another folder. Podman also uses the images in that folder, but may
// not change them (additionalimagestores). Share restarts the service, which reads that
// configuration only at its start.
func (p *Podman) Share(ctx context.Context, name string) error {
	shared := filepath.Join(p.dir, "shared")
	archive := shared + ".tar"
	if _, err := p.Command(ctx, "save", "--quiet", "--output", archive, name); err != nil {
		return err
	}
	if _, err := p.Command(ctx, "--root", shared, "--runroot", shared+"-run", "--tmpdir", shared+"-tmp", "--storage-driver", p.Driver, "load", "--quiet", "--input", archive); err != nil {
		return err
	}
	config := p.storage() + fmt.Sprintf("[storage.options]\nadditionalimagestores = [%q]\n", shared)
	if err := os.WriteFile("/etc/containers/storage.conf", []byte(config), 0o644); err != nil {
		return err
	}
	return errors.Join(p.Kill(), p.Start(), p.Ready(ctx))
}

// Pull creates an image, pushes it to the lab's registry and pulls it under all its names, which
// are names in that registry. It returns the image's ID.
func (p *Podman) Pull(ctx context.Context, spec ImageSpec) (id string, err error) {
	if err := p.lab.push(ctx, p.Registry, spec); err != nil {
		return "", err
	}
	for _, ref := range spec.Names {
		if _, err := p.Command(ctx, "pull", "--quiet", ref); err != nil {
			return "", err
		}
	}
	return p.imageID(ctx, spec.Names[0])
}

func (p *Podman) imageID(ctx context.Context, name string) (string, error) {
	return p.Command(ctx, "image", "inspect", "--format", "{{.Id}}", name)
}
