package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
)

// newEvent returns the i-th Event about the Node of that name. Each is a second later than the
// previous one.
func newEvent(name string, i int) *corev1.Event {
	at := metav1.NewTime(time.Now().Add(-time.Hour + time.Duration(i)*time.Second).Truncate(time.Second))
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s.%016x", name, i)},
		InvolvedObject: controlplane.NodeReference(name),
		Type:           corev1.EventTypeNormal, Reason: "Test", Message: fmt.Sprint("event ", i),
		Source:         corev1.EventSource{Component: controlplane.EventSource, Host: name},
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	}
}

// eventsOf lists the Events about the Node of that name, if they can be listed.
func eventsOf(ctx context.Context, b *Backend, name string) (events []corev1.Event, can bool, err error) {
	lister, can := as[controlplane.EventLister](b)
	if !can {
		return nil, false, nil
	}
	events, err = lister.Events(ctx)
	if err != nil {
		return nil, true, fmt.Errorf("Events() = %w, want no error", err)
	}
	return slices.DeleteFunc(events, func(e corev1.Event) bool { return e.InvolvedObject.Name != name }), true, nil
}

// published publishes count Events and returns an error unless the last listed of them are listed,
// in order.
func published(ctx context.Context, b *Backend, name string, count, listed int) error {
	for i := range count {
		if err := b.Client.PublishEvent(ctx, newEvent(name, i)); err != nil {
			return fmt.Errorf("PublishEvent() = %w, want no error", err)
		}
	}
	events, can, err := eventsOf(ctx, b, name)
	if err != nil || !can {
		return err
	}
	if len(events) != listed {
		return fmt.Errorf("Events() after %d = %d, want %d", count, len(events), listed)
	}
	for i, e := range events {
		if want := fmt.Sprint("event ", count-listed+i); e.Message != want {
			return fmt.Errorf("Events()[%d] = %q, want %q", i, e.Message, want)
		}
	}
	return nil
}

// unlisted is the reason why published Events cannot be listed.
const unlisted = "use other tools to list them, such as kubectl"

// checkPublished publishes Events, one of them twice, and one with the longest name.
func checkPublished(ctx context.Context, b *Backend) error {
	name := b.Name("telling")
	if err := published(ctx, b, name, 3, 3); err != nil {
		return err
	}
	longest := newEvent(name, 3)
	longest.Name = fill(name+".", validation.DNS1123SubdomainMaxLength)
	for _, event := range []*corev1.Event{newEvent(name, 0), longest, longest} {
		if err := b.Client.PublishEvent(ctx, event); err != nil {
			return fmt.Errorf("PublishEvent(%q) = %w, want no error", event.Name, err)
		}
	}
	for _, bad := range []string{"", b.Name("a/b")} { // Kubernetes accepts other names that its objects may not have
		event := newEvent(name, 0)
		event.Name = bad
		if err := wantError(fmt.Sprintf("PublishEvent(%q)", bad), b.Client.PublishEvent(ctx, event), controlplane.ErrInvalid); err != nil {
			return err
		}
	}
	return nil
}

func checkEvents(ctx context.Context, b *Backend) error {
	if _, can := as[controlplane.EventLister](b); !can {
		return &AbsentError{unlisted}
	}
	return published(ctx, b, b.Name("eventful"), 20, 20)
}

func checkEventsBounded(ctx context.Context, b *Backend) error {
	if b.MaxEvents == 0 {
		return &AbsentError{"they are removed by age"}
	}
	return published(ctx, b, b.Name("busy"), b.MaxEvents+50, b.MaxEvents)
}

func checkEventRepeated(ctx context.Context, b *Backend) error {
	if _, can := as[controlplane.EventLister](b); !can {
		return &AbsentError{unlisted}
	}
	if err := published(ctx, b, b.Name("repeated"), 3, 3); err != nil {
		return err
	}
	again := newEvent(b.Name("repeated"), 3)
	again.Name, again.Count = newEvent(b.Name("repeated"), 0).Name, 7
	if err := b.Client.PublishEvent(ctx, again); err != nil {
		return fmt.Errorf("PublishEvent() of a repetition = %w, want no error", err)
	}
	events, can, err := eventsOf(ctx, b, b.Name("repeated"))
	if err != nil || !can {
		return err
	}
	if len(events) != 3 || events[2].Name != again.Name || events[2].Count != 7 {
		return fmt.Errorf("Events() after a repetition = %v, want three, the repeated one last, with count 7", events)
	}
	return nil
}
