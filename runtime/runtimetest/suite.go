package runtimetest

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
)

// Driver controls the runtime under test without the adapter. If a method cannot do its task, it
// fails the test.
type Driver interface {
	// Abilities returns which optional features the runtime has.
	Abilities() Abilities
	// AddImage creates a new image with unique content and Labels, with all tags.
	AddImage(t testing.TB, tags ...string)
	// AddPinnedImage is AddImage for an image that the runtime is configured to keep.
	AddPinnedImage(t testing.TB, tag string)
	// RunPod starts a pod with Labels and the given programs as its containers, and returns when
	// they have started, except those that never start. If pods have no labels of their own, all
	// containers have these.
	RunPod(t testing.TB, namespace, name string, programs ...Program)
	// Hang makes the runtime stop answering, with its socket open, until resume. It returns when
	// the runtime certainly does not answer. resume may be called twice.
	Hang(t testing.TB) (resume func())
	// Crash kills the runtime. restart starts it again with its pods, images and containers.
	Crash(t testing.TB) (restart func())
}

// Restarter is the Driver of a runtime with the ability Starts.
type Restarter interface {
	// Rerun stops a container, if it runs, and starts it again, without the adapter.
	Rerun(t testing.TB, id string)
}

// Abilities are features that not every runtime has. A runtime without one must behave as package
// runtime describes, so each ability changes the result of a case.
type Abilities struct {
	// Sandboxes: pods are sandboxes, see runtime.Pod. Otherwise a pod is its containers, and
	// disappears with the last one.
	Sandboxes bool
	// PodsStay: pods that are not sandboxes remain without containers, because they can be started
	// again.
	PodsStay bool
	// Namespaces: pods have a namespace.
	Namespaces bool
	// RefusesImagesInUse: the runtime refuses to remove an image that a container uses, running or
	// not.
	RefusesImagesInUse bool
	// Pins: the runtime can be configured to keep an image.
	Pins bool
	// ReportsCreation: a watcher receives the creation of a container with its image. So even a
	// container that is removed before the next list counts as a use of the image.
	ReportsCreation bool
	// Starts: the adapter is a runtime.Starter, and the runtime reports who starts containers
	// again.
	Starts bool
	// Bare: the runtime has only containers. There is no server that could hang; after a Crash, the
	// facts about containers are missing. There are no images, each pod has one container of the
	// same name, and ends are not recorded. It excludes the other abilities.
	Bare bool
}

// Labels are the labels of pods and images. One contains terminal sequences.
func Labels() map[string]string {
	return map[string]string{
		runtime.LabelCritical: "true", runtime.LabelPriority: "7", runtime.LabelGracePeriod: "45s", runtime.LabelKeep: "true",
		labelHostile: "\x1b]0;title\x07\x1b[31mred\nforged row\tcell\u202e",
	}
}

// LargeLabels are Labels and one that is very large. containerd refuses such labels.
func LargeLabels() map[string]string {
	labels := Labels()
	labels[labelLarge] = strings.Repeat("x", 100<<10)
	return labels
}

// Values of labels that no adapter may return unchanged.
const (
	labelHostile = "hostler.io/hostile"
	labelLarge   = "hostler.io/large"
)

// Program is a container of a pod that a Driver runs. Its label "program" is its name.
type Program struct {
	Name  string
	Image string // a tag passed to AddImage
	Does  Behaviour
}

// Behaviour is the behavior of a container's program.
type Behaviour int

// The behaviors of programs.
const (
	EndsOnTERM   Behaviour = iota // runs until TERM, then exits with TermCode
	IgnoresTERM                   // runs until it is killed
	EndsAtOnce                    // exits with EndCode right after its start
	NeverStarted                  // is created, but not started
)

// Exit codes of programs.
const (
	TermCode int32 = 7
	EndCode  int32 = 3
)

// Factory returns a runtime without pods, and its driver, for one test. It registers their cleanup,
// including the runtime's Close, with t.Cleanup.
type Factory func(t *testing.T) (runtime.Runtime, Driver)

// CloseAtEnd closes a runtime at the end of the test, and checks that this succeeds.
func CloseAtEnd(t testing.TB, r runtime.Runtime) {
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close() = %v", err)
		}
	})
}

// patience bounds every wait for an event that must occur.
const patience = 5 * time.Minute

// hangs is the case in which the runtime hangs.
const hangs = "a hanging runtime is unavailable after a deadline"

// Query returns the timeout of queries for the runtime of a Factory: hanging in the case in which
// the runtime hangs, otherwise longer than any machine takes.
func Query(t testing.TB, hanging time.Duration) time.Duration {
	if strings.HasSuffix(t.Name(), "/"+strings.ReplaceAll(hangs, " ", "_")) {
		return hanging
	}
	return patience
}

// Run tests that the runtimes of the factory satisfy runtime.Runtime. Each case uses its own
// runtime and real time.
func Run(t *testing.T, factory Factory) { run(t, factory) }

// run returns the results of the cases, or nil if one failed or was skipped.
func run(t *testing.T, factory Factory) []Result {
	var results []Result
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := start(t, factory)
			c.test(b)
			if !t.Failed() {
				results = append(results, Result{c.name, c.unsupported(b.driver.Abilities())})
			}
		})
	}
	if len(results) < len(cases) {
		return nil
	}
	return results
}

