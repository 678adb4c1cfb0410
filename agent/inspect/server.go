package inspect

import (
	"context"
	"errors"
	"os"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane/server"
	"hostler.io/hostler/controlplane/server/config"
)

// serverTimeout bounds how long a server may take to answer.
const serverTimeout = 5 * time.Second

// Server queries the server on this host, if there is one, and reads its files.
func Server(ctx context.Context) *doctor.Server {
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	s := &doctor.Server{Socket: config.DefaultSocket}
	// The service on this host does not run in a pod, so it has no such environment.
	c, _, err := server.Spec(func(string) string { return "" }).Load(config.DefaultFile, config.DefaultDropIns)
	if err != nil {
		s.Fault = err.Error()
	} else {
		s.Socket = c.API.Socket
	}
	_, err = os.Lstat(s.Socket)
	s.Found = err == nil
	status, err := api.NewServerClient(s.Socket).FleetStatus(ctx)
	if err != nil {
		s.Problem = err.Error()
		if unreachable, ok := errors.AsType[*api.UnreachableError](err); ok {
			s.Problem = unreachable.Cause.Error()
		}
		return s
	}
	s.Status = &status
	return s
}
