package agent

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status/pods"
)

// keyPods is the value that says that there may be Pod objects of this host: it is the Node's name.
const keyPods = "podObjects"

// buildPods makes what keeps the Pod objects of this host, or removes those that an earlier
// configuration has left.
func (a *Agent) buildPods(cfg config.Config) {
	if a.plane.Pods == nil || !cfg.Status.Pods && !a.podsLeft() {
		return
	}
	a.reports.podsLoop = loop.New("pod-objects", 0, nil)
	a.reports.pods = pods.New(pods.Options{
		Store:     a.plane.Pods,
		Node:      a.podsNode,
		Unseen:    func() bool { return a.host.runtimes.OutOfReach() != "" },
		Network:   a.podNetwork,
		Written:   a.podsWritten,
		Heartbeat: a.reports.podsLoop.Heartbeat,
		Log:       a.log.With("component", "pod-objects"),
	})
}

// podsLeft reports whether there may be objects.
func (a *Agent) podsLeft() bool {
	values, err := a.kept.values.Load()
	var node string
	return err == nil && json.Unmarshal(values[keyPods], &node) == nil && node == a.node()
}

// podsWritten remembers whether there may be objects.
func (a *Agent) podsWritten(written bool) {
	put, remove := map[string][]byte(nil), []string{keyPods}
	if written {
		name, err := json.Marshal(a.node())
		if err != nil {
			return // a string never fails
		}
		put, remove = map[string][]byte{keyPods: name}, nil
	}
	if err := a.kept.values.WriteNow(put, remove); err != nil {
		a.log.Warn("cannot remember whether there are pod objects", "error", err)
	}
}

// podsNode has name and addresses of this host's Node.
func (a *Agent) podsNode() pods.NodeFacts {
	f := pods.NodeFacts{Name: a.node()}
	node, _, _, _ := a.reports.reporter.Current()
	if node == nil {
		return f
	}
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			f.IPs = append(f.IPs, address.Address)
		}
	}
	return f
}

// podNetwork returns the network of a pod, if its runtime can.
func (a *Agent) podNetwork(ctx context.Context, p runtime.Pod) (runtime.PodNetwork, error) {
	for _, member := range a.host.runtimes.Set().Members() {
		if reporter, able := member.(runtime.NetworkReporter); able && member.Name() == p.Runtime {
			return reporter.PodNetwork(ctx, p)
		}
	}
	return runtime.PodNetwork{}, runtime.ErrUnsupported
}

// named takes in the UID that the control plane gave the Node.
func (a *Agent) named(uid types.UID) {
	a.plane.keeper.SetOwner(uid)
	if a.reports.pods != nil {
		a.reports.pods.Named(uid)
	}
}

// lost takes in that the Node is not this host's any more.
func (a *Agent) lost() {
	if a.reports.pods != nil {
		a.reports.pods.Lost()
	}
}

// removePods is nil if there are no objects of pods.
func (a *Agent) removePods() func(context.Context) error {
	if a.reports.pods == nil {
		return nil
	}
	return a.reports.pods.Remove
}