// RunInBubble is Run with each case in a testing/synctest bubble, for runtimes that live in the
// test's process and use no network.
func RunInBubble(t *testing.T, factory Factory) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.test(start(t, factory)) })
		})
	}
}

// cases are the suite, in the order of the roles. If a runtime lacks an ability, a case tests that
// it behaves as package runtime describes.
var cases = [...]struct {
	name        string
	test        func(*bench)
	unsupported func(Abilities) string // why such a runtime lacks the feature; empty if it has it
}{
	{"the runtime reports its name, version and readiness", testInfo, nothing},
	{"each image filesystem is an existing mount", testFilesystems, noImages},
	{"an empty runtime returns empty lists", testEmpty, nothing},
	{"a pod is listed with its containers and images", testPods, nothing},
	{"an image is listed with all its names", testImages, noImages},
	{"labels of running and dead pods, and of images, are reported", testLabels, nothing},
	{"pinned images are reported", testPinned, noPins},
	{"a container reports its image ID, also if the tag has moved", testUse, noImages},
	{"a container that was never started is reported with its image", testUnstarted, nothing},
	{"exit code and exit time are reported", testExit, noEnds},
	{"a container that handles SIGTERM ends within its grace period", testStopSignals, nothing},
	{"a container that ignores SIGTERM is killed after its grace period", testStopIgnores, nothing},
	{"a grace period of zero kills at once", testStopZero, nothing},
	{"stopping a dead or missing container succeeds", testStopIdempotent, nothing},
	{"a stopped pod is not ready and runs nothing", testStopPod, nothing},
	{"a dead container can be started again", testStart, noStart},
	{"a running container is not removed", testRemoveRunning, nothing},
	{"a dead container is removed; repeating that succeeds", testRemoveDead, nothing},
	{"a dead, empty pod is removed; repeating that succeeds", testRemovePod, noSandbox},
	{"an image is removed with all its names; repeating that succeeds", testRemoveImage, noImages},
	{"the runtime refuses to remove an image in use", testRemoveImageInUse, noRefusal},
	{"events report starts, exits and removals", testWatch, nothing},
	{"events report the image of a new container", testMaking, noMaking},
	{"a watch ends when its context ends", testWatchEnds, nothing},
	{"a call ends when its context ends", testCancel, nothing},
	{"a cancelled stop returns at once", testCancelStop, nothing},
	{hangs, testHang, nobody},
	{"a crashed runtime is unavailable until it restarts", testCrash, nothing},
	{"concurrent calls succeed", testConcurrent, nothing},
}

// bench has the runtime of one case, with helpers.
type bench struct {
	*testing.T
	runtime.Runtime
	driver Driver
	ctx    context.Context
}

// testImage exists in the runtime of every case.
const testImage = "localhost/hostler/program:1"

func start(t *testing.T, factory Factory) *bench {
	t.Helper()
	r, d := factory(t)
	return &bench{T: t, Runtime: r, driver: d, ctx: t.Context()}
}

// Name returns the runtime's name; the test's name is b.T.Name.
func (b *bench) Name() string { return b.Runtime.Name() }

// bare reports whether the runtime has only containers.
func (b *bench) bare() bool { return b.driver.Abilities().Bare }

// run starts a pod with a program for each behavior, or only for the first if a pod has only one
// container. It returns the pod as listed.
func (b *bench) run(does ...Behaviour) runtime.Pod {
	b.Helper()
	if b.bare() {
		b.driver.RunPod(b, "barn", "horse", Program{Name: "horse", Does: does[0]})
		return b.pod()
	}
	b.driver.AddImage(b, testImage)
	programs := make([]Program, len(does))
	for i, d := range does {
		programs[i] = Program{Name: [...]string{"first", "second", "third"}[i], Image: testImage, Does: d}
	}
	b.driver.RunPod(b, "barn", "horse", programs...)
	return b.pod()
}

// pod returns the only pod.
func (b *bench) pod() runtime.Pod {
	b.Helper()
	pods, err := b.Pods(b.ctx)
	if err != nil || len(pods) != 1 {
		b.Fatalf("Pods() = %d pods, %v, want 1 pod", len(pods), err)
	}
	return pods[0]
}

// container returns the only container.
func (b *bench) container() runtime.Container {
	b.Helper()
	p := b.pod()
	if len(p.Containers) != 1 {
		b.Fatalf("Pods() = a pod with %d containers, want 1", len(p.Containers))
	}
	return p.Containers[0]
}

// image returns the image with the given tag, if it exists.
func (b *bench) image(tag string) (runtime.Image, bool) {
	b.Helper()
	images, err := b.Images(b.ctx)
	return b.tagged(tag, images, err)
}

// detailed is image with all details.
func (b *bench) detailed(tag string) (runtime.Image, bool) {
	b.Helper()
	images, err := runtime.DetailedImages(b.ctx, b.Runtime)
	return b.tagged(tag, images, err)
}

func (b *bench) tagged(tag string, images []runtime.Image, err error) (runtime.Image, bool) {
	b.Helper()
	if err != nil {
		b.Fatalf("list images: %v", err)
	}
	for _, i := range images {
		for _, name := range i.Tags {
			if name == tag {
				return i, true
			}
		}
	}
	return runtime.Image{}, false
}

// eventually polls until ok is true, for at most patience.
func (b *bench) eventually(what string, ok func() bool) {
	b.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			b.Fatalf("%s: not within %v", what, patience)
		}
	}
}
