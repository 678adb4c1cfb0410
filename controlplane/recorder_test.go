package controlplane_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// maxQueued is how many Events may wait.
const maxQueued = 1000

var object = controlplane.NodeReference("n")

func record(r *controlplane.Recorder, message string) {
	r.Record(object, corev1.EventTypeNormal, "Test", message)
}

func messages(t *testing.T, fake *controlplanetest.Fake) []string {
	t.Helper()
	events, err := fake.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range events {
		all = append(all, fmt.Sprint(e.Message, "x", e.Count))
	}
	return all
}

func TestAnEventLooksLikeAKubelets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		recorder := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
		run(t, recorder.Run)
		recorder.Record(object, corev1.EventTypeWarning, "NodeShutdown", "going down")
		synctest.Wait()
		events, err := fake.Events(t.Context())
		if err != nil || len(events) != 1 {
			t.Fatalf("Events() = %v, %v, want one", events, err)
		}
		e := events[0]
		if e.Namespace != "default" || !strings.HasPrefix(e.Name, "n.") || e.Type != "Warning" || e.Reason != "NodeShutdown" || e.Message != "going down" ||
			e.Count != 1 || e.FirstTimestamp.IsZero() || !e.FirstTimestamp.Equal(&e.LastTimestamp) ||
			e.Source != (corev1.EventSource{Component: "hostler", Host: "host"}) ||
			e.InvolvedObject != (corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: "n", UID: "n"}) {
			t.Errorf("event = %+v, want one of hostler's on host about Node n", e)
		}
	})
}

func TestRepetitionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		recorder := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
		run(t, recorder.Run)
		for range 3 {
			record(recorder, "a")
			record(recorder, "b")
			after(time.Minute)
		}
		recorder.Record(controlplane.NodeReference("other"), corev1.EventTypeNormal, "Test", "a")
		synctest.Wait()
		if got, want := fmt.Sprint(messages(t, fake)), "[ax3 bx3 ax1]"; got != want {
			t.Errorf("events = %s, want %s", got, want)
		}
		after(11 * time.Minute)
		record(recorder, "a")
		synctest.Wait()
		if got, want := fmt.Sprint(messages(t, fake)), "[ax3 bx3 ax1 ax1]"; got != want {
			t.Errorf("events after the window = %s, want %s", got, want)
		}
	})
}

func TestARepetitionDuringPublicationIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		fake.Inject(controlplanetest.PublishEvent, controlplanetest.Fault{Delay: time.Second})
		recorder := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
		run(t, recorder.Run)
		record(recorder, "a")
		synctest.Wait()
		record(recorder, "a")
		record(recorder, "b")
		after(5 * time.Second)
		if got, want := fmt.Sprint(messages(t, fake)), "[ax2 bx1]"; got != want {
			t.Errorf("events = %s, want %s", got, want)
		}
	})
}

func TestARepetitionDuringAFailureIsPublishedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		fake.Inject(controlplanetest.PublishEvent, controlplanetest.Fault{Delay: time.Second, Err: controlplane.ErrUnavailable, Times: 1})
		recorder := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
		run(t, recorder.Run)
		record(recorder, "a")
		synctest.Wait()
		record(recorder, "b")
		record(recorder, "a")
		after(5 * time.Second)
		if got, want := fmt.Sprint(messages(t, fake)), "[ax2 bx1]"; got != want {
			t.Errorf("events = %s, want %s", got, want)
		}
		if n := recorder.Stats().Published; n != 2 {
			t.Errorf("publications = %d, want 2", n)
		}
	})
}

func TestEventsSurviveOutagesInOrder(t *testing.T) {
	for name, fault := range map[string]controlplanetest.Fault{
		"refuses at once": {Err: controlplane.ErrUnavailable},
		"does not answer": {Hang: true},
	} {
		for _, outage := range []time.Duration{5 * time.Second, time.Minute, time.Hour} {
			t.Run(name+" for "+outage.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testEventOutage(t, fault, outage) })
			})
		}
	}
}

