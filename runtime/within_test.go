package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime"
)

func TestWithin(t *testing.T) {
	own := fmt.Errorf("list pods: %w: no answer from /run/x.sock", runtime.ErrUnavailable)
	tests := []struct {
		name string
		call error  // error of the call; nil if it waits for the end of its context
		want string // in full
		down bool   // is runtime.ErrUnavailable
	}{
		{"a call that used up its time", nil, "runtime unavailable: no answer within 3s: context deadline exceeded", true},
		{"one that says so itself is not reported twice", own, own.Error(), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, err := runtime.Within(t.Context(), 3*time.Second, func(ctx context.Context) (int, error) {
					<-ctx.Done()
					if tt.call != nil {
						return 0, tt.call
					}
					return 0, ctx.Err()
				})
				if err == nil || err.Error() != tt.want || errors.Is(err, runtime.ErrUnavailable) != tt.down {
					t.Errorf("Within() = %v, want %s", err, tt.want)
				}
			})
		})
	}
	if _, err := runtime.Within(t.Context(), time.Minute, func(context.Context) (int, error) { return 0, errors.New("busy") }); err == nil || err.Error() != "busy" {
		t.Errorf("Within() = %v, want the call's own error", err)
	}
}
