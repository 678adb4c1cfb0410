package systemd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/systemd/bus"
	"hostler.io/hostler/systemd/logindconf"
)

const (
	prepare             = "PrepareForShutdown"
	prepareWithMetadata = "PrepareForShutdownWithMetadata" // systemd 255 and later
	ownerChanged        = "NameOwnerChanged"
	propertiesChanged   = "PropertiesChanged"
)

// Watch sends shutdown.Subscribed once the bus has confirmed the subscription, then logind's
// announcements, until ctx ends (ctx's error) or the bus is lost (ErrNoBus). If logind disappears
// and returns, it sends Lost and Returned. It sends an announcement once, even if logind signals it
// in two ways. It sends Altered after changes of inhibitors, including this service's own, and of
// the files that set the maximum delay, at most once a second.
func (l *Logind) Watch(ctx context.Context, events chan<- shutdown.Event) error {
	w := &watch{}
	conn, signals, err := l.subscribe(ctx, w)
	if err != nil {
		return err
	}
	defer l.unsubscribe(conn, signals)
	changed, stopFollowing := l.startFollowing(ctx)
	defer stopFollowing()
	lost := fmt.Errorf("watch logind: %w: the connection ended; is the dbus service running?", ErrNoBus)
	pending := []shutdown.Event{{Type: shutdown.Subscribed}}
	var calm <-chan time.Time // nil unless Altered was sent within the last second
	altered := false
	for {
		if altered && calm == nil {
			pending = append(pending, shutdown.Event{Type: shutdown.Altered})
			altered, calm = false, time.After(quiet)
		}
		// If no event is pending, the channel is nil, and never ready.
		var out chan<- shutdown.Event
		var next shutdown.Event
		if len(pending) > 0 {
			out, next = events, pending[0]
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-conn.Context().Done():
			return lost
		case out <- next:
			pending = pending[1:]
		case <-calm:
			calm = nil
		case <-changed:
			altered = true
		case signal, ok := <-signals:
			if !ok {
				return lost
			}
			if event, ok := w.event(signal); ok {
				if event.Type == shutdown.Prepare && event.Kind == "" {
					event.Kind = l.kindNow(ctx)
				}
				pending = append(pending, event)
			}
			altered = altered || w.inhibitorsChanged(signal)
		}
	}
}

// kindBound bounds how long a shutdown waits for its kind, which is only informative.
const kindBound = 200 * time.Millisecond

// kindNow returns the kind of a shutdown that was announced without it, or "" if logind does not
// answer soon.
func (l *Logind) kindNow(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, kindBound)
	defer cancel()
	next, err := l.scheduled(ctx)
	if err != nil {
		return ""
	}
	return next.currentKind()
}

// startFollowing follows logind's files until stop is called. Changes after it has returned are
// reported.
func (l *Logind) startFollowing(ctx context.Context) (changed <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	reported, ended := make(chan struct{}, 1), make(chan struct{})
	watcher, err := logindconf.Watch(l.options.Root)
	go func() {
		defer close(ended)
		if err == nil {
			err = l.follow(ctx, watcher, reported)
		}
		if ctx.Err() == nil {
			l.log.Warn("cannot watch logind's files, changes are noticed late", "error", err)
		}
	}()
	return reported, func() { cancel(); <-ended }
}

// subscribe returns once the bus will deliver every relevant signal, and w has the bus name of
// logind.
func (l *Logind) subscribe(ctx context.Context, w *watch) (*dbus.Conn, chan *dbus.Signal, error) {
	ctx, cancel := l.bus.Bounded(ctx)
	defer cancel()
	conn, err := l.bus.Get(ctx)
	if err != nil {
		return nil, nil, err
	}
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	// Signals of logind are only read once its bus name is known.
	err = conn.AddMatchSignalContext(ctx, ownerRule()...)
	if err == nil {
		err = bus.Call(ctx, conn, bus.Name, bus.Path, bus.Name+".GetNameOwner", &w.owner, loginName)
		if bus.Absent(err) {
			err = nil // logind is absent, and may return
		}
	}
	for _, rule := range rules() {
		err = errors.Join(err, conn.AddMatchSignalContext(ctx, rule...))
	}
	if ctx.Err() != nil {
		conn.Close() // the bus did not answer
	}
	if err != nil {
		l.unsubscribe(conn, signals)
		return nil, nil, fault("subscribe to logind's signals", err)
	}
	return conn, signals, nil
}

