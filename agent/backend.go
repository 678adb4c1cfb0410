package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
)

// lookTimeout bounds how long `hostler status` waits for a runtime: a person
// looks because something is wrong.
const lookTimeout = 3 * time.Second

var _ api.Backend = (*Agent)(nil)

// Status tells how host and agent are. What a runtime does not tell in time is
// left out, and the runtime is shown as what it is.
func (a *Agent) Status(ctx context.Context) (api.Status, error) {
	cfg := a.config()
	node, facts, connected, err := a.reporter.Current()
	lease := a.keeper.Stats()
	s := api.Status{
		Version:      a.options.Version,
		Node:         node,
		Lease:        lease.Lease,
		ControlPlane: api.ControlPlane{Type: a.client.Type(), Endpoint: a.client.Endpoint(), Connected: connected},
		Runtimes:     []api.Runtime{},
		Owners:       a.owners.All(),
		Topology:     status.NewTopology(facts),
		Shutdown:     a.guard.Status(),
		ImageGC: api.ImageGC{
			Filesystems:          []gc.FilesystemStatus{},
			HighThresholdPercent: cfg.ImageGC.HighThresholdPercent,
			LowThresholdPercent:  cfg.ImageGC.LowThresholdPercent,
		},
		Loops:   a.health(),
		Reboots: a.reboots.Status(uptime()),
		State:   api.State{Path: cfg.State.Directory},

		Configuration:    a.configuration(),
		CustomConditions: a.customConditions(),
		Network:          a.networkStatus(),
	}
	s.Addresses = a.choices(node, facts)
	for _, r := range append(a.runtimes.Named(), a.runtimes.Unheard()...) {
		s.Runtimes = append(s.Runtimes, api.Runtime{Name: r.Name, Version: r.Version, Endpoint: r.Endpoint, Ready: r.Ready, Message: r.Message})
	}
	_, adds := a.client.(controlplane.ConditionWriter)
	for _, last := range []struct {
		job owner.Job
		err error
		add bool // also where the job is a kubelet's
	}{{owner.Node, err, adds && a.besideKubelet()}, {owner.Lease, lease.LastError, false}} {
		if mine, _, _ := a.owners.Mine(last.job); !mine && !last.add || a.member.Reason() != "" { // nothing is tried any more
			continue
		}
		if last.err != nil && !strings.Contains(s.ControlPlane.LastError, last.err.Error()) {
			s.ControlPlane.LastError = strings.TrimPrefix(s.ControlPlane.LastError+"; "+last.err.Error(), "; ")
		}
	}
	if options := a.nodeOptions(); node != nil {
		if err := status.CheckReserved(facts, options.Reserved, options.Pressure); err != nil {
			s.Shortage = strings.ReplaceAll(err.Error(), "\n", "; ")
		}
	}
	if a.member.Reason() != "" {
		s.Lease = nil // it has left with the Node
	}
	standing := a.reporter.Standing()
	s.ControlPlane.Resting = standing.Waits
	for _, d := range standing.Drift {
		s.Drift = append(s.Drift, api.Drift(d))
	}
	if a.opened.Certificate != nil {
		if _, waiting := a.opened.Certificate.Status(); waiting != nil {
			s.ControlPlane.Credentials = waiting.Error()
		}
	}
	s.LeasePace = leasePace(a.pacing.Pace())
	if err := lease.Overdue(time.Duration(cfg.Lease.Duration)); err != nil {
		s.ControlPlane.Overdue = err.Error()
	}
	if health := a.state.Health(); health.Message != "" || health.SetAside != "" {
		s.State.Message = health.Message
		if health.SetAside != "" {
			s.State.Message += "an unusable state file was set aside as " + health.SetAside
		}
	}
	if last, ran := a.images.Last(); ran {
		summary := last.Summary()
		s.ImageGC.LastRun = &summary
	}
	if last, ran := a.dead.Last(); ran {
		summary := last.Summary()
		s.ContainerGC.LastRun = &summary
	}
	if d := a.reporter.Decided(); d != nil {
		s.Cordon = &maintenance.Cordon{Unschedulable: d.Unschedulable, By: d.By, At: d.At, Pending: !d.Delivered}
	}
	a.countRubbish(ctx, &s)
	return s, nil
}

// leasePace is nil where nobody asks for another pace than is configured.
func leasePace(p controlplane.Pace) *api.LeasePace {
	if p.By == "" && len(p.Faults) == 0 {
		return nil
	}
	pace := &api.LeasePace{Duration: metav1.Duration{Duration: p.Duration}, By: p.By}
	for _, f := range p.Faults {
		pace.Faults = append(pace.Faults, api.Drift(f))
	}
	return pace
}

// choices say why the Node has the addresses that this host has chosen for it. A
// cloud controller manager may have chosen others.
func (a *Agent) choices(node *corev1.Node, facts status.Facts) []status.Choice {
	list := []status.Choice{}
	if node == nil {
		return list
	}
	choices, _ := status.Choose(facts.Network, a.nodeOptions().Addresses, a.node) // NetworkUnavailable tells what lacks
	for _, c := range choices {
		if slices.Contains(node.Status.Addresses, corev1.NodeAddress{Type: c.Type, Address: c.Address}) {
			list = append(list, c)
		}
	}
	return list
}

