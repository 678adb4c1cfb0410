package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"

	fleet "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/internal/listen"
)

// ServerClient asks a server. It is safe for concurrent use.
type ServerClient struct{ client *Client }

// NewServerClient returns a client of the server at a socket. It connects with each call.
func NewServerClient(socket string) *ServerClient { return &ServerClient{NewClient(socket)} }

// FleetStatus asks for the state of the server.
func (c *ServerClient) FleetStatus(ctx context.Context) (fleet.Status, error) {
	return askServer[fleet.Status](ctx, c, "/v1/fleet/status")
}

// FleetPlan returns what the controllers do now and later.
func (c *ServerClient) FleetPlan(ctx context.Context) (fleet.Plan, error) {
	return askServer[fleet.Plan](ctx, c, "/v1/fleet/plan")
}

func askServer[T any](ctx context.Context, c *ServerClient, path string) (T, error) {
	a, err := ask[T](ctx, c.client, http.MethodGet, path, nil)
	if unreachable, is := errors.AsType[*UnreachableError](err); is {
		err = noServer{unreachable}
	}
	return a, err
}

// noServer reports that no server answers at the socket.
type noServer struct{ *UnreachableError }

// Error returns the problem and what to try.
func (e noServer) Error() string {
	hint := "run this on a host with a server, see `systemctl status hostler-server`, or name the socket with --socket"
	if errors.Is(e.Cause, os.ErrPermission) {
		hint = "run it with sudo, or join group " + listen.Group
	}
	return fmt.Sprintf("no server answers at %s: %v\nhint: %s", e.Socket, e.Cause, hint)
}

// Unwrap returns that nobody answers.
func (e noServer) Unwrap() error { return e.UnreachableError }
