package objects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
)

// eventTTL is how long an Event is kept after it was last published, as on a kube-apiserver.
const eventTTL = time.Hour

// PublishEvent stores the Event for an hour. If it is a repetition, the store refuses it and
// returns the stored Event; then PublishEvent replaces that.
func (c *Client) PublishEvent(ctx context.Context, event *corev1.Event) error {
	key := Key{Kind: Event, Node: event.InvolvedObject.Name, Name: event.Name}
	if err := controlplane.CheckCall(ctx, "publish event", key.Name); err != nil {
		return err
	}
	if err := controlplane.CheckCall(ctx, "publish event about node", key.Node); err != nil {
		return err
	}
	if event.Namespace != metav1.NamespaceDefault { // the namespace of Events about Nodes
		return fmt.Errorf("publish event %q: %w: namespace %q is not %q", event.Name, controlplane.ErrInvalid, event.Namespace, metav1.NamespaceDefault)
	}
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	next, before := event.DeepCopy(), None
	c.initialize(next)
	var err error
	for range attempts {
		var value []byte
		if value, err = encode(Event, next); err != nil {
			break
		}
		if _, err = c.store.Put(ctx, key, Put{Value: value, Instead: before, TTL: eventTTL}); err == nil {
			return nil
		}
		stored, conflict := storedIn(err)
		if !conflict {
			break
		}
		before = stored.Version
		if first, unreadable := decode[corev1.Event](key, stored.Value, stored.Version); before != None && unreadable == nil {
			next.UID, next.CreationTimestamp = first.UID, first.CreationTimestamp
		}
	}
	return fmt.Errorf("publish event %q: %w", event.Name, err)
}

// Events lists the stored Events of all Nodes, sorted by their last time, then by name. Unreadable
// Events are left out, and the error names them.
func (c *Client) Events(ctx context.Context) ([]corev1.Event, error) {
	var events []corev1.Event
	var unreadable []error
	err := c.each(ctx, Event, func(o Object) {
		event, err := decode[corev1.Event](o.Key, o.Value, o.Version)
		if err != nil {
			unreadable = append(unreadable, err)
			return
		}
		events = append(events, *event)
	})
	if err = errors.Join(append(unreadable, err)...); err != nil {
		err = fmt.Errorf("list events: %w", err)
	}
	slices.SortStableFunc(events, func(a, b corev1.Event) int { return a.LastTimestamp.Compare(b.LastTimestamp.Time) })
	return events, err
}
