//go:build integration

package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	imageapi "github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/lab"
)

// imageRace is a host on which images are pulled, built, tagged, run and collected at the same
// time.
type imageRace struct {
	t     *testing.T
	c     *lab.Containerd
	store imageapi.ImagesClient

	most    int64        // failed attempts of all users
	rounds  atomic.Int64 // containers that have still to run
	pulls   atomic.Int64
	builds  atomic.Int64
	runs    atomic.Int64
	ended   chan struct{} // holds a token after a round has ended
	asked   atomic.Int64  // requested collections that have ended
	slipped atomic.Int64  // pulls and containers whose image was removed during their creation
	lost    atomic.Int64  // containers that ran after their image was removed
}

// run runs a container as an orchestrator does: it pulls a missing image, and retries if the
// creation fails. Each attempt begins with prepare, unless that is nil. The container has to run to
// its end, whatever is collected.
func (r *imageRace) run(ctx context.Context, pod *lab.Pod, image string, prepare func() error) error {
	name := fmt.Sprint("run-", r.runs.Add(1))
	spec := lab.ContainerSpec{Name: name, Image: image, Command: []string{"sh", "-c", "cat /bin/busybox >/dev/null && exit 7"}}
	id := ""
	err := r.untilDone(ctx, func() (err error) {
		if prepare != nil {
			if err := prepare(); err != nil {
				return err
			}
		}
		id, err = r.c.RunContainer(ctx, pod, spec)
		spec.Attempt++
		return err
	})
	if err != nil {
		return err
	}
	status, err := r.c.AwaitExit(ctx, id)
	if err != nil {
		return err
	}
	if status.ExitCode != 7 {
		return fmt.Errorf("container %s of %s ended with %d (%s), want 7", name, image, status.ExitCode, status.Message)
	}
	there, err := r.c.Images.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: image}})
	if err != nil {
		return err
	}
	if there.Image == nil {
		r.lost.Add(1)
		r.t.Logf("image %s is gone although container %s uses it", image, name)
	}
	_, err = r.c.Runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
	return err
}

// untilDone makes further attempts as an orchestrator does. Each may fail: on a busy machine, an image that was just pulled is
// removed before its container exists. A collector that is always in the way is a fault.
func (r *imageRace) untilDone(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if r.slipped.Add(1) > r.most {
			return fmt.Errorf("%d attempts failed: %w", r.most, err)
		}
		r.t.Logf("%s, and is tried again", err)
		if err := r.settle(ctx); err != nil {
			return err
		}
	}
}

// settle waits for the end of the removal that was in the way, as an orchestrator does before it
// retries. Until then containerd lists the image, but creates no container from it. hostler runs
// one collection at a time, so a collection that started since and has ended is enough.
func (r *imageRace) settle(ctx context.Context) error {
	for before := r.asked.Load(); r.asked.Load() < before+2; {
		select {
		case r.ended <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// work does rounds until all are done or one fails.
func (r *imageRace) work(ctx context.Context, name string, round func(ctx context.Context, pod *lab.Pod, i int) error) error {
	pod, err := r.c.RunPod(ctx, lab.PodSpec{Name: name})
	if err != nil {
		return err
	}
	for i := 0; r.rounds.Add(-1) >= 0; i++ {
		if err := round(ctx, pod, i); err != nil {
			return fmt.Errorf("%s, round %d: %w", name, i, err)
		}
		select {
		case r.ended <- struct{}{}:
		default:
		}
	}
	return nil
}

// pull pulls an image as an orchestrator does, with retries: containerd fails a pull of an existing
// image if its removal starts meanwhile.
func (r *imageRace) pull(ctx context.Context, image string) error {
	r.pulls.Add(1)
	return r.untilDone(ctx, func() error {
		_, err := r.c.Images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}})
		return err
	})
}

// tag gives an image another name, as build tools do.
func (r *imageRace) tag(ctx context.Context, from, to string) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io")
	got, err := r.store.Get(ctx, &imageapi.GetImageRequest{Name: from})
	if err != nil {
		return err
	}
	_, err = r.store.Create(ctx, &imageapi.CreateImageRequest{Image: &imageapi.Image{Name: to, Target: got.GetImage().GetTarget()}})
	return err
}

