package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/selfdrain"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/shutdown/journal"
)

// buildSelfDrain creates the drainer for requested drains, and the controller for automatic drains.
func (a *Agent) buildSelfDrain() {
	s := &a.shutdown
	s.drainer = maintenance.New(maintenance.Options{
		Node: a.node(), ControlPlane: a.plane.Type(), Owners: a.owners, Reporter: a.reports.reporter, Recorder: a.plane.recorder,
		Guard: s.guard, Member: a.plane.member, Drained: a.kept.drained, Journal: a.kept.journal,
		OutOfReach: a.host.runtimes.OutOfReach, Flush: a.kept.notes.Flush, Log: a.log, RemovePods: a.removePods(),
	})
	node, file := controlplane.NodeReference(a.node()), a.kept.folder.File("self-drain")
	s.selfDrainer = selfdrain.New(selfdrain.Options{
		Policy:   a.selfDrainPolicy,
		Jobs:     a.selfDrainJobs,
		Drainer:  s.drainer,
		Store:    file,
		Flush:    file.Flush,
		Boot:     a.host.boot,
		Of:       a.plane.Type() + "/" + a.node(),
		Read:     a.readTaints,
		Now:      func() selfdrain.Instant { return selfdrain.Instant{Boot: uptime(), Wall: time.Now()} },
		Fix:      a.selfDrainFix,
		Unknown:  a.kept.unknown,
		Announce: func(kind, reason, message string) { a.plane.recorder.Record(node, kind, reason, message) },
		Log:      a.log,
	})
}

// readTaints reads the taints of this host's Node.
func (a *Agent) readTaints(ctx context.Context) ([]corev1.Taint, error) {
	node, err := a.plane.Client.Node(ctx, a.node())
	if errors.Is(err, controlplane.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return node.Spec.Taints, nil
}

// selfDrainPolicy is the effective configuration.
func (a *Agent) selfDrainPolicy() selfdrain.Policy {
	cfg := a.config()
	return selfdrain.Policy{
		OnTaint:    cfg.Node.OnTaint == config.ReactDrain,
		OnLost:     cfg.Lease.OnLost == config.ReactDrain,
		Toleration: time.Duration(cfg.Node.Toleration),
		Own:        a.settings.Node().Taints,
	}
}

// selfDrainJobs reports which jobs on the control plane hostler owns.
func (a *Agent) selfDrainJobs() selfdrain.Jobs {
	mine, other, _ := a.owners.Mine(owner.Node)
	return selfdrain.Jobs{
		Node:  mine,
		Lease: a.owners.Has(owner.Lease) && (mine || other.Name != owner.Kubelet),
		Left:  a.plane.left.Gone(),
	}
}

// selfDrainFix returns how to prevent a drain.
func (a *Agent) selfDrainFix(c selfdrain.Cause) string {
	switch {
	case c.Trigger == journal.TriggerLeaseLost:
		return "connect this host to its control plane, or set lease.onLost: none and run `hostler reload`"
	case a.plane.Type() == kubernetes.Type:
		return fmt.Sprintf("remove the taint with `kubectl taint nodes %s %s:NoExecute-`, or set node.onTaint: none and run `hostler reload`", a.node(), c.Taint.Key)
	}
	return "remove the taint from the Node (etcd: /usr/share/doc/hostler/docs/reference/etcd.md, section Taints), or set node.onTaint: none and run `hostler reload`"
}

// renewalTried reports how an attempt to renew the Lease ended.
func (a *Agent) renewalTried(err error) {
	a.plane.lease.Heartbeat(err)
	if a.shutdown.selfDrainer == nil { // selfDrainer is created later
		return
	}
	duration := time.Duration(a.config().Lease.Duration)
	if l := a.plane.keeper.Stats().Lease; l != nil && l.Spec.LeaseDurationSeconds != nil {
		duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	a.shutdown.selfDrainer.Renewal(err, duration)
}

// leaseWaits records why the Lease waits for the Node; empty if it does not.
func (a *Agent) leaseWaits(why string) {
	a.plane.existence.Set(why)
	a.shutdown.selfDrainer.Waits(why != "")
}
