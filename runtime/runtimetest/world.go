package runtimetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// PodSpec describes a pod to run. Missing IDs and times are generated.
type PodSpec struct {
	ID, UID, Name, Namespace string
	Labels, Annotations      map[string]string
	CreatedAt                time.Time // now if zero
	Containers               []ContainerSpec
}

// ContainerSpec describes a container, and how it reacts to a stop. By default it ends as soon as
// it gets TERM. It has a field for each behavior.
type ContainerSpec struct {
	ID, Name            string
	Image               string // ID or name of an image of the Fake
	Labels, Annotations map[string]string
	CreatedAt           time.Time // now if zero
	WritableBytes       uint64    // its own, freed when it is removed
	StopTimeout         *time.Duration
	Unit                string
	UnitGrace           *time.Duration
	UnitWaits           time.Duration // how long other units stop before its unit
	StopsBefore, Joins  []string      // IDs
	Restart             runtime.Restart
	Restarting          bool

	State      runtime.ContainerState // Running if Unknown
	StartedAt  time.Time              // CreatedAt if zero
	FinishedAt time.Time              // of an Exited container; now if zero

	EndsAfter   time.Duration // from TERM to its end
	IgnoresTERM bool
	Unkillable  bool  // as in uninterruptible sleep: only Exit ends it
	ExitCode    int32 // after TERM, or of an Exited container
}

// ImageSpec describes an image. A missing ID is generated. An image without layers gets its own
// layer of 10 MiB.
type ImageSpec struct {
	ID            string
	Tags, Digests []string
	Layers        []Layer
	ReportedBytes uint64 // size in lists; the sum of the layers if zero
	Pinned        bool
	CreatedAt     time.Time // in lists
	Labels        map[string]string
}

// Layer is a part that images share: two layers with the same ID take their space once.
type Layer struct {
	ID     string
	Bytes  uint64
	Inodes uint64 // one for each 10 kB if zero
}

// AddImage adds an image. Names of other images move to it, as when a newer version is pulled.
func (f *Fake) AddImage(spec ImageSpec) runtime.Image {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := cmp.Or(spec.ID, "sha256:"+f.newID("image"))
	if f.image(id) != nil {
		panic(fmt.Sprintf("image %s is there already", id))
	}
	layers := slices.Clone(spec.Layers)
	if len(layers) == 0 {
		layers = []Layer{{ID: "layer of " + id, Bytes: 10 << 20}}
	}
	var sum uint64
	for i := range layers {
		layers[i].Inodes = cmp.Or(layers[i].Inodes, layers[i].Bytes/10_000)
		sum += layers[i].Bytes
	}
	for _, other := range f.images {
		other.Tags = slices.DeleteFunc(other.Tags, func(t string) bool { return slices.Contains(spec.Tags, t) })
	}
	img := &image{layers: layers, Image: runtime.Image{
		Runtime: f.opts.Name, ID: id, Tags: slices.Clone(spec.Tags), Digests: slices.Clone(spec.Digests),
		SizeBytes: cmp.Or(spec.ReportedBytes, sum), Pinned: spec.Pinned, CreatedAt: spec.CreatedAt, Labels: maps.Clone(spec.Labels),
	}}
	f.images = append(f.images, img)
	for _, name := range img.Names() {
		f.publish(runtime.Event{Type: runtime.ImageAdded, Image: name})
	}
	return cloneImage(img)
}

// RunPod creates a ready pod with its containers.
func (f *Fake) RunPod(spec PodSpec) runtime.Pod {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := cmp.Or(spec.ID, f.newID("pod"))
	if f.pod(id) != nil {
		panic(fmt.Sprintf("pod %s is there already", id))
	}
	p := &pod{Pod: runtime.Pod{
		Runtime: f.opts.Name, ID: id, UID: cmp.Or(spec.UID, id), Name: spec.Name, Namespace: spec.Namespace,
		Ready: true, Sandbox: !f.opts.NoSandboxes, CreatedAt: orNow(spec.CreatedAt), Labels: maps.Clone(spec.Labels), Annotations: maps.Clone(spec.Annotations),
	}}
	f.pods = append(f.pods, p)
	f.podByID[p.ID] = p
	for _, c := range spec.Containers {
		f.addContainer(p, c)
	}
	return clonePod(p)
}

// AddContainer adds a container to a pod.
func (f *Fake) AddContainer(podID string, spec ContainerSpec) runtime.Container {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pod(podID)
	if p == nil {
		panic(fmt.Sprintf("there is no pod %s", podID))
	}
	return cloneContainer(f.addContainer(p, spec))
}

