package docker

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

var _ runtime.LogReader = (*Runtime)(nil)

// Log requests the log from Docker, because only Docker knows the files of its log drivers. A
// driver may have no log to read.
func (r *Runtime) Log(ctx context.Context, c runtime.Container, lines, maxBytes int) ([]byte, error) {
	what := "read log of " + local.Named("container", c.Name, c.ID)
	about, err := engine.Get(ctx, r.conn, "ContainerInspect", what, r.timeouts.Query, func(ctx context.Context, cl *client.Client) (client.ContainerInspectResult, error) {
		return cl.ContainerInspect(ctx, c.ID, client.ContainerInspectOptions{})
	})
	if err != nil {
		return nil, err
	}
	if about.Container.Config == nil {
		return nil, fmt.Errorf("%s: %w: no configuration in it", what, runtime.ErrInvalidAnswer)
	}
	return engine.Get(ctx, r.conn, "ContainerLogs", what, r.timeouts.Query, func(ctx context.Context, cl *client.Client) ([]byte, error) {
		stream, err := cl.ContainerLogs(ctx, c.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: strconv.Itoa(lines)})
		if err != nil {
			return nil, err
		}
		defer stream.Close()
		end := &end{most: maxBytes}
		if about.Container.Config.Tty { // a TTY has a single stream without headers
			_, err = io.Copy(end, stream)
		} else {
			_, err = stdcopy.StdCopy(end, end, stream)
		}
		return bytes.Clone(end.text[max(0, len(end.text)-maxBytes):]), err
	})
}

// end keeps the last bytes that are written.
type end struct {
	text []byte
	most int
}

// Write implements io.Writer.
func (e *end) Write(p []byte) (int, error) {
	e.text = append(e.text, p...)
	if len(e.text) > 2*e.most { // not after every line
		e.text = append(e.text[:0], e.text[len(e.text)-e.most:]...)
	}
	return len(p), nil
}
