package objectstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/controlplane/objects"
)

func checkList(ctx context.Context, s objects.Store) error {
	var nodes, events, ofOne []string
	for i := range 30 {
		for _, key := range []objects.Key{
			nodeKey(fmt.Sprintf("n-%d", i)), leaseKey(fmt.Sprintf("n-%d", i)),
			eventKey("one", fmt.Sprintf("e-%d", i)), eventKey("one-more", fmt.Sprintf("e-%d", i)), eventKey("on", fmt.Sprintf("e-%d", i)),
		} {
			if _, err := put(ctx, s, key, "x", objects.None, time.Hour); err != nil {
				return err
			}
			switch {
			case key.Kind == objects.Node:
				nodes = append(nodes, key.String())
			case key.Kind == objects.Event:
				events = append(events, key.String())
			}
			if key.Node == "one" {
				ofOne = append(ofOne, key.String())
			}
		}
	}
	for _, c := range []struct {
		kind objects.Kind
		node string
		want []string
	}{{objects.Node, "", nodes}, {objects.Event, "", events}, {objects.Event, "one", ofOne}, {objects.Event, "none", nil}} {
		var got []string
		for page := ""; ; {
			list, next, err := s.List(ctx, c.kind, c.node, page)
			if err != nil {
				return fmt.Errorf("List(%s, %q) = %w, want no error", c.kind, c.node, err)
			}
			for _, o := range list {
				got = append(got, o.Key.String())
				if err := want("List()", o, o.Key, "x", o.Version); err != nil {
					return err
				}
				if err := wantStored(ctx, s, o.Key, "x", o.Version); err != nil {
					return err
				}
			}
			if page = next; page == "" {
				break
			}
		}
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			return fmt.Errorf("List(%s, %q) gave %v, want %v", c.kind, c.node, got, c.want)
		}
	}
	return nil
}

// watched is a watch in progress.
type watched struct {
	ctx   context.Context
	stop  context.CancelFunc
	seen  chan objects.Object
	ended chan error
}

func follow(ctx context.Context, s objects.Store, key objects.Key) *watched {
	w := &watched{ctx: ctx, seen: make(chan objects.Object), ended: make(chan error, 1)}
	watching, stop := context.WithCancel(ctx)
	w.stop = stop
	go func() { w.ended <- s.Watch(watching, key, w.seen) }()
	return w
}

// until receives states from the watch until is returns true.
func (w *watched) until(what string, is func(objects.Object) bool) error {
	var last objects.Object
	for {
		select {
		case last = <-w.seen:
			if is(last) {
				return nil
			}
		case err := <-w.ended:
			w.ended <- err
			return fmt.Errorf("Watch() = %w before it reported %s", err, what)
		case <-w.ctx.Done():
			return fmt.Errorf("Watch() did not report %s: %s %q is the last it reported", what, last.Key, last.Version)
		}
	}
}

// end ends the watch.
func (w *watched) end() error {
	w.stop()
	select {
	case err := <-w.ended:
		if !errors.Is(err, context.Canceled) {
			return fmt.Errorf("Watch() after its context's end = %w, want that it was cancelled", err)
		}
		return nil
	case <-w.ctx.Done():
		return errors.New("Watch() did not end with its context")
	}
}

func checkWatch(ctx context.Context, s objects.Store) error {
	key := nodeKey("a")
	w := follow(ctx, s, key)
	if err := w.until("there being nothing", func(o objects.Object) bool { return o.Key == key && o.Version == objects.None }); err != nil {
		return err
	}
	if _, err := put(ctx, s, nodeKey("ab"), "another", objects.None, 0); err != nil {
		return err
	}
	version := objects.None
	for round := range 3 {
		var err error
		for i := range 20 {
			if version, err = put(ctx, s, key, fmt.Sprint(i), version, 0); err != nil {
				return err
			}
		}
		is := func(o objects.Object) bool { return want("", o, key, "19", version) == nil }
		if err := w.until(fmt.Sprint("the last of many changes in round ", round), is); err != nil {
			return err
		}
		again := follow(ctx, s, key)
		if err := again.until("what is stored at its beginning", is); err != nil {
			return err
		}
		if err := again.end(); err != nil {
			return err
		}
		if err := s.Delete(ctx, key, version); err != nil {
			return fmt.Errorf("Delete() = %w, want no error", err)
		}
		version = objects.None
		if err := w.until("the object's end", func(o objects.Object) bool { return o.Key == key && o.Version == objects.None }); err != nil {
			return err
		}
	}
	return w.end()
}

func checkCancelled(ctx context.Context, s objects.Store) error {
	key := nodeKey("a")
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	late, cancelLate := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancelLate()
	for ended, class := range map[context.Context]error{cancelled: context.Canceled, late: context.DeadlineExceeded} {
		for call, run := range map[string]func() error{
			"Get()":    func() error { _, err := s.Get(ended, key); return err },
			"Put()":    func() error { _, err := s.Put(ended, key, objects.Put{Value: value(key, "x")}); return err },
			"Delete()": func() error { return s.Delete(ended, key, objects.None) },
			"List()":   func() error { _, _, err := s.List(ended, objects.Node, "", ""); return err },
			"Watch()":  func() error { return s.Watch(ended, key, make(chan objects.Object)) },
		} {
			if err := run(); !errors.Is(err, class) {
				return fmt.Errorf("%s after its context's end = %v, want an error that is %q", call, err, class)
			}
		}
	}
	return wantNone(ctx, s, key)
}

func checkLarge(ctx context.Context, s objects.Store) error {
	label := strings.Repeat("a", 63)
	longest := strings.Join([]string{label, label, label, label[:61]}, ".")
	for _, key := range []objects.Key{nodeKey(longest), leaseKey(longest), eventKey(longest, longest), nodeKey("0")} {
		mark := strings.Repeat("ä\u2028 ", 50_000)
		version, err := put(ctx, s, key, mark, objects.None, time.Hour)
		if err != nil {
			return err
		}
		o, err := s.Get(ctx, key)
		if err != nil || o.Version != version || !bytes.Equal(o.Value, value(key, mark)) {
			return fmt.Errorf("Get(%s) of a large value = %d bytes, %v, want it as it was put", key, len(o.Value), err)
		}
	}
	return nil
}