// addContainer adds a container that uses the image's layers, as a snapshot does. The caller holds
// mu.
func (f *Fake) addContainer(p *pod, spec ContainerSpec) *container {
	img := f.image(spec.Image)
	if img == nil {
		panic(fmt.Sprintf("container %q: there is no image %q", spec.Name, spec.Image))
	}
	if spec.State == runtime.Unknown {
		spec.State = runtime.Running
	}
	c := &container{spec: spec, layers: img.layers, ended: make(chan struct{}), Container: runtime.Container{
		Runtime: f.opts.Name, ID: cmp.Or(spec.ID, f.newID("container")), PodID: p.ID, Name: spec.Name,
		Image: spec.Image, ImageID: img.ID, State: spec.State, CreatedAt: orNow(spec.CreatedAt),
		StopTimeout: spec.StopTimeout, Unit: spec.Unit, UnitGrace: spec.UnitGrace, StopsBefore: slices.Clone(spec.StopsBefore), Joins: slices.Clone(spec.Joins), Restart: spec.Restart, Restarting: spec.Restarting,
		Labels: maps.Clone(spec.Labels), Annotations: maps.Clone(spec.Annotations),
	}}
	if f.container(c.ID) != nil {
		panic(fmt.Sprintf("container %s is there already", c.ID))
	}
	if c.began = spec.StartedAt; c.began.IsZero() {
		c.began = c.CreatedAt
	}
	f.publish(runtime.Event{Type: runtime.ContainerCreated, ContainerID: c.ID, Image: spec.Image})
	switch c.State {
	case runtime.Running:
		c.StartedAt = c.latestRun()
		f.publish(runtime.Event{Type: runtime.ContainerStarted, ContainerID: c.ID})
	case runtime.Exited:
		c.StartedAt, c.FinishedAt, c.ExitCode = c.began, orNow(spec.FinishedAt), spec.ExitCode
		close(c.ended)
	}
	p.containers = append(p.containers, c)
	f.byID[c.ID] = c
	return c
}

// Exit ends a running container now, as if it ended by itself.
func (f *Fake) Exit(containerID string, code int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.container(containerID)
	if c == nil {
		panic(fmt.Sprintf("there is no container %s", containerID))
	}
	f.end(c, code)
}

// SetState sets a state that no call causes, such as Unknown.
func (f *Fake) SetState(containerID string, state runtime.ContainerState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.container(containerID)
	if c == nil || c.State == runtime.Exited || state == runtime.Exited {
		panic(fmt.Sprintf("container %s: it must not be Exited before or after", containerID))
	}
	c.State = state
}

// TakePod removes a pod and its containers, as another client would.
func (f *Fake) TakePod(podID string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pod(podID)
	if p == nil {
		panic(fmt.Sprintf("there is no pod %s", podID))
	}
	f.free(func() {
		for _, c := range p.containers {
			f.end(c, killedCode)
			f.publish(runtime.Event{Type: runtime.ContainerRemoved, ContainerID: c.ID})
			delete(f.byID, c.ID)
		}
		delete(f.podByID, p.ID)
		f.pods = slices.DeleteFunc(f.pods, func(o *pod) bool { return o == p })
	})
}

// end marks a container as dead, once. The caller holds mu.
func (f *Fake) end(c *container, code int32) {
	if c.State == runtime.Exited {
		return
	}
	if c.dying != nil {
		c.dying.Stop()
	}
	c.State, c.StartedAt, c.FinishedAt, c.ExitCode = runtime.Exited, c.began, time.Now(), code
	close(c.ended)
	f.publish(runtime.Event{Type: runtime.ContainerExited, ContainerID: c.ID})
}

func orNow(t time.Time) time.Time {
	if t.IsZero() {
		return time.Now()
	}
	return t
}

func clonePod(p *pod) runtime.Pod {
	c := p.Pod
	c.Labels, c.Annotations = maps.Clone(p.Labels), maps.Clone(p.Annotations)
	for _, ctr := range p.containers {
		c.Containers = append(c.Containers, cloneContainer(ctr))
	}
	if !c.Sandbox {
		c.Ready = slices.ContainsFunc(c.Containers, func(o runtime.Container) bool { return o.State == runtime.Running })
	}
	return c
}

func cloneContainer(c *container) runtime.Container {
	o := c.Container
	o.Labels, o.Annotations = maps.Clone(c.Labels), maps.Clone(c.Annotations)
	return o
}

func cloneImage(i *image) runtime.Image {
	c := i.Image
	c.Tags, c.Digests, c.Labels = slices.Clone(i.Tags), slices.Clone(i.Digests), maps.Clone(i.Labels)
	return c
}
