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

// keyPods is the key of a state value: the Node's name if Pod objects of this host may exist.
const keyPods = "podObjects"

// buildPods creates the publisher of Pod objects. If Pod objects are disabled, the publisher only
// removes those that an earlier configuration left.
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

// podsLeft reports whether Pod objects of this host may exist.
func (a *Agent) podsLeft() bool {
	values, err := a.kept.values.Load()
	var node string
	return err == nil && json.Unmarshal(values[keyPods], &node) == nil && node == a.node()
}

// podsWritten persists whether Pod objects may exist.
func (a *Agent) podsWritten(written bool) {
	put, remove := map[string][]byte(nil), []string{keyPods}
	if written {
		name, err := json.Marshal(a.node())
		if err != nil {
			return // marshaling a string cannot fail
		}
		put, remove = map[string][]byte{keyPods: name}, nil
	}
	if err := a.kept.values.WriteNow(put, remove); err != nil {
		a.log.Warn("cannot remember whether there are pod objects", "error", err)
	}
}

// podsNode returns the name and the addresses of this host's Node.
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

// podNetwork returns the network of a pod, if its runtime supports that.
func (a *Agent) podNetwork(ctx context.Context, p runtime.Pod) (runtime.PodNetwork, error) {
	for _, member := range a.host.runtimes.Set().Members() {
		if reporter, able := member.(runtime.NetworkReporter); able && member.Name() == p.Runtime {
			return reporter.PodNetwork(ctx, p)
		}
	}
	return runtime.PodNetwork{}, runtime.ErrUnsupported
}

// named records the UID that the control plane gave the Node.
func (a *Agent) named(uid types.UID) {
	a.plane.keeper.SetOwner(uid)
	if a.reports.pods != nil {
		a.reports.pods.Named(uid)
	}
}

// lost records that the Node no longer belongs to this host.
func (a *Agent) lost() {
	if a.reports.pods != nil {
		a.reports.pods.Lost()
	}
}

// removePods returns the function that removes Pod objects; nil if there are none.
func (a *Agent) removePods() func(context.Context) error {
	if a.reports.pods == nil {
		return nil
	}
	return a.reports.pods.Remove
}
