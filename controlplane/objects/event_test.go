package objects_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/objects/objectstest"
)

func newEvent(node, name string, count int32) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, InvolvedObject: controlplane.NodeReference(node), FirstTimestamp: now, LastTimestamp: now, Count: count}
}

func TestEventsAreOrderedByTheirLastTimeAndEndAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAgent(t, objectstest.New(), here)
		publish := func(node, name string, count int32) {
			t.Helper()
			if err := a.PublishEvent(t.Context(), newEvent(node, name, count)); err != nil {
				t.Fatalf("PublishEvent() = %v, want no error", err)
			}
			time.Sleep(time.Minute)
		}
		list := func(want ...string) {
			t.Helper()
			events, err := a.Events(t.Context())
			var got []string
			for _, e := range events {
				got = append(got, fmt.Sprintf("%s %d", e.Name, e.Count))
			}
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("Events() = %q, %v, want %q", got, err, want)
			}
		}
		publish("n", "n.1", 1)
		publish("a", "a.1", 1)
		publish("n", "n.2", 1)
		publish("n", "n.1", 2)
		list("a.1 1", "n.2 1", "n.1 2")
		time.Sleep(57 * time.Minute)
		list("n.2 1", "n.1 2")
		publish("n", "n.1", 3)
		time.Sleep(58 * time.Minute)
		list("n.1 3")
	})
}

func TestAnEventOfAnUnsafeNameIsRefused(t *testing.T) {
	a := newAgent(t, objectstest.New(), here)
	for _, e := range []*corev1.Event{newEvent("n", "../n", 1), newEvent("n", "", 1), newEvent("a/b", "n.1", 1), newEvent("n", strings.Repeat("a", 254), 1), newEvent("", "n.1", 1)} {
		if err := a.PublishEvent(t.Context(), e); !errors.Is(err, controlplane.ErrInvalid) {
			t.Errorf("PublishEvent(%q about %q) = %v, want %v", e.Name, e.InvolvedObject.Name, err, controlplane.ErrInvalid)
		}
	}
	e := newEvent("n", "n.1", 1)
	e.Namespace = "kube-system"
	if err := a.PublishEvent(t.Context(), e); !errors.Is(err, controlplane.ErrInvalid) {
		t.Errorf("PublishEvent() in another namespace = %v, want %v", err, controlplane.ErrInvalid)
	}
}