func testEventOutage(t *testing.T, fault controlplanetest.Fault, outage time.Duration) {
	fake := controlplanetest.NewFake(nil)
	var log journal
	recorder := controlplane.NewRecorder(fake, "host", nil, nil, log.logger())
	run(t, recorder.Run)
	synctest.Wait()
	goroutines := goruntime.NumGoroutine()
	fake.Inject(controlplanetest.Any, fault)
	recorded := 0
	for begin := time.Now(); time.Since(begin) < outage; recorded++ {
		record(recorder, fmt.Sprint(recorded))
		after(time.Second)
	}
	waiting := min(recorded, maxQueued)
	stats := recorder.Stats()
	if stats.Queued < waiting-1 || stats.Queued > waiting || stats.Published != 0 {
		t.Errorf("Stats() in an outage of %v = %+v, want %d queued but for one in flight", outage, stats, waiting)
	}
	if got := goruntime.NumGoroutine(); got > goroutines+1 {
		t.Errorf("goroutines = %d, want %d and at most one more", got, goroutines)
	}
	fake.Heal()
	after(10 * time.Second) // the rest of an attempt or of a pause
	got := messages(t, fake)
	if len(got) < waiting-1 {
		t.Fatalf("events after an outage of %v = %d, want %d", outage, len(got), waiting)
	}
	for i := range got {
		if want := fmt.Sprint(recorded-len(got)+i, "x1"); got[i] != want {
			t.Fatalf("event %d = %s, want %s: the latest in the order in which they happened", i, got[i], want)
		}
	}
	stats = recorder.Stats()
	if stats.Queued != 0 || int(stats.Dropped)+len(got) != recorded || stats.LastError != nil {
		t.Errorf("Stats() after an outage of %v = %+v, want none queued and %d dropped", outage, stats, recorded-len(got))
	}
	if log.count("WARN") != 1 || log.count("INFO") != 1 {
		t.Errorf("log lines = %d warnings, %d infos, want 1 of each", log.count("WARN"), log.count("INFO"))
	}
}

// TestEventsAboutOneHostReplaceNoOthers records many Events about one host while the control plane is away.
func TestEventsAboutOneHostReplaceNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		recorder := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
		flood := func() {
			for i := range maxQueued {
				recorder.Record(controlplane.NodeReference("mallory"), corev1.EventTypeNormal, "Test", fmt.Sprint("flood ", i))
			}
		}
		flood()
		for _, message := range []string{"a", "b", "c"} {
			record(recorder, message)
		}
		flood()
		if stats := recorder.Stats(); stats.Queued != maxQueued || stats.Dropped != maxQueued+3 {
			t.Errorf("Stats() = %+v, want %d queued and %d dropped", stats, maxQueued, maxQueued+3)
		}
		fake.Inject(controlplanetest.PublishEvent, controlplanetest.Fault{Delay: time.Second})
		run(t, recorder.Run)
		after(6500 * time.Millisecond)
		got := messages(t, fake)
		others := slices.DeleteFunc(slices.Clone(got), func(m string) bool { return strings.HasPrefix(m, "flood") })
		if len(got) > 7 || fmt.Sprint(others) != "[ax1 bx1 cx1]" {
			t.Errorf("the first events = %v, want half of them about n: a, b and c", got)
		}
	})
}

