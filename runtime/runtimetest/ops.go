package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
)

// killedCode is the exit code after SIGKILL: 128 plus the signal's number.
const killedCode = 137

// Info implements runtime.Informer.
func (f *Fake) Info(ctx context.Context) (runtime.Info, error) {
	fault, finish, err := f.begin(ctx, Info, "", 0)
	if err = finish(err); err != nil {
		return runtime.Info{}, err
	}
	if fault.InvalidAnswers {
		return runtime.Info{}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.info, nil
}

// Pods lists pods in order of creation.
func (f *Fake) Pods(ctx context.Context) ([]runtime.Pod, error) {
	fault, finish, err := f.begin(ctx, Pods, "", 0)
	if err = finish(err); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	pods := make([]runtime.Pod, 0, len(f.pods))
	for _, p := range f.pods {
		pods = append(pods, clonePod(p))
	}
	if fault.InvalidAnswers {
		pods = append(pods, runtime.Pod{Runtime: f.opts.Name, ID: f.newID("nonsense"), Containers: []runtime.Container{{
			Runtime: f.opts.Name, ID: f.newID("nonsense"), State: 99,
			CreatedAt: time.Now().AddDate(100, 0, 0), FinishedAt: time.Unix(-1, 0), ExitCode: math.MinInt32,
		}}})
	}
	return sanitize.Clean(pods), nil
}

// Images lists images in order of addition.
func (f *Fake) Images(ctx context.Context) ([]runtime.Image, error) {
	fault, finish, err := f.begin(ctx, Images, "", 0)
	if err = finish(err); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	images := make([]runtime.Image, 0, len(f.images))
	for _, i := range f.images {
		images = append(images, cloneImage(i))
	}
	if fault.InvalidAnswers {
		for i := range images {
			images[i].SizeBytes, images[i].CreatedAt = math.MaxUint64, time.Now().AddDate(100, 0, 0)
			images[i].Tags, images[i].Digests = []string{"", ":@"}, nil
		}
	}
	return sanitize.Clean(images), nil
}

// ImageFilesystems returns the filesystem in Options.
func (f *Fake) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	fault, finish, err := f.begin(ctx, ImageFilesystems, "", 0)
	if err = finish(err); err != nil {
		return nil, err
	}
	if fault.InvalidAnswers {
		return []runtime.Filesystem{{Runtime: f.opts.Name, Path: "nowhere", Mountpoint: "/no/such/mount"}}, nil
	}
	return []runtime.Filesystem{{
		Runtime: f.opts.Name, Path: f.opts.Path, Mountpoint: f.opts.Mountpoint, Device: f.opts.Device,
	}}, nil
}

// StopContainer sends TERM, and KILL after grace, or does what the unit does. If ctx ends before
// the grace, it does not send KILL, as in containerd.
func (f *Fake) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	_, finish, err := f.begin(ctx, StopContainer, c.ID, grace)
	if err == nil {
		err = f.stopContainer(ctx, c.ID, grace)
	}
	return finish(err)
}

func (f *Fake) stopContainer(ctx context.Context, id string, grace time.Duration) error {
	f.mu.Lock()
	c := f.container(id)
	if c == nil || c.State == runtime.Exited || c.State == runtime.Created {
		f.mu.Unlock()
		return nil
	}
	ended := c.ended
	f.mu.Unlock()
	if grace > 0 {
		if c.spec.UnitWaits > 0 {
			if over, err := f.within(ctx, c.spec.UnitWaits, ended); over || err != nil {
				return err
			}
		}
		f.mu.Lock()
		f.terminate(c)
		f.mu.Unlock()
		if c.UnitGrace != nil {
			grace = min(grace, *c.UnitGrace)
		}
		if over, err := f.within(ctx, grace, ended); over || err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.kill(c)
	f.mu.Unlock()
	if err := f.wait(ctx, nil, ended); err != nil || c.Unit == "" {
		return err
	}
	return runtime.ErrKilled
}

// within waits up to d for a container to end, and reports whether it has.
func (f *Fake) within(ctx context.Context, d time.Duration, ended <-chan struct{}) (over bool, err error) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ended:
		return true, nil
	case <-ctx.Done():
		return false, ctx.Err() // the caller's ctx ended; the runtime works
	case <-f.closed:
		return false, fmt.Errorf("%w: closed", runtime.ErrUnavailable)
	case <-timer.C:
		return false, nil
	}
}