// countRubbish fills in what lists of images and containers tell.
func (a *Agent) countRubbish(ctx context.Context, s *api.Status) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	facts, err := a.survey.Facts(ctx, gc.Options{Images: true}) // which look at no logs
	if err != nil {                                             // zeroes alone would pass for an empty host
		s.ImageGC.Message, s.ContainerGC.Message = err.Error(), err.Error()
	}
	plan := gc.Plan(facts, a.gcPolicy(), time.Now(), gc.Options{Images: true})
	for _, fs := range plan.Filesystems {
		s.ImageGC.Filesystems = append(s.ImageGC.Filesystems, fs.FilesystemStatus)
	}
	s.ImageGC.Images = len(plan.Images)
	for _, img := range plan.Images {
		if img.Reason != gc.InUse {
			s.ImageGC.Unused++
		}
	}
	s.ImageGC.OnRequest, s.ContainerGC.OnRequest = a.onRequest(facts)
	for _, p := range facts.Pods {
		for _, c := range p.Containers {
			s.ContainerGC.Containers++
			if c.State == runtime.Exited {
				s.ContainerGC.Dead++
			}
		}
	}
}

// gcPolicy is the one in force.
func (a *Agent) gcPolicy() gc.Policy {
	return gc.Policy{Images: a.images.Policy(), Containers: a.dead.Policy()}
}

// Pods lists the pods with how a shutdown would treat them and how the last one
// did. The error names the runtimes that did not answer.
func (a *Agent) Pods(ctx context.Context) (api.PodList, error) {
	list := api.PodList{Pods: []api.Pod{}}
	pods, err := a.runtimes.Set().Pods(ctx)
	if len(pods) == 0 && err != nil {
		return list, err
	}
	a.mu.Lock()
	phases, rules := a.policies.Phases, a.policies.Rules
	a.mu.Unlock()
	guard := a.guard.Status()
	type key struct{ runtime, id string }
	planned := map[key]plan.PlannedPod{}
	phase := map[key]string{}
	for _, ph := range plan.New(phases, pods, rules, guard.InhibitDelayMax.Duration).Phases {
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
		priority, _ := plan.Priority(p, rules)
		pod := api.Pod{
			Runtime: p.Runtime, ID: p.ID, UID: p.UID, Namespace: p.Namespace, Name: p.Name,
			Ready: p.Ready, CreatedAt: p.CreatedAt,
			Phase: phase[k], Priority: priority, Grace: planned[k].Grace,
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
	list.Message = a.runtimes.OutOfReach()
	if err != nil {
		list.Message = strings.TrimSuffix(err.Error()+"; "+list.Message, "; ")
	}
	return list, nil
}

// exitCode is nil where a container has ended and its runtime does not know how.
func exitCode(c runtime.Container) *int32 {
	if c.State == runtime.Exited && c.FinishedAt.IsZero() {
		return nil
	}
	return &c.ExitCode
}

// Images lists the images in the order in which they would go.
func (a *Agent) Images(ctx context.Context) (api.ImageList, error) {
	p, err := a.CollectPlan(ctx, api.CollectRequest{Images: true})
	return api.ImageList{Images: queue(p.Images), Message: p.Message}, err
}

// queue gives images that nothing keeps their places: those of one filesystem go
// in the order of the plan, whatever is removed elsewhere.
func queue(planned []gc.ImageDecision) []api.Image {
	images := make([]api.Image, len(planned))
	last := make(map[string]int) // by filesystem
	for i, d := range planned {
		images[i].ImageDecision = d
		if d.Action == gc.Remove || d.Reason == gc.BelowThreshold {
			last[d.Filesystem]++
			images[i].Place = last[d.Filesystem]
		}
	}
	return images
}

// CollectPlan says what a collection would remove now, and why.
func (a *Agent) CollectPlan(ctx context.Context, req api.CollectRequest) (api.CollectPlan, error) {
	o := collectOptions(req)
	facts, err := a.survey.Facts(ctx, o)
	p := api.CollectPlan{Decisions: gc.Plan(facts, a.gcPolicy(), time.Now(), o)}
	if err != nil {
		if len(facts.Images) == 0 && len(facts.Pods) == 0 {
			return p, err
		}
		p.Message = err.Error()
	}
	if facts.LogsErr != nil {
		p.Message = strings.TrimPrefix(p.Message+"; look for logs: "+facts.LogsErr.Error(), "; ")
	}
	return p, nil
}

// Collect collects for a person: dead containers first, since they hold images.
func (a *Agent) Collect(ctx context.Context, req api.CollectRequest, progress func(runs.Progress)) (runs.Report, error) {
	o := collectOptions(req)
	var report runs.Report
	both := req.Images == req.Containers
	if req.Containers || both {
		r, err := a.dead.Collect(ctx, o, progress)
		if err != nil || !both {
			return r, err
		}
		report = r
	}
	r, err := a.images.Collect(ctx, o, progress)
	switch {
	case !both:
		return r, err
	case err != nil: // what was done before is told all the same
		report.Errors = append(report.Errors, err.Error())
		return report, nil
	}
	return report.Then(r), nil
}

func collectOptions(req api.CollectRequest) gc.Options {
	return gc.Options{Images: req.Images, Containers: req.Containers, AllUnused: req.AllUnused, TargetPercent: req.TargetPercent}
}

// ShutdownPlan says what a shutdown would do now, also to the pods of a runtime
// that does not answer, as they were last seen: a shutdown would try no less.
func (a *Agent) ShutdownPlan(ctx context.Context) (api.ShutdownPlan, error) {
	p, err := a.guard.Plan(ctx)
	p.Message = a.runtimes.OutOfReach()
	if err != nil {
		p.Message = strings.TrimSuffix(err.Error()+"; "+p.Message, "; ")
	}
	guard := a.guard.Status()
	return api.ShutdownPlan{
		Plan: p, State: guard.State, Reason: guard.Reason,
		Needed: guard.InhibitDelayNeeded, Shortage: guard.InhibitDelayShortage,
		StopFirst: a.config().Shutdown.StopFirst, RestartAfterBoot: a.config().Shutdown.RestartAfterBoot,
	}, nil
}