// unsubscribe undoes subscribe.
func (l *Logind) unsubscribe(conn *dbus.Conn, signals chan *dbus.Signal) {
	conn.RemoveSignal(signals)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, rule := range append(rules(), ownerRule()) {
		// A remaining rule only costs messages that nobody reads.
		_ = conn.RemoveMatchSignalContext(ctx, rule...)
	}
}

// ownerRule matches changes of logind's bus name.
func ownerRule() []dbus.MatchOption {
	return []dbus.MatchOption{dbus.WithMatchSender(bus.Name), dbus.WithMatchInterface(bus.Name), dbus.WithMatchMember(ownerChanged), dbus.WithMatchArg(0, loginName)}
}

// rules returns narrow match rules, because logind's manager object also signals every login. If
// there are two signals for a change, the one with more information is used.
func rules() [][]dbus.MatchOption {
	return [][]dbus.MatchOption{
		{dbus.WithMatchSender(loginName), dbus.WithMatchObjectPath(loginPath), dbus.WithMatchInterface(loginManager), dbus.WithMatchMember(prepareWithMetadata)},
		{dbus.WithMatchSender(loginName), dbus.WithMatchObjectPath(loginPath), dbus.WithMatchInterface(loginManager), dbus.WithMatchMember(prepare)},
		{dbus.WithMatchSender(loginName), dbus.WithMatchObjectPath(loginPath), dbus.WithMatchInterface(bus.Properties), dbus.WithMatchMember(propertiesChanged), dbus.WithMatchArg(0, loginManager)},
	}
}

// watch turns signals into events. One goroutine owns it.
type watch struct {
	owner string // logind's unique name; empty while it is absent
	// Prepare or Cancel, if it was announced with metadata and its plain signal has not arrived
	// yet; otherwise Subscribed.
	sent shutdown.EventType
}

// event returns the event of a signal, if any. The sender and all types are checked.
func (w *watch) event(signal *dbus.Signal) (shutdown.Event, bool) {
	switch {
	case signal.Sender == bus.Name && signal.Name == bus.Name+"."+ownerChanged:
		var name, before, after string
		if dbus.Store(signal.Body, &name, &before, &after) != nil || name != loginName {
			return shutdown.Event{}, false
		}
		return w.ownerChanged(after)
	case w.owner == "" || signal.Sender != w.owner || signal.Path != loginPath:
		return shutdown.Event{}, false
	}
	var active bool
	var metadata map[string]dbus.Variant
	switch signal.Name {
	case loginManager + "." + prepareWithMetadata:
		if dbus.Store(signal.Body, &active, &metadata) != nil {
			return shutdown.Event{}, false
		}
	case loginManager + "." + prepare:
		if dbus.Store(signal.Body, &active) != nil {
			return shutdown.Event{}, false
		}
	default:
		return shutdown.Event{}, false
	}
	event := shutdown.Event{Type: shutdown.Cancel}
	if active {
		event.Type = shutdown.Prepare
		event.Kind, _ = metadata["type"].Value().(string)
	}
	// logind sends the signal with metadata first, then the plain one. If an announcement is
	// repeated, both are reported, because a cancellation between them may not be signaled.
	reported := w.sent
	w.sent = shutdown.Subscribed
	switch {
	case signal.Name == loginManager+"."+prepareWithMetadata:
		w.sent = event.Type
	case event.Type == reported:
		return shutdown.Event{}, false
	}
	return event, true
}

func (w *watch) ownerChanged(after string) (shutdown.Event, bool) {
	was := w.owner
	w.owner = after
	w.sent = shutdown.Subscribed
	switch {
	case after == "" && was != "":
		return shutdown.Event{Type: shutdown.Lost}, true
	case after != "" && after != was:
		return shutdown.Event{Type: shutdown.Returned}, true
	}
	return shutdown.Event{}, false
}

// inhibitorsChanged reports whether a signal of logind means that an inhibitor was added or
// removed.
func (w *watch) inhibitorsChanged(signal *dbus.Signal) bool {
	if w.owner == "" || signal.Sender != w.owner || signal.Path != loginPath || signal.Name != bus.Properties+"."+propertiesChanged {
		return false
	}
	var of string
	var values map[string]dbus.Variant
	var names []string
	if dbus.Store(signal.Body, &of, &values, &names) != nil || of != loginManager {
		return false
	}
	for name := range values {
		names = append(names, name)
	}
	return slices.Contains(names, "DelayInhibited") || slices.Contains(names, "BlockInhibited")
}
