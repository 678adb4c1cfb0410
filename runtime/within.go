package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Within calls with a time limit. If the call used up the limit while the caller had more time, the
// other side does not answer, and the error is ErrUnavailable.
func Within[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	answer, err := call(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
		return answer, fmt.Errorf("%w: no answer within %s: %w", ErrUnavailable, limit, err)
	}
	return answer, err
}
