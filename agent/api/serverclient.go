package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"

	fleet "hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/internal/listen"
)

// ServerClient sends requests to a server. It is safe for concurrent use.
type ServerClient struct{ client *Client }

// NewServerClient returns a client of the server at a socket. It connects with each call.
func NewServerClient(socket string) *ServerClient { return &ServerClient{NewClient(socket)} }

// FleetStatus returns the state of the server.
func (c *ServerClient) FleetStatus(ctx context.Context) (fleet.Status, error) {
	return askServer[fleet.Status](ctx, c, http.MethodGet, "/v1/fleet/status", nil)
}

// FleetPlan returns what the controllers do now and later.
func (c *ServerClient) FleetPlan(ctx context.Context) (fleet.Plan, error) {
	return askServer[fleet.Plan](ctx, c, http.MethodGet, "/v1/fleet/plan", nil)
}

// GarbagePlan returns what the garbage collector does, and what blocks it.
func (c *ServerClient) GarbagePlan(ctx context.Context) (fleet.GarbagePlan, error) {
	return askServer[fleet.GarbagePlan](ctx, c, http.MethodGet, "/v1/fleet/gc/plan", nil)
}

// Objects lists the objects of a kind.
func (c *ServerClient) Objects(ctx context.Context, kind string) (fleet.ObjectList, error) {
	return askServer[fleet.ObjectList](ctx, c, http.MethodGet, objectsPath(kind), nil)
}

// Object returns a whole object, named KIND/NAME, as it is stored.
func (c *ServerClient) Object(ctx context.Context, name string) (json.RawMessage, error) {
	return askServer[json.RawMessage](ctx, c, http.MethodGet, objectsPath(name), nil)
}

func objectsPath(name string) string { return "/v1/fleet/objects?name=" + url.QueryEscape(name) }

// DeletionPlan returns what a deletion would do.
func (c *ServerClient) DeletionPlan(ctx context.Context, req fleet.DeletionRequest) (fleet.Deletion, error) {
	return askServer[fleet.Deletion](ctx, c, http.MethodPost, "/v1/fleet/delete/plan", req)
}

// Delete requests the deletion of an object.
func (c *ServerClient) Delete(ctx context.Context, req fleet.DeletionRequest) (fleet.Deletion, error) {
	return askServer[fleet.Deletion](ctx, c, http.MethodPost, "/v1/fleet/delete", req)
}

// Slots returns the reboot slots: their holders and the waiting hosts.
func (c *ServerClient) Slots(ctx context.Context) (fleet.Slots, error) {
	return askServer[fleet.Slots](ctx, c, http.MethodGet, "/v1/fleet/slots", nil)
}

// ReleaseSlot frees the slot of a host that does not release it.
func (c *ServerClient) ReleaseSlot(ctx context.Context, req fleet.ReleaseRequest) (fleet.Release, error) {
	return askServer[fleet.Release](ctx, c, http.MethodPost, "/v1/fleet/slots/release", req)
}

func askServer[T any](ctx context.Context, c *ServerClient, method, path string, body any) (T, error) {
	a, err := ask[T](ctx, c.client, method, path, body)
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

// Unwrap returns the error that nothing answers at the socket.
func (e noServer) Unwrap() error { return e.UnreachableError }
