package sanitize

import (
	"context"
	"log/slog"
)

// Handler passes records on to another handler, with texts that are printable and bounded.
type Handler struct{ slog.Handler }

// Handle passes a record on.
func (h Handler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, Text(r.Message, MaxText), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(attr(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs returns a Handler that logs attrs with each record.
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = attr(a)
	}
	return Handler{h.Handler.WithAttrs(clean)}
}

// WithGroup returns a Handler whose attributes are in a group.
func (h Handler) WithGroup(name string) slog.Handler { return Handler{h.Handler.WithGroup(name)} }

func attr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindString:
		value = slog.StringValue(Text(value.String(), MaxText))
	case slog.KindAny:
		if err, ok := value.Any().(error); ok {
			value = slog.StringValue(Text(err.Error(), MaxText))
		} else {
			value = slog.AnyValue(Clean(value.Any()))
		}
	case slog.KindGroup:
		group := make([]slog.Attr, len(value.Group()))
		for i, member := range value.Group() {
			group[i] = attr(member)
		}
		value = slog.GroupValue(group...)
	}
	return slog.Attr{Key: a.Key, Value: value}
}