// TestEventsAboutPodsOfOneNodeReplaceNoOthers records Events about many pods of one Node, and about objects of one
// namespace.
func TestEventsAboutPodsOfOneNodeReplaceNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &published{}
		recorder := controlplane.NewRecorder(client, "host", nil, nil, quiet())
		record(recorder, "a")
		for i := range maxQueued {
			pod := corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: fmt.Sprint("ns", i), Name: "web"}
			recorder.RecordFor(controlplane.NodeReference("mallory"), pod, corev1.EventTypeNormal, "Test", "flood")
			ticket := corev1.ObjectReference{Kind: "Ticket", APIVersion: "v1", Namespace: "mallory", Name: fmt.Sprint("t", i)}
			recorder.Record(ticket, corev1.EventTypeWarning, "Test", "flood")
		}
		record(recorder, "b")
		run(t, recorder.Run)
		synctest.Wait()
		others := map[int]string{}
		for i, e := range client.events {
			if e.Message != "flood" {
				others[i] = e.Message
			}
		}
		if len(client.events) != maxQueued || others[0] != "a" || others[3] != "b" {
			t.Errorf("of %d events, those of n are %v, want %d with a at 0 and b at 3", len(client.events), others, maxQueued)
		}
	})
}

// TestTheNextEventIsNotTheFirstToBeDropped records one Event about each of many Nodes.
func TestTheNextEventIsNotTheFirstToBeDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &published{}
		recorder := controlplane.NewRecorder(client, "host", nil, nil, quiet())
		record(recorder, "a")
		for i := range maxQueued {
			recorder.Record(controlplane.NodeReference(fmt.Sprint("n", i)), corev1.EventTypeNormal, "Test", "flood")
		}
		run(t, recorder.Run)
		synctest.Wait()
		if n, first := len(client.events), client.events[0].Message; n != maxQueued || first != "a" {
			t.Errorf("%d events begin with %s, want %d with a", n, first, maxQueued)
		}
	})
}

func TestAnEventThatIsRefusedDoesNotBlockOthers(t *testing.T) {
	for _, class := range []error{controlplane.ErrForbidden, controlplane.ErrInvalid} {
		t.Run(class.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := controlplanetest.NewFake(nil)
				fake.Inject(controlplanetest.PublishEvent, controlplanetest.Fault{Err: class, Times: 1})
				recorder := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
				run(t, recorder.Run)
				record(recorder, "a")
				record(recorder, "b")
				synctest.Wait()
				if got := fmt.Sprint(messages(t, fake)); got != "[bx1]" {
					t.Errorf("events = %s, want [bx1]", got)
				}
				if stats := recorder.Stats(); stats.Refused != 1 || stats.Published != 1 {
					t.Errorf("Stats() = %+v, want one refused and one published", stats)
				}
			})
		})
	}
}

func TestFlushWaitsForWhatWasRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		fake.Inject(controlplanetest.PublishEvent, controlplanetest.Fault{Delay: time.Second})
		recorder := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
		if err := recorder.Flush(t.Context()); err != nil {
			t.Errorf("Flush() of nothing = %v, want nil", err)
		}
		stop := run(t, recorder.Run)
		record(recorder, "a")
		record(recorder, "b")
		synctest.Wait()
		begin := time.Now()
		if err := recorder.Flush(t.Context()); err != nil {
			t.Errorf("Flush() = %v, want nil", err)
		}
		if took := time.Since(begin); took != 2*time.Second || len(messages(t, fake)) != 2 {
			t.Errorf("Flush() took %v for %v, want 2s for both", took, messages(t, fake))
		}

		fake.Inject(controlplanetest.PublishEvent, controlplanetest.Fault{Hang: true})
		record(recorder, "c")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if err := recorder.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush() in an outage = %v, want context.DeadlineExceeded", err)
		}
		stop()
		if stats := recorder.Stats(); stats.Queued != 1 {
			t.Errorf("Stats() after Run ended in an attempt = %+v, want the event back in the queue", stats)
		}
		fake.Heal()
		run(t, recorder.Run)
		synctest.Wait()
		if n := len(messages(t, fake)); n != 3 {
			t.Errorf("events after Run began again = %d, want 3", n)
		}
	})
}

// published records all published Events.
type published struct {
	controlplane.Client
	events []*corev1.Event
}

func (p *published) PublishEvent(_ context.Context, event *corev1.Event) error {
	p.events = append(p.events, event)
	return nil
}

func TestEventsOfAnyObjectHaveValidNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &published{}
		recorder := controlplane.NewRecorder(client, "host", nil, nil, quiet())
		run(t, recorder.Run)
		names := []string{"n", "", "docker.io/library/nginx:1", strings.Repeat("a", 253), strings.Repeat("a.", 120) + "a"}
		for _, name := range names {
			record := controlplane.NodeReference(name)
			recorder.Record(record, corev1.EventTypeNormal, "Test", "m")
			recorder.Record(record, corev1.EventTypeNormal, "Test", "another in the same nanosecond")
		}
		synctest.Wait()
		if len(client.events) != 2*len(names) {
			t.Fatalf("published = %d events, want %d with names of their own", len(client.events), 2*len(names))
		}
		seen := map[string]bool{}
		for _, e := range client.events {
			if seen[e.Name] {
				t.Errorf("two events are named %q", e.Name)
			}
			seen[e.Name] = true
			if faults := validation.IsDNS1123Subdomain(e.Name); len(faults) > 0 {
				t.Errorf("event name %q: %v", e.Name, faults)
			}
		}
	})
}

func TestALongMessageIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		recorder := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
		run(t, recorder.Run)
		record(recorder, strings.Repeat("ä", 1000))
		synctest.Wait()
		events, err := fake.Events(t.Context())
		if err != nil || len(events) != 1 {
			t.Fatalf("Events() = %v, %v, want one", events, err)
		}
		if m := events[0].Message; len(m) > 1024 || len(m) < 1000 || !strings.HasSuffix(m, "ä…") {
			t.Errorf("message = %d bytes ending in %q, want at most 1024 ending in ä…", len(m), m[len(m)-6:])
		}
	})
}

func TestAnEventMovesNoTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		recorder := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
		run(t, recorder.Run)
		record(recorder, "stopped \x1b[2Jpod\nforged\u202erow")
		synctest.Wait()
		events, err := fake.Events(t.Context())
		if err != nil || len(events) != 1 || !strings.Contains(events[0].Message, "forged") || strings.ContainsAny(events[0].Message, "\x1b\n\u202e") {
			t.Errorf("Events() = %v, %v, want one with a message on one line that is printable", events, err)
		}
	})
}

func TestRetryGoesFrom200MillisecondsTo7Seconds(t *testing.T) {
	backoff := controlplane.Retry()
	for i, want := range []time.Duration{200, 400, 800, 1600, 3200, 6400, 7000, 7000, 7000} {
		want *= time.Millisecond
		if got := backoff.Step(); got < want || got > want*6/5 {
			t.Errorf("pause %d = %v, want %v and up to a fifth more", i, got, want)
		}
	}
	fresh := controlplane.Retry()
	if got := fresh.Step(); got > 240*time.Millisecond {
		t.Errorf("first pause of a new one = %v, want about 200ms", got)
	}
}

func TestWhatIsQueuedIsRestoredInAnotherRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := controlplanetest.NewFake(nil)
		fake.Inject(controlplanetest.PublishEvent, controlplanetest.Fault{Hang: true})
		first := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
		run(t, first.Run)
		for _, message := range []string{"a", "b", "c", "c"} { // the first one is being published
			record(first, message)
			synctest.Wait()
		}
		left := first.Queued()
		fake.Heal()
		second := controlplane.NewRecorder(fake, "host", nil, nil, quiet())
		second.Restore(left)
		record(second, "d")
		run(t, second.Run)
		synctest.Wait()
		if got, want := fmt.Sprint(messages(t, fake)), "[ax1 bx1 cx2 dx1]"; got != want {
			t.Errorf("events = %s, want %s: those of before first", got, want)
		}
		after(time.Minute) // by now the first run has published, too
		if got := messages(t, fake); len(got) != 4 {
			t.Errorf("events = %v, want each once", got)
		}
		if got := second.Queued(); len(got) != 0 {
			t.Errorf("Queued() = %v after all are published, want none", got)
		}
	})
}
