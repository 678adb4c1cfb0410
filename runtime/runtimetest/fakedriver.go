package runtimetest

import (
	"fmt"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
)

// FakeDriver is the Driver of a Fake, or of a server with a Fake behind it.
type FakeDriver struct{ *Fake }

// Abilities implements Driver.
func (d FakeDriver) Abilities() Abilities {
	return Abilities{Sandboxes: !d.opts.NoSandboxes, Namespaces: true, RefusesImagesInUse: d.opts.RefusesInUse, Starts: d.opts.NoSandboxes, Pins: !d.opts.NoSandboxes, ReportsCreation: true}
}

// AddImage implements Driver.
func (d FakeDriver) AddImage(_ testing.TB, tags ...string) {
	d.Fake.AddImage(ImageSpec{Tags: tags, Labels: LargeLabels()})
}

// AddPinnedImage implements Driver.
func (d FakeDriver) AddPinnedImage(_ testing.TB, tag string) {
	d.Fake.AddImage(ImageSpec{Tags: []string{tag}, Labels: LargeLabels(), Pinned: true})
}

// RunPod implements Driver.
func (d FakeDriver) RunPod(_ testing.TB, namespace, name string, programs ...Program) {
	p := d.Fake.RunPod(PodSpec{Namespace: namespace, Name: name, Labels: LargeLabels()})
	for _, prog := range programs {
		spec := ContainerSpec{Name: prog.Name, Image: prog.Image, Labels: map[string]string{"program": prog.Name}}
		if d.opts.NoSandboxes {
			spec.Restart = runtime.RestartNever
		}
		switch prog.Does {
		case EndsOnTERM:
			spec.ExitCode = TermCode
		case IgnoresTERM:
			spec.IgnoresTERM = true
		case EndsAtOnce:
			spec.State, spec.ExitCode = runtime.Exited, EndCode
		case NeverStarted:
			spec.State = runtime.Created
		default:
			panic(fmt.Sprintf("program %q: behaviour %d is unknown", prog.Name, prog.Does))
		}
		d.AddContainer(p.ID, spec)
	}
}

// Hang implements Driver.
func (d FakeDriver) Hang(testing.TB) (resume func()) {
	return d.Inject(Every, Fault{Hang: true}).Release
}

// Crash implements Driver.
func (d FakeDriver) Crash(testing.TB) (restart func()) {
	i := d.Inject(Every, Fault{Err: fmt.Errorf("%w: crashed", runtime.ErrUnavailable)})
	d.EndWatches()
	return i.Release
}

// Rerun implements Restarter.
func (d FakeDriver) Rerun(t testing.TB, id string) {
	t.Helper()
	time.Sleep(time.Millisecond) // so that the start has a later time
	d.mu.Lock()
	c := d.container(id)
	if c != nil {
		c.State = runtime.Exited
	}
	d.mu.Unlock()
	if err := d.startContainer(id); err != nil {
		t.Fatal(err)
	}
}
