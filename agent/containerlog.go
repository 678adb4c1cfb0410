package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/runtime"
)

// ContainerLog tells what a container has written, if its runtime can.
func (a *Agent) ContainerLog(ctx context.Context, req api.LogRequest) ([]byte, error) {
	set := a.runtimes.Set()
	pods, err := set.Pods(ctx)
	c, found := named(pods, req)
	if !found {
		e := &api.Error{Message: fmt.Sprintf("there is no container %s in pod %q of namespace %q", req.Container, req.Pod, req.Namespace), Hint: "`hostler ps -o json` lists those that there are, or GET /v1/pods", Status: http.StatusNotFound}
		if err != nil { // it may be there
			e.Message, e.Status = e.Message+": "+err.Error(), http.StatusInternalServerError
		}
		return nil, e
	}
	for _, member := range set.Members() {
		reader, able := member.(runtime.LogReader)
		if member.Name() != c.Runtime || !able {
			continue
		}
		text, err := reader.Log(ctx, c, req.Lines, api.MaxLogBytes)
		if errors.Is(err, runtime.ErrUnsupported) {
			break
		}
		return text, err
	}
	return nil, &api.Error{Message: fmt.Sprintf("runtime %s keeps no log of container %s that can be read", c.Runtime, req.Container), Hint: "ask on the host, by `journalctl` or the runtime's own command", Status: http.StatusNotImplemented}
}

// named finds a container, the one that was made last: a runtime may keep dead ones of
// that name, and two runtimes may each have one.
func named(pods []runtime.Pod, req api.LogRequest) (c runtime.Container, found bool) {
	for _, p := range pods {
		if p.Namespace != req.Namespace || p.Name != req.Pod {
			continue
		}
		for _, one := range p.Containers {
			if one.Name == req.Container && (!found || one.CreatedAt.After(c.CreatedAt)) {
				c, found = one, true
			}
		}
	}
	return c, found
}