// terminate sends TERM. The container then ends by itself, even if nobody waits for it. The caller
// holds mu.
func (f *Fake) terminate(c *container) {
	f.seen.signals = append(f.seen.signals, Signal{ContainerID: c.ID, Name: "TERM", At: time.Now()})
	if c.spec.IgnoresTERM || c.spec.Unkillable || c.dying != nil {
		return
	}
	if c.spec.EndsAfter == 0 {
		f.end(c, c.spec.ExitCode)
		return
	}
	c.dying = time.AfterFunc(c.spec.EndsAfter, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.end(c, c.spec.ExitCode)
	})
}

// kill sends KILL. The caller holds mu.
func (f *Fake) kill(c *container) {
	if c.State == runtime.Exited {
		return
	}
	f.seen.signals = append(f.seen.signals, Signal{ContainerID: c.ID, Name: "KILL", At: time.Now()})
	if !c.spec.Unkillable {
		f.end(c, killedCode)
	}
}

// StopPod kills the running containers of the pod and makes it not ready.
func (f *Fake) StopPod(ctx context.Context, p runtime.Pod) error {
	_, finish, err := f.begin(ctx, StopPod, p.ID, 0)
	if err == nil {
		err = f.stopPod(ctx, p.ID)
	}
	return finish(err)
}

