package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// DockerContainer describes a container of Docker. With a Project it has the labels by which Docker
// Compose finds its containers.
type DockerContainer struct {
	Name    string // chosen by Docker if empty
	Image   string // an existing image
	Command []string
	Labels  map[string]string

	Project   string
	Service   string   // equals Name if empty
	DependsOn []string // services

	StopSignal  string        // the image's if empty
	StopTimeout time.Duration // whole seconds; Docker's default if zero
	Restart     string        // policy, such as "always"; "no" if empty

	// Ready is a text that the container prints when it is ready. Run waits for it.
	Ready     string
	Unstarted bool // only created, not started
}

// Labels of Docker Compose, as version 2 writes them.
const (
	composeProject   = "com.docker.compose.project"
	composeService   = "com.docker.compose.service"
	composeNumber    = "com.docker.compose.container-number"
	composeOneOff    = "com.docker.compose.oneoff"
	composeDependsOn = "com.docker.compose.depends_on"
)

func (c DockerContainer) labels() map[string]string {
	labels := map[string]string{}
	if c.Project != "" {
		needs := make([]string, len(c.DependsOn))
		for i, service := range c.DependsOn {
			needs[i] = service + ":service_started:false"
		}
		labels[composeProject], labels[composeNumber], labels[composeOneOff] = c.Project, "1", "False"
		labels[composeService] = c.Name
		if c.Service != "" {
			labels[composeService] = c.Service
		}
		labels[composeDependsOn] = strings.Join(needs, ",")
	}
	maps.Copy(labels, c.Labels)
	return labels
}

// Run creates a container, starts it, and returns its ID when it is ready.
func (d *Docker) Run(ctx context.Context, c DockerContainer) (string, error) {
	id, err := d.run(ctx, c)
	if err != nil {
		return "", fmt.Errorf("run container %s: %w", c.Name, err)
	}
	return id, nil
}

func (d *Docker) run(ctx context.Context, c DockerContainer) (string, error) {
	config := &container.Config{Image: c.Image, Cmd: c.Command, Labels: c.labels(), StopSignal: c.StopSignal}
	if c.StopTimeout > 0 {
		seconds := int(c.StopTimeout / time.Second)
		config.StopTimeout = &seconds
	}
	created, err := d.API.ContainerCreate(ctx, client.ContainerCreateOptions{Name: c.Name, Config: config, HostConfig: &container.HostConfig{
		NetworkMode:   "none",
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyMode(c.Restart)},
	}})
	if err != nil || c.Unstarted {
		return created.ID, err
	}
	if _, err := d.API.ContainerStart(ctx, created.ID, client.ContainerStartOptions{}); err != nil {
		return "", err
	}
	if c.Ready == "" {
		return created.ID, nil
	}
	return created.ID, d.AwaitOutput(ctx, created.ID, c.Ready)
}

// AwaitOutput waits until a container has printed a text.
func (d *Docker) AwaitOutput(ctx context.Context, id, text string) error {
	return d.Await(ctx, func(ctx context.Context) error {
		printed, err := d.Output(ctx, id)
		if err == nil && !strings.Contains(printed, text) {
			err = fmt.Errorf("container %s has not printed %q, but %q", id, text, printed)
		}
		return err
	})
}

// Output returns the output of a container so far.
func (d *Docker) Output(ctx context.Context, id string) (string, error) {
	logs, err := d.API.ContainerLogs(ctx, id, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return "", err
	}
	defer logs.Close()
	var out bytes.Buffer
	_, err = stdcopy.StdCopy(&out, &out, logs)
	return out.String(), err
}

// AwaitEnd waits until a container has ended, and returns its exit code.
func (d *Docker) AwaitEnd(ctx context.Context, id string) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	wait := d.API.ContainerWait(ctx, id, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
	select {
	case end := <-wait.Result:
		return end.StatusCode, nil
	case err := <-wait.Error:
		return 0, fmt.Errorf("wait for container %s: %w", id, err)
	}
}

// Load creates an image and loads it like one that was built on this host: it is in no registry,
// and has no digest. It returns the image's ID.
func (d *Docker) Load(ctx context.Context, spec ImageSpec) (id string, err error) {
	var archive bytes.Buffer
	if err := d.lab.Archive(spec, &archive); err != nil {
		return "", fmt.Errorf("load image: %w", err)
	}
	reply, err := d.API.ImageLoad(ctx, &archive, client.ImageLoadWithQuiet(true))
	if err != nil {
		return "", fmt.Errorf("load image %s: %w", spec.Names[0], err)
	}
	// The image is loaded at the end of the answer.
	text, err := io.ReadAll(reply)
	if err := errors.Join(err, reply.Close()); err != nil {
		return "", fmt.Errorf("load image %s: %w", spec.Names[0], err)
	}
	image, err := d.API.ImageInspect(ctx, spec.Names[0])
	if err != nil {
		return "", fmt.Errorf("load image %s: %w: %s", spec.Names[0], err, text)
	}
	return image.ID, nil
}

// Reference returns the name of an image in the lab's registry, for Pull. Without the address of
// the registry, Docker would use public registries.
func (d *Docker) Reference(repository string) string { return d.Registry.Address + "/" + repository }

// Pull creates an image, pushes it to the registry and pulls it under all its names, so that it has
// a digest. The names are results of Reference. It returns the image's ID.
func (d *Docker) Pull(ctx context.Context, spec ImageSpec) (id string, err error) {
	if i := slices.IndexFunc(spec.Names, func(name string) bool { return !strings.HasPrefix(name, d.Registry.Address+"/") }); i >= 0 {
		return "", fmt.Errorf("pull image %s: it is not of the lab's registry, see Reference", spec.Names[i])
	}
	if err := d.lab.push(ctx, d.Registry, spec); err != nil {
		return "", err
	}
	for _, ref := range spec.Names {
		pull, err := d.API.ImagePull(ctx, ref, client.ImagePullOptions{})
		if err == nil {
			err = pull.Wait(ctx)
		}
		if err != nil {
			return "", fmt.Errorf("pull image %s: %w", ref, err)
		}
	}
	image, err := d.API.ImageInspect(ctx, spec.Names[0])
	if err != nil {
		return "", fmt.Errorf("pull image %s: %w", spec.Names[0], err)
	}
	return image.ID, nil
}
