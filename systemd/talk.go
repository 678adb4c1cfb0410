package systemd

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// Talk runs many queries over one connection. If systemd does not answer one in time, the others
// are not affected. Its methods are safe for concurrent use.
type Talk struct {
	conn *dbus.Conn
	turn chan struct{} // has an element for each query in progress
}

// maxQueries bounds concurrent queries. Concurrency helps, because on a busy host the round
// trips take most of the time.
const maxQueries = 16

func newTalk(conn *dbus.Conn) *Talk {
	return &Talk{conn: conn, turn: make(chan struct{}, maxQueries)}
}

// Ask runs queries to systemd itself, which accepts only root, and returns when they end. An error
// means that there are no answers: ErrNotSystemd if there is no systemd.
func (m *Manager) Ask(ctx context.Context, questions func(context.Context, *Talk)) error {
	_, err := ask(ctx, m, "query systemd", func(ctx context.Context, conn *dbus.Conn) (struct{}, error) {
		questions(ctx, newTalk(conn))
		return struct{}{}, nil
	})
	return err
}

// call makes a call when it has a free slot.
func (t *Talk) call(ctx context.Context, path dbus.ObjectPath, method string, answer any, args ...any) error {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return bus.Call(ctx, t.conn, bus.Systemd, path, method, answer, args...)
}

// properties returns the properties of an interface of an object, or of all its interfaces if of is
// empty.
func (t *Talk) properties(ctx context.Context, path dbus.ObjectPath, of string) (values map[string]dbus.Variant, err error) {
	err = t.call(ctx, path, propertiesAll, &values, of)
	return values, err
}

// property reads one property of a unit.
func (t *Talk) property(ctx context.Context, name, of, property string, into any) error {
	var value dbus.Variant
	if err := t.call(ctx, unitPath(name), bus.Properties+".Get", &value, of, property); err != nil {
		return err
	}
	return value.Store(into)
}

// unit returns all properties of a unit, including those of its type, such as Service. If the unit
// is not loaded, systemd loads it, as with LoadUnit, but starts nothing.
func (t *Talk) unit(ctx context.Context, name string) (map[string]dbus.Variant, error) {
	return t.properties(ctx, unitPath(name), "")
}

// unitPath returns the object of a unit, even if it is not loaded.
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

// active lists the active units that match one of the patterns, in systemctl's syntax.
func (t *Talk) active(ctx context.Context, patterns ...string) (list []listedUnit, err error) {
	err = t.call(ctx, bus.SystemdPath, systemdManager+".ListUnitsByPatterns", &list, []string{"active"}, patterns)
	return list, err
}

// concurrently runs a query for each element concurrently. It returns the answers in order, and the
// error of a query that failed, if any.
func concurrently[T, A any](of []T, question func(T) (A, error)) ([]A, error) {
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

// withUnit adds the unit's name to an error.
func withUnit(unit string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", unit, err)
	}
	return err
}
