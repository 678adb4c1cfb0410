package systemd

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// Talk is for many questions over one connection, each with an answer of its own: one that
// systemd does not answer in time costs no other. Its methods are safe for concurrent use.
type Talk struct {
	conn *dbus.Conn
	turn chan struct{} // has an element for each question in progress
}

// questionsAtOnce is how many wait for systemd's answer together: where it or the host is
// busy, what takes long is the way to and fro.
const questionsAtOnce = 16

func newTalk(conn *dbus.Conn) *Talk {
	return &Talk{conn: conn, turn: make(chan struct{}, questionsAtOnce)}
}

// Ask runs queries to systemd itself, which accepts only root, and returns when they end. The error
// reports that there is no answer: ErrNotSystemd without systemd.
func (m *Manager) Ask(ctx context.Context, questions func(context.Context, *Talk)) error {
	_, err := ask(ctx, m, "query systemd", func(ctx context.Context, conn *dbus.Conn) (struct{}, error) {
		questions(ctx, newTalk(conn))
		return struct{}{}, nil
	})
	return err
}

// call asks when it is this question's turn.
func (t *Talk) call(ctx context.Context, path dbus.ObjectPath, method string, answer any, args ...any) error {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return bus.Call(ctx, t.conn, bus.Systemd, path, method, answer, args...)
}

// properties are those of an interface of an object, or of all that it has where none is named.
func (t *Talk) properties(ctx context.Context, path dbus.ObjectPath, of string) (values map[string]dbus.Variant, err error) {
	err = t.call(ctx, path, propertiesAll, &values, of)
	return values, err
}

// property is one property of a unit.
func (t *Talk) property(ctx context.Context, name, of, property string, into any) error {
	var value dbus.Variant
	if err := t.call(ctx, unitPath(name), bus.Properties+".Get", &value, of, property); err != nil {
		return err
	}
	return value.Store(into)
}

// unit are the properties of a unit, of Unit and, for a service, of Service. One that is not
// loaded systemd loads when it is asked of its object, as by LoadUnit; that starts nothing.
func (t *Talk) unit(ctx context.Context, name string) (map[string]dbus.Variant, error) {
	return t.properties(ctx, unitPath(name), "")
}

// unitPath is the object of a unit, whether or not it is loaded.
func unitPath(name string) dbus.ObjectPath {
	var escaped strings.Builder
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9' && i > 0:
			escaped.WriteByte(c)
		default:
			fmt.Fprintf(&escaped, "_%02x", c)
		}
	}
	return bus.SystemdPath + "/unit/" + dbus.ObjectPath(escaped.String())
}

// active lists the active units that match one of the patterns, as systemctl takes them.
func (t *Talk) active(ctx context.Context, patterns ...string) (list []listedUnit, err error) {
	err = t.call(ctx, bus.SystemdPath, systemdManager+".ListUnitsByPatterns", &list, []string{"active"}, patterns)
	return list, err
}

// sideBySide runs a query for each element in parallel. It returns the answers in order, and the
// error of a query that failed, if any.
func sideBySide[T, A any](of []T, question func(T) (A, error)) ([]A, error) {
	answers, errs := make([]A, len(of)), make([]error, len(of))
	var asking sync.WaitGroup
	for i, each := range of {
		asking.Go(func() { answers[i], errs[i] = question(each) })
	}
	asking.Wait()
	var reported []A
	var failed error
	for i, err := range errs {
		if err == nil {
			reported = append(reported, answers[i])
		} else if failed == nil {
			failed = err
		}
	}
	return reported, failed
}

// about says of an error which unit it is about.
func about(unit string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", unit, err)
	}
	return err
}
