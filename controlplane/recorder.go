package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/sanitize"
)

const (
	// EventSource is the component that hostler's Events name as their source.
	EventSource = "hostler"

	maxQueuedEvents  = 1000             // waiting for the control plane
	maxRecentEvents  = 256              // recent Events that a repetition is compared with
	repetitionWindow = 10 * time.Minute // a repetition within this time is counted, not published again
	maxRepetitionAge = time.Hour        // since the first one; an API server forgets Events by then
	publishTimeout   = 8 * time.Second  // for one attempt
	maxMessageBytes  = 1024             // the limit of events.k8s.io/v1
)

// Publisher is the part of a Client that a Recorder needs.
type Publisher interface {
	PublishEvent(ctx context.Context, event *corev1.Event) error
}

// RecorderStats count Events by outcome.
type RecorderStats struct {
	Queued    int    // waiting to be published
	Published uint64 // publications, repetitions included
	Dropped   uint64 // dropped because too many waited
	Refused   uint64 // dropped because the control plane refused them
	LastError error  // of the last attempt; nil if that succeeded
}

// Recorder publishes Events about an object in their order; Nodes and namespaces take turns. Recording never
// blocks. While the control plane is unreachable, up to 1,000 Events wait; then the oldest of the Node or
// namespace with the most are dropped. If the same Event occurs again within 10 minutes, the count of the first
// one is increased.
type Recorder struct {
	client Publisher
	host   string
	now    func() time.Time
	log    *slog.Logger
	wake   chan struct{} // holds one token when the queue has grown
	paused func() bool   // while it returns true, nothing is recorded

	mu       sync.Mutex // guards the fields below
	queue    turns
	inFlight *record       // taken off the queue and being published
	recent   []*record     // the latest occurrence is last
	lastID   int64         // in the latest Event's name
	idle     chan struct{} // closed when nothing is left to publish; nil if nobody waits
	stats    RecorderStats
}

// record is one Event with its repetitions.
type record struct {
	event  corev1.Event
	turn   corev1.ObjectReference // see turns
	queued bool
}

// NewRecorder returns a Recorder for Events of that host. now is the wall clock of their times;
// time.Now if nil. If unresponsive is not nil, nothing is recorded while it returns true, such as
// after the host has left.
func NewRecorder(client Publisher, host string, now func() time.Time, paused func() bool, log *slog.Logger) *Recorder {
	if now == nil {
		now = time.Now
	}
	if paused == nil {
		paused = func() bool { return false }
	}
	return &Recorder{client: client, host: host, now: now, paused: paused, log: log.With("component", "events"), wake: make(chan struct{}, 1)}
}

// NodeReference returns the object of an Event about that Node. Its UID is the name, as in kubelet's
// Events, so that `kubectl describe node` also finds Events from before the registration.
func NodeReference(name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Node", APIVersion: "v1", Name: name, UID: types.UID(name)}
}

// Record queues an Event about object and returns at once. The type is corev1.EventTypeNormal or
// corev1.EventTypeWarning; the reason is in CamelCase.
func (r *Recorder) Record(object corev1.ObjectReference, eventType, reason, message string) {
	r.RecordFor(turnOf(object), object, eventType, reason, message)
}

// RecordFor is Record of an Event that takes the turn of another object, such as the Node of a pod.
func (r *Recorder) RecordFor(turn, object corev1.ObjectReference, eventType, reason, message string) {
	if r.paused() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, message := r.now(), truncate(sanitize.Text(message, sanitize.MaxText))
	rec := r.repeated(object, eventType, reason, message, now)
	if rec == nil {
		rec = &record{event: r.newEvent(object, eventType, reason, message, now), turn: turn}
		r.recent = append(r.recent, rec)
		if len(r.recent) > maxRecentEvents {
			r.recent = slices.Delete(r.recent, 0, 1)
		}
	}
	r.enqueue(rec)
}

// repeated counts the Event as a repetition of an earlier one, if there is one.
func (r *Recorder) repeated(object corev1.ObjectReference, eventType, reason, message string, now time.Time) *record {
	i := slices.IndexFunc(r.recent, func(rec *record) bool {
		e := &rec.event
		return e.InvolvedObject == object && e.Type == eventType && e.Reason == reason && e.Message == message
	})
	if i < 0 {
		return nil
	}
	rec := r.recent[i]
	r.recent = slices.Delete(r.recent, i, i+1)
	if now.Sub(rec.event.LastTimestamp.Time).Abs() > repetitionWindow || now.Sub(rec.event.FirstTimestamp.Time).Abs() > maxRepetitionAge {
		return nil
	}
	r.recent = append(r.recent, rec)
	rec.event.Count++
	rec.event.LastTimestamp = metav1.NewTime(now)
	return rec
}

func (r *Recorder) newEvent(object corev1.ObjectReference, eventType, reason, message string, now time.Time) corev1.Event {
	namespace := object.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	r.lastID = max(r.lastID+1, now.UnixNano())
	return corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: eventName(object.Name, r.lastID)},
		InvolvedObject:      object,
		Reason:              reason,
		Message:             message,
		Source:              corev1.EventSource{Component: EventSource, Host: r.host},
		FirstTimestamp:      metav1.NewTime(now),
		LastTimestamp:       metav1.NewTime(now),
		Count:               1,
		Type:                eventType,
		ReportingController: EventSource,
		ReportingInstance:   r.host,
	}
}

