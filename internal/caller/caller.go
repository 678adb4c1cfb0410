// Package caller carries the name of the user behind an API request in its context, so that it can
// be recorded.
package caller

import "context"

type key struct{}

// With returns a context that carries the name of the user.
func With(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, key{}, name)
}

// Name returns the user behind a request, or "unknown user".
func Name(ctx context.Context) string {
	if name, known := ctx.Value(key{}).(string); known {
		return name
	}
	return "unknown user"
}
