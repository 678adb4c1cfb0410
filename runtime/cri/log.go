package cri

import (
	"context"
	"fmt"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri/podlog"
	"hostler.io/hostler/runtime/local"
)

var _ runtime.LogReader = (*Runtime)(nil)

// Log reads the log file that the runtime names.
func (r *Runtime) Log(ctx context.Context, c runtime.Container, lines, maxBytes int) ([]byte, error) {
	what := "read log of " + local.Named("container", c.Name, c.ID)
	status, err := r.containerStatus(ctx, c.ID, c.Name)
	if err != nil {
		return nil, err
	}
	if status.GetLogPath() == "" {
		return nil, fmt.Errorf("%s: %w: the container has no log", what, runtime.ErrUnsupported)
	}
	text, err := podlog.Tail(r.podLogs, status.GetLogPath(), lines, maxBytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return text, nil
}