// enqueue adds the record to the queue unless it is in the queue already.
func (r *Recorder) enqueue(rec *record) {
	if !rec.queued {
		rec.queued = true
		r.queue.add(rec)
	}
	r.bound()
	select {
	case r.wake <- struct{}{}:
	default: // an earlier token is still in the channel
	}
}

// bound drops a record if the queue is too long.
func (r *Recorder) bound() {
	if r.queue.len() > maxQueuedEvents {
		r.queue.drop().queued = false
		r.stats.Dropped++
	}
}

// Run publishes recorded Events until ctx ends, and returns the cause. Events that still wait stay
// in the queue.
func (r *Recorder) Run(ctx context.Context) error {
	backoff := Retry()
	for {
		rec, event := r.next()
		if rec == nil {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-r.wake:
				continue
			}
		}
		started := time.Now()
		attempt, cancel := context.WithTimeout(ctx, publishTimeout)
		err := r.client.PublishEvent(attempt, event)
		cancel()
		if ctx.Err() != nil {
			r.retain(rec)
			return context.Cause(ctx)
		}
		if r.recordResult(rec, err) {
			backoff = Retry()
			continue
		}
		if err := bounded.Sleep(ctx, max(pause(&backoff, err)-time.Since(started), Retry().Duration)); err != nil {
			return err
		}
	}
}

// next removes the next record from the queue and copies its Event. A later repetition queues it
// again.
func (r *Recorder) next() (*record, *corev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == 0 {
		return nil, nil
	}
	rec := r.queue.take()
	rec.queued = false
	r.inFlight = rec
	return rec, rec.event.DeepCopy()
}

// retain puts an unpublished record back at the front of the queue.
func (r *Recorder) retain(rec *record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight = nil
	r.queue.putBack(rec) // a repetition may have queued it again meanwhile
	rec.queued = true
	r.bound()
}

// recordResult records the result of an attempt, and reports whether the Event is done. Otherwise
// it is queued again.
func (r *Recorder) recordResult(rec *record, err error) bool {
	// A conflict remains only if somebody rewrites the Event all the time, which must not delay the Events of others.
	refused := errors.Is(err, ErrForbidden) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrConflict)
	if err != nil && !refused {
		r.retain(rec)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := r.stats.LastError != nil
	r.stats.LastError = err
	switch {
	case err == nil:
		r.stats.Published++
		if failed {
			r.log.Info("publishing events again", "queued", r.queue.len(), "dropped", r.stats.Dropped)
		}
	case refused:
		r.stats.Refused++
		if !failed {
			r.log.Warn("control plane rejected event, dropped", "reason", rec.event.Reason, "error", err)
		}
	case !failed:
		r.log.Warn("cannot publish events, retrying", "error", err)
	}
	if err != nil && !refused {
		return false
	}
	r.inFlight = nil
	if len(r.queue) == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
	return true
}

// Flush waits until Run has published everything recorded so far, or the control plane has refused
// it. It returns ctx's error if ctx ends before.
func (r *Recorder) Flush(ctx context.Context) error {
	r.mu.Lock()
	if len(r.queue) == 0 && r.inFlight == nil {
		r.mu.Unlock()
		return nil
	}
	if r.idle == nil {
		r.idle = make(chan struct{})
	}
	idle := r.idle
	r.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("publish events: %d not published: %w", r.Stats().Queued, context.Cause(ctx))
	}
}

// Queued returns the waiting Events, those of an object the oldest first, to save them when the agent ends.
func (r *Recorder) Queued() []corev1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var events []corev1.Event
	if r.inFlight != nil && !r.inFlight.queued {
		events = append(events, *r.inFlight.event.DeepCopy())
	}
	for _, rec := range slices.Concat(r.queue...) {
		events = append(events, *rec.event.DeepCopy())
	}
	return events
}

// Restore queues Events of an earlier run, before the first one of this run. If one of them was
// published after all, publishing it again replaces it.
func (r *Recorder) Restore(events []corev1.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range slices.Backward(events) {
		name := events[i].Name
		r.queue.putBack(&record{event: *events[i].DeepCopy(), turn: turnOf(events[i].InvolvedObject), queued: true})
		// Names must be unique, even if the clock was set back.
		if id, err := strconv.ParseInt(name[strings.LastIndexByte(name, '.')+1:], 16, 64); err == nil {
			r.lastID = max(r.lastID, id)
		}
	}
	select {
	case r.wake <- struct{}{}:
	default: // as in enqueue: an earlier token is still in the channel
	}
}

// Stats returns the counts of Events.
func (r *Recorder) Stats() RecorderStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	stats := r.stats
	stats.Queued = r.queue.len()
	return stats
}

// eventName returns the object's name, shortened and made valid if necessary, with an increasing
// number.
func eventName(object string, id int64) string {
	suffix := fmt.Sprintf(".%x", id)
	if space := validation.DNS1123SubdomainMaxLength - len(suffix); len(object) > space {
		object = strings.TrimRight(object[:space], ".-")
	}
	if len(validation.IsDNS1123Subdomain(object)) > 0 {
		object = EventSource
	}
	return object + suffix
}

// truncate shortens a message to the maximum length of an Event.
func truncate(message string) string {
	if len(message) <= maxMessageBytes {
		return message
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(message[:maxMessageBytes-len(ellipsis)], "") + ellipsis
}
