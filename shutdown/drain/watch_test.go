package drain_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown/journal"
)

// reviving is a runtime in which a container is started again one second after each stop, a number
// of times.
type reviving struct {
	*runtimetest.Fake
	times *int
}

func (r reviving) StopContainer(ctx context.Context, c runtime.Container, grace time.Duration) error {
	err := r.Fake.StopContainer(ctx, c, grace)
	if err == nil && *r.times > 0 {
		*r.times--
		time.AfterFunc(time.Second, func() { _ = r.Fake.StartContainer(context.Background(), c) })
	}
	return err
}

func TestAManualDrainEndsWhenNothingIsStartedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		returns int
		signals int
		want    journal.Outcome
	}{
		"once":            {1, 2, journal.Stopped},
		"three times":     {3, 4, journal.Stopped},
		"again and again": {1000, 4, journal.Left},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.fake = runtimetest.NewFake(runtimetest.Options{NoSandboxes: true})
				w.fake.AddImage(runtimetest.ImageSpec{ID: "image"})
				w.pod("web", 0, runtimetest.ContainerSpec{Restart: runtime.RestartNever})
				w.roster.Runtime = reviving{w.fake, &test.returns}
				w.options.Watch = 3 * time.Second
				d := w.drain()
				d.Run(t.Context())
				r := d.Record()
				w.expect(r, test.want == journal.Stopped, map[string]journal.Outcome{"web": test.want})
				if got := strings.Count(w.signals("web0"), "TERM"); got != test.signals {
					t.Errorf("web was asked %d times (%s), want %d", got, w.signals("web0"), test.signals)
				}
				if failed := r.Pods[0].Error; strings.Contains(failed, "is started again after each stop") != (test.want == journal.Left) {
					t.Errorf("the record says of web %q", failed)
				}
			})
		})
	}
}