// untag removes a name from an image, which stays with its other names.
func (r *imageRace) untag(ctx context.Context, name string) error {
	_, err := r.store.Delete(metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io"), &imageapi.DeleteImageRequest{Name: name})
	return err
}

// TestCollectionBreaksNoConcurrentUse pulls, builds, tags and runs images 100 times, with
// HOSTLER_TEST_LONG a thousand times. Meanwhile, everything unused for four seconds is collected
// every second, and after every few rounds on request. Running containers must be complete. If an
// image is removed while its container is being created, its user has to pull it again. That is
// limited to the window that CRI leaves.
func TestCollectionBreaksNoConcurrentUse(t *testing.T) {
	const shelf = 40
	rounds := 100
	if lab.Long() {
		rounds = 1000
	}
	t.Parallel()
	c := lab.ContainerdFor(t, lab.ContainerdOptions{ImageFSBytes: 1 << 30})
	conn, err := grpc.NewClient(c.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	defer conn.Close()
	r := &imageRace{t: t, c: c, store: imageapi.NewImagesClient(conn), ended: make(chan struct{}, 1), most: int64(rounds)}
	r.rounds.Store(int64(rounds))

	// Images share one layer, and have one each.
	shared, err := lab.RandomLayer(1 << 20)
	check(t, err)
	var names []string
	for i := range shelf {
		own, err := lab.RandomLayer(64 << 10)
		check(t, err)
		names = append(names, fmt.Sprintf("docker.io/library/shelf-%d:1", i))
		_, err = c.Pull(t.Context(), lab.ImageSpec{Names: []string{names[i]}, Layers: []lab.Layer{shared, own}})
		check(t, err)
	}
	for _, name := range []string{usedImage, deadImage, keptImage} {
		_, err = c.Pull(t.Context(), lab.ImageSpec{Names: []string{name}, Layers: []lab.Layer{shared}})
		check(t, err)
	}
	p := &imageHost{Containerd: c}
	steady := p.run(t, "steady", usedImage, lab.ServeFor(0))
	p.run(t, "dead", deadImage, lab.ExitWith(0))
	before, err := c.Container(t.Context(), steady.Containers["main"])
	check(t, err)

	a := startAgent(t, "runtimes: [{type: cri, endpoint: "+c.Endpoint+"}]\ncontainerGC: {interval: 1h}\n"+
		"imageGC: {interval: 1s, minimumAge: 3s, maximumAge: 4s, includeLocal: true, keep: [docker.io/acme/*]}\n")

	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var workers sync.WaitGroup
	failures := make(chan error, 8)
	start := func(name string, round func(ctx context.Context, pod *lab.Pod, i int) error) {
		workers.Go(func() {
			if err := r.work(ctx, name, round); err != nil {
				failures <- err
				cancel()
			}
		})
	}
	for w := range 3 { // each on images of its own, so that they are left for a while
		start(fmt.Sprint("puller-", w), func(ctx context.Context, pod *lab.Pod, i int) error {
			image := names[(i*3+w)%shelf]
			if err := r.pull(ctx, image); err != nil {
				return err
			}
			return r.run(ctx, pod, image, nil)
		})
	}
	start("user", func(ctx context.Context, pod *lab.Pod, i int) error { // takes what is there
		return r.run(ctx, pod, names[i*7%shelf], nil)
	})
	start("builder", func(ctx context.Context, pod *lab.Pod, i int) error {
		built, tagged := fmt.Sprintf("docker.io/library/built:%d", i), fmt.Sprintf("docker.io/library/release:%d", i)
		r.builds.Add(1)
		return r.run(ctx, pod, built, func() error { // no registry has it
			ctx, cancel := context.WithTimeout(ctx, time.Minute) // the import waits in vain if the image is removed before it is listed
			defer cancel()
			if _, err := c.Import(ctx, lab.ImageSpec{Names: []string{built}, Layers: []lab.Layer{shared}}); err != nil {
				return err
			}
			if err := r.tag(ctx, built, tagged); grpcstatus.Code(err) != codes.AlreadyExists {
				return err
			}
			return nil
		})
	})
	over := make(chan struct{})
	go func() { workers.Wait(); close(over) }()
	removed := 0
	var window time.Duration
	for running := true; running; {
		select {
		case <-over:
			running = false
		case <-r.ended:
		}
		report, err := a.api.Collect(t.Context(), api.CollectRequest{Images: true, AllUnused: true}, func(api.Step) {})
		check(t, err)
		r.asked.Add(1)
		removed += len(report.Removed)
		window = max(window, report.LongestWindow.Duration)
	}
	close(failures)
	for err := range failures {
		t.Error(err)
	}

	automatic := len(a.logLines("msg=\"image removed\"")) - removed
	t.Logf("%d runs, %d pulls, %d builds; %d collections on request removed %d images, those by themselves %d; %d pulls and containers had to be made again, %d containers lost their image; longest window %s",
		r.runs.Load(), r.pulls.Load(), r.builds.Load(), r.asked.Load(), removed, automatic, r.slipped.Load(), r.lost.Load(), window)
	if r.runs.Load() != int64(rounds) || removed < rounds/20 {
		t.Errorf("%d containers ran and %d images were removed on request, want %d, and enough to have been in each other's way", r.runs.Load(), removed, rounds)
	}
	if after, err := c.Container(t.Context(), steady.Containers["main"]); err != nil || after.State != cri.ContainerState_CONTAINER_RUNNING || after.StartedAt != before.StartedAt {
		t.Errorf("the container that ran all the time = %+v, %v, want it to run since %d", after, err, before.StartedAt)
	}
	left := images(t, c)
	for _, name := range []string{usedImage, deadImage, keptImage, c.SandboxImage} {
		if !left[name] {
			t.Errorf("image %s is gone", name)
		}
	}
	a.stop()
}
