package systemd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/shutdown"
)

const (
	prepare             = "PrepareForShutdown"
	prepareWithMetadata = "PrepareForShutdownWithMetadata" // systemd 255 and later
	ownerChanged        = "NameOwnerChanged"
)

// Watch sends shutdown.Subscribed once the bus has confirmed the subscription,
// then what logind announces, until ctx ends (ctx's error) or the bus is lost
// (ErrNoBus). A logind that goes away and comes back sends Lost and Returned;
// an announcement is sent once, also by a logind that signals it in both ways.
func (l *Logind) Watch(ctx context.Context, events chan<- shutdown.Event) error {
	w := &watch{}
	conn, signals, err := l.subscribe(ctx, w)
	if err != nil {
		return err
	}
	defer l.unsubscribe(conn, signals)
	lost := fmt.Errorf("watch logind: %w: the connection ended; is the dbus service running?", ErrNoBus)
	pending := []shutdown.Event{{Type: shutdown.Subscribed}}
	for {
		// Without a pending event the channel is nil, and never ready.
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
		case signal, ok := <-signals:
			if !ok {
				return lost
			}
			if event, ok := w.event(signal); ok {
				pending = append(pending, event)
			}
		}
	}
}

// subscribe returns once the bus will deliver every signal that matters, and w
// knows who logind is.
func (l *Logind) subscribe(ctx context.Context, w *watch) (*dbus.Conn, chan *dbus.Signal, error) {
	ctx, cancel := l.bus.bounded(ctx)
	defer cancel()
	conn, err := l.bus.connection(ctx)
	if err != nil {
		return nil, nil, err
	}
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	for _, rule := range rules() {
		err = errors.Join(err, conn.AddMatchSignalContext(ctx, rule...))
	}
	if err == nil {
		err = call(ctx, conn, busName, busPath, busName+".GetNameOwner", &w.owner, loginName)
		if absent(err) {
			err = nil // it will return, or not
		}
	}
	if ctx.Err() != nil {
		conn.Close() // all of this was for the bus to answer, and it did not
	}
	if err != nil {
		l.unsubscribe(conn, signals)
		return nil, nil, fault("subscribe to the announcements of logind", err)
	}
	return conn, signals, nil
}

// unsubscribe leaves the connection as it was before subscribe.
func (l *Logind) unsubscribe(conn *dbus.Conn, signals chan *dbus.Signal) {
	conn.RemoveSignal(signals)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, rule := range rules() {
		// A rule that stays behind costs a message nobody reads, no more.
		_ = conn.RemoveMatchSignalContext(ctx, rule...)
	}
}

// rules are narrow: logind's manager object also signals every login.
func rules() [][]dbus.MatchOption {
	return [][]dbus.MatchOption{
		{dbus.WithMatchSender(busName), dbus.WithMatchInterface(busName), dbus.WithMatchMember(ownerChanged), dbus.WithMatchArg(0, loginName)},
		{dbus.WithMatchSender(loginName), dbus.WithMatchObjectPath(loginPath), dbus.WithMatchInterface(loginManager), dbus.WithMatchMember(prepare)},
		{dbus.WithMatchSender(loginName), dbus.WithMatchObjectPath(loginPath), dbus.WithMatchInterface(loginManager), dbus.WithMatchMember(prepareWithMetadata)},
	}
}

// watch turns signals into events. One goroutine has it.
type watch struct {
	owner string // logind's unique name, empty while it is away
	// Prepare or Cancel, if that was told with metadata and the plain signal of
	// it has not come yet; else Subscribed.
	told shutdown.EventType
}

// event tells what a signal means, if anything. The bus lets every user send
// signals to one connection, so the sender and all types are looked at.
func (w *watch) event(signal *dbus.Signal) (shutdown.Event, bool) {
	switch {
	case signal.Sender == busName && signal.Name == busName+"."+ownerChanged:
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
	// logind sends the signal with metadata first, then the plain one. Of two
	// announcements both count: a cancellation in between may not be told.
	told := w.told
	w.told = shutdown.Subscribed
	switch {
	case signal.Name == loginManager+"."+prepareWithMetadata:
		w.told = event.Type
	case event.Type == told:
		return shutdown.Event{}, false
	}
	return event, true
}

func (w *watch) ownerChanged(after string) (shutdown.Event, bool) {
	was := w.owner
	w.owner = after
	w.told = shutdown.Subscribed
	switch {
	case after == "" && was != "":
		return shutdown.Event{Type: shutdown.Lost}, true
	case after != "" && after != was:
		return shutdown.Event{Type: shutdown.Returned}, true
	}
	return shutdown.Event{}, false
}
