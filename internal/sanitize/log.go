package sanitize

import (
	"context"
	"log/slog"
)

// Handler makes texts of log records printable and bounded, and passes the records to another
// handler.
type Handler struct {
	slog.Handler
	// Conceal, if set, removes secrets from a text. Values of types that slog does not know are
	// then logged as text.
	Conceal func(text string) string
}

// Handle cleans a record and passes it on.
func (h Handler) Handle(ctx context.Context, r slog.Record) error {
	clean := slog.NewRecord(r.Time, r.Level, h.text(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		clean.AddAttrs(h.attr(a))
		return true
	})
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs returns a Handler that adds attrs to each record.
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Handler{h.Handler.WithAttrs(h.attrs(attrs)), h.Conceal}
}

// WithGroup returns a Handler whose attributes are in a group.
func (h Handler) WithGroup(name string) slog.Handler {
	return Handler{h.Handler.WithGroup(name), h.Conceal}
}

func (h Handler) text(text string) string {
	if h.Conceal != nil {
		text = h.Conceal(text)
	}
	return Text(text, MaxText)
}

func (h Handler) attrs(attrs []slog.Attr) []slog.Attr {
	clean := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		clean[i] = h.attr(a)
	}
	return clean
}

func (h Handler) attr(a slog.Attr) slog.Attr {
	value := a.Value.Resolve()
	switch value.Kind() {
	case slog.KindString:
		value = slog.StringValue(h.text(value.String()))
	case slog.KindAny:
		if err, ok := value.Any().(error); ok {
			value = slog.StringValue(h.text(err.Error()))
		} else if h.Conceal != nil {
			value = slog.StringValue(h.text(value.String()))
		} else {
			value = slog.AnyValue(Clean(value.Any()))
		}
	case slog.KindGroup:
		value = slog.GroupValue(h.attrs(value.Group())...)
	}
	return slog.Attr{Key: a.Key, Value: value}
}
