package backend

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/internal/hint"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/discovery"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

// Workloads answers requests about pods, their logs, and how a shutdown treats them.
type Workloads struct {
	Runtimes *discovery.Runtimes
	Guard    *shutdown.Guard
	Settings *settings.Settings
}

// Pods lists the pods, how a shutdown would treat them and how the last one did. The error names
// the runtimes that did not answer.
func (b *Workloads) Pods(ctx context.Context) (api.PodList, error) {
	list := api.PodList{Pods: []api.Pod{}}
	pods, err := b.Runtimes.Set().Pods(ctx)
	if len(pods) == 0 && err != nil {
		return list, err
	}
	policies, guard := b.Settings.Policies(), b.Guard.Status()
	p, incomplete := b.Guard.PlanOf(ctx, pods)
	type key struct{ runtime, id string }
	planned := map[key]plan.PlannedPod{}
	phase := map[key]string{}
	for _, ph := range p.Phases {
		for _, p := range ph.Pods {
			planned[key{p.Runtime, p.ID}], phase[key{p.Runtime, p.ID}] = p, ph.Name
		}
	}
	last := map[string]*journal.PodRecord{}
	if guard.Last != nil {
		for i, p := range guard.Last.Pods {
			last[p.Namespace+"/"+p.Name] = &guard.Last.Pods[i]
		}
	}
	for _, p := range pods {
		k := key{p.Runtime, p.ID}
		priority, _ := plan.Priority(p, policies.Rules)
		pod := api.Pod{
			Runtime: p.Runtime, ID: p.ID, UID: p.UID, Namespace: p.Namespace, Name: p.Name,
			Ready: p.Ready, CreatedAt: p.CreatedAt,
			Phase: phase[k], Priority: priority, Grace: planned[k].Grace,
			Labels:       plan.OwnLabels(p),
			Containers:   make([]api.Container, 0, len(p.Containers)),
			LastShutdown: last[p.Namespace+"/"+p.Name],
		}
		for _, c := range p.Containers {
			pod.Containers = append(pod.Containers, api.Container{
				Runtime: c.Runtime, ID: c.ID, Name: c.Name, Image: c.Image, State: c.State.String(),
				ExitCode: exitCode(c), CreatedAt: c.CreatedAt, FinishedAt: c.FinishedAt,
			})
		}
		list.Pods = append(list.Pods, pod)
	}
	list.Message = b.Runtimes.OutOfReach()
	if err := errors.Join(err, incomplete); err != nil {
		list.Message = strings.TrimSuffix(err.Error()+"; "+list.Message, "; ")
	}
	return list, nil
}

// exitCode is nil if a container has ended and its runtime does not know the exit code.
func exitCode(c runtime.Container) *int32 {
	if c.State == runtime.Exited && c.FinishedAt.IsZero() {
		return nil
	}
	return &c.ExitCode
}

// ShutdownPlan returns what a shutdown would do now. If a runtime does not answer, the plan uses
// the last known state of its pods, as a shutdown would.
func (b *Workloads) ShutdownPlan(ctx context.Context) (api.ShutdownPlan, error) {
	p, err := b.Guard.Plan(ctx)
	p.Message = b.Runtimes.OutOfReach()
	if err != nil {
		p.Message = strings.TrimSuffix(err.Error()+"; "+p.Message, "; ")
	}
	guard := b.Guard.Status()
	return api.ShutdownPlan{
		Plan: p, State: guard.State, Reason: guard.Reason,
		Needed: guard.InhibitDelayNeeded, Shortage: guard.InhibitDelayShortage,
		StopFirst: b.Settings.Config().Shutdown.StopFirst, RestartAfterBoot: b.Settings.Config().Shutdown.RestartAfterBoot,
	}, nil
}

// ContainerLog returns the log of a container, if its runtime supports that.
func (b *Workloads) ContainerLog(ctx context.Context, req api.LogRequest) ([]byte, error) {
	set := b.Runtimes.Set()
	pods, err := set.Pods(ctx)
	c, found := named(pods, req)
	if !found {
		e := &hint.Error{Message: fmt.Sprintf("there is no container %s in pod %q of namespace %q", req.Container, req.Pod, req.Namespace), Hint: "`hostler ps -o json` lists those that there are, or GET /v1/pods", Status: http.StatusNotFound}
		if err != nil { // a runtime that did not answer may have the container
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
	return nil, &hint.Error{Message: fmt.Sprintf("runtime %s keeps no log of container %s that can be read", c.Runtime, req.Container), Hint: "ask on the host, by `journalctl` or the runtime's own command", Status: http.StatusNotImplemented}
}

// named finds the newest container with this name. A runtime may keep dead containers with the same
// name, and two runtimes may each have one.
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