func (f *Fake) stopPod(ctx context.Context, id string) error {
	f.mu.Lock()
	p := f.pod(id)
	if p == nil {
		f.mu.Unlock()
		return nil
	}
	containers := slices.Clone(p.containers)
	for _, c := range containers {
		if c.State == runtime.Running || c.State == runtime.Unknown {
			f.kill(c)
		}
	}
	f.mu.Unlock()
	for _, c := range containers {
		if c.spec.Unkillable {
			if err := f.wait(ctx, nil, c.ended); err != nil {
				return err
			}
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p.Ready {
		p.Ready = false
		f.publish(runtime.Event{Type: runtime.ContainerExited, ContainerID: p.ID})
	}
	return nil
}

// RemoveContainer refuses a container that runs or may run.
func (f *Fake) RemoveContainer(ctx context.Context, c runtime.Container) error {
	_, finish, err := f.begin(ctx, RemoveContainer, c.ID, 0)
	if err == nil {
		err = f.removeContainer(c.ID)
	}
	return finish(err)
}

func (f *Fake) removeContainer(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.container(id)
	if c == nil {
		return nil
	}
	if c.State != runtime.Exited && c.State != runtime.Created {
		return fmt.Errorf("%w: its state is %v", runtime.ErrInUse, c.State)
	}
	p := f.pod(c.PodID)
	f.free(func() {
		p.containers = slices.DeleteFunc(p.containers, func(o *container) bool { return o == c })
		delete(f.byID, id)
	})
	f.publish(runtime.Event{Type: runtime.ContainerRemoved, ContainerID: id})
	if f.opts.NoSandboxes && len(p.containers) == 0 {
		delete(f.podByID, p.ID)
		f.pods = slices.DeleteFunc(f.pods, func(o *pod) bool { return o == p })
	}
	return nil
}

// RemovePod refuses a pod that is ready or has containers.
func (f *Fake) RemovePod(ctx context.Context, p runtime.Pod) error {
	_, finish, err := f.begin(ctx, RemovePod, p.ID, 0)
	if err == nil {
		err = f.removePod(p.ID)
	}
	return finish(err)
}

func (f *Fake) removePod(id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.pod(id)
	switch {
	case f.opts.NoSandboxes:
		return fmt.Errorf("%w: pods are their containers", runtime.ErrUnsupported)
	case p == nil:
		return nil
	case p.Ready:
		return fmt.Errorf("%w: the pod is ready", runtime.ErrInUse)
	case len(p.containers) > 0:
		return fmt.Errorf("%w: the pod has %d containers", runtime.ErrInUse, len(p.containers))
	}
	delete(f.podByID, id)
	f.pods = slices.DeleteFunc(f.pods, func(o *pod) bool { return o == p })
	f.publish(runtime.Event{Type: runtime.ContainerRemoved, ContainerID: id})
	return nil
}

// RemoveImage removes an image with all its names. Its layers stay while another image or a
// container uses them.
func (f *Fake) RemoveImage(ctx context.Context, img runtime.Image) error {
	_, finish, err := f.begin(ctx, RemoveImage, img.ID, 0)
	if err == nil {
		err = f.removeImage(ctx, img.ID)
	}
	return finish(err)
}

func (f *Fake) removeImage(ctx context.Context, id string) error {
	f.mu.Lock()
	if f.opts.RefusesInUse && f.uses(id) {
		f.mu.Unlock()
		return fmt.Errorf("%w: a container uses it", runtime.ErrInUse)
	}
	f.mu.Unlock()
	if _, err := f.pass(ctx, RemoveImageWindow, id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	at := slices.IndexFunc(f.images, func(i *image) bool { return i.ID == id })
	if at < 0 {
		return nil
	}
	if f.uses(id) {
		f.seen.removedInUse = append(f.seen.removedInUse, id)
	}
	names := f.images[at].Names()
	f.free(func() { f.images = slices.Delete(f.images, at, at+1) })
	for _, name := range names {
		f.publish(runtime.Event{Type: runtime.ImageRemoved, Image: name})
	}
	return nil
}

// uses reports whether any container, even a dead one, uses the image. The caller holds mu.
func (f *Fake) uses(imageID string) bool {
	return slices.ContainsFunc(f.containers(), func(c *container) bool { return c.ImageID == imageID })
}

// subscriber is one Watch in progress.
type subscriber struct {
	queue []runtime.Event // guarded by Fake.mu
	wake  chan struct{}   // has a token if queue may have grown
	ended chan struct{}   // closed by EndWatches
}

// Watch delivers all events from its start on, in order.
func (f *Fake) Watch(ctx context.Context, events chan<- runtime.Event) error {
	_, finish, err := f.begin(ctx, Watch, "", 0)
	if err == nil {
		err = f.watch(ctx, events)
	}
	return finish(err)
}

func (f *Fake) watch(ctx context.Context, events chan<- runtime.Event) error {
	s := &subscriber{wake: make(chan struct{}, 1), ended: make(chan struct{})}
	f.mu.Lock()
	f.subscribers = append(f.subscribers, s)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.subscribers = slices.DeleteFunc(f.subscribers, func(o *subscriber) bool { return o == s })
	}()
	for {
		f.mu.Lock()
		queue := s.queue
		s.queue = nil
		f.mu.Unlock()
		for _, e := range queue {
			select {
			case events <- e:
			case <-ctx.Done():
				return ctx.Err()
			case <-s.ended:
				return errStreamEnded
			case <-f.closed:
				return errStreamEnded
			}
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ended:
			return errStreamEnded
		case <-f.closed:
			return errStreamEnded
		}
	}
}

var errStreamEnded = fmt.Errorf("%w: %w", runtime.ErrUnavailable, errors.New("the runtime ended the stream"))

// EndWatches ends every Watch in progress, as a restart of the runtime does.
func (f *Fake) EndWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.subscribers {
		close(s.ended)
	}
	f.subscribers = nil
}

// publish passes an event to all watchers. The caller holds mu.
func (f *Fake) publish(e runtime.Event) {
	e.Runtime, e.Time = f.opts.Name, time.Now()
	for _, s := range f.subscribers {
		s.queue = append(s.queue, e)
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}
