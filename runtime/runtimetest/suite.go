package runtimetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
)

// Driver makes things happen in the runtime under test, past the adapter. Its
// methods fail the test where they cannot.
type Driver interface {
	// Abilities says what the runtime has of what not every one has.
	Abilities() Abilities
	// AddImage makes a new image, with content of its own, under each of tags.
	AddImage(t testing.TB, tags ...string)
	// RunPod starts a pod with the given programs as its containers, and
	// returns when all have been started.
	RunPod(t testing.TB, namespace, name string, programs ...Program)
	// Hang keeps the runtime from answering, its socket open, until resume. It
	// returns once the runtime is sure not to answer. Resuming twice is fine.
	Hang(t testing.TB) (resume func())
	// Crash ends the runtime as if killed; restart brings it back with its
	// pods, images and containers.
	Crash(t testing.TB) (restart func())
}

// Abilities are what not every runtime has. What a runtime lacks it must lack as
// package runtime says, so that each ability makes a difference to some case.
type Abilities struct {
	// Sandboxes: pods are sandboxes, see runtime.Pod; elsewhere a pod is its
	// containers, and goes with the last of them.
	Sandboxes bool
	// Namespaces: pods have one.
	Namespaces bool
	// RefusesImagesInUse: the runtime itself refuses to remove an image that a
	// container uses, running or not.
	RefusesImagesInUse bool
}

// Program is a container of a pod that a Driver runs. Its containers carry the
// label "program" with their name.
type Program struct {
	Name  string
	Image string // a tag given to AddImage
	Does  Behaviour
}

// Behaviour is what the program of a container does.
type Behaviour int

// What programs do.
const (
	EndsOnTERM  Behaviour = iota // runs until TERM, then exits with TermCode
	IgnoresTERM                  // runs until it is killed
	EndsAtOnce                   // exits with EndCode as soon as it is started
)

// Exit codes of programs.
const (
	TermCode int32 = 7
	EndCode  int32 = 3
)

// Factory makes a runtime without pods, and its driver, for one test. What it
// makes it cleans up with t.Cleanup; the runtime's Close included.
type Factory func(t *testing.T) (runtime.Runtime, Driver)

// patience bounds every wait for something that has to come.
const patience = 30 * time.Second

// Run tests that the runtimes of the factory do what runtime.Runtime promises.
// Each case gets a runtime of its own and runs against real time.
func Run(t *testing.T, factory Factory) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { c.test(start(t, factory)) })
	}
}

// RunInBubble is Run with each case in a testing/synctest bubble, for runtimes
// that live in the test's own process and talk over no network.
func RunInBubble(t *testing.T, factory Factory) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.test(start(t, factory)) })
		})
	}
}

// cases is the suite, in the order of the roles.
var cases = [...]struct {
	name string
	test func(*bench)
}{
	{"info names a ready runtime", testInfo},
	{"image filesystems are mounts that exist", testFilesystems},
	{"an empty runtime lists nothing and fails nowhere", testEmpty},
	{"a pod is listed with its containers and their images", testPods},
	{"an image is listed with all its names", testImages},
	{"the end of a container is told with its time and code", testExit},
	{"a container that heeds TERM ends before its grace does", testStopHeeds},
	{"a container that ignores TERM is killed after its grace", testStopIgnores},
	{"a grace of zero kills at once", testStopZero},
	{"stopping what is dead or missing succeeds", testStopIdempotent},
	{"a stopped pod is not ready and nothing in it runs", testStopPod},
	{"a running container is not removed", testRemoveRunning},
	{"a dead container is removed, once or twice", testRemoveDead},
	{"a pod is removed once it is dead and empty, once or twice", testRemovePod},
	{"an image is removed with all its names, once or twice", testRemoveImage},
	{"an image in use goes only where the runtime lets it", testRemoveImageInUse},
	{"a watcher sees starts, ends and removals", testWatch},
	{"a watch ends with its context", testWatchEnds},
	{"a call ends with its context", testCancel},
	{"a stop that is cancelled leaves at once", testCancelStop},
	{"a hung runtime is unavailable after a deadline", testHang},
	{"a crashed runtime is unavailable until it is back", testCrash},
	{"calls may be made at the same time", testConcurrent},
}

// bench is one case's runtime and the shortcuts to it.
type bench struct {
	*testing.T
	runtime.Runtime
	driver Driver
	ctx    context.Context
}

// testImage is in every runtime that a case is given.
const testImage = "localhost/hostler/program:1"

func start(t *testing.T, factory Factory) *bench {
	t.Helper()
	r, d := factory(t)
	return &bench{T: t, Runtime: r, driver: d, ctx: t.Context()}
}

// Name is the runtime's; the test's own is b.T.Name.
func (b *bench) Name() string { return b.Runtime.Name() }

// run starts a pod of one program each and returns it as listed.
func (b *bench) run(does ...Behaviour) runtime.Pod {
	b.Helper()
	b.driver.AddImage(b, testImage)
	programs := make([]Program, len(does))
	for i, d := range does {
		programs[i] = Program{Name: [...]string{"first", "second", "third"}[i], Image: testImage, Does: d}
	}
	b.driver.RunPod(b, "barn", "horse", programs...)
	return b.pod()
}

// pod returns the one pod that there is.
func (b *bench) pod() runtime.Pod {
	b.Helper()
	pods, err := b.Pods(b.ctx)
	if err != nil || len(pods) != 1 {
		b.Fatalf("Pods() = %d pods, %v, want 1 pod", len(pods), err)
	}
	return pods[0]
}

// container returns the one container that there is.
func (b *bench) container() runtime.Container {
	b.Helper()
	p := b.pod()
	if len(p.Containers) != 1 {
		b.Fatalf("Pods() = a pod with %d containers, want 1", len(p.Containers))
	}
	return p.Containers[0]
}

// image returns the image with the given tag, if there is one.
func (b *bench) image(tag string) (runtime.Image, bool) {
	b.Helper()
	images, err := b.Images(b.ctx)
	if err != nil {
		b.Fatalf("Images() = %v", err)
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

// eventually polls until ok, which must come to hold within patience.
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
