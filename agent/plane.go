package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/status/report"
)

// plane is the control plane, and what this host is there.
type plane struct {
	*open.ControlPlane

	recorder  *controlplane.Recorder
	keeper    *controlplane.LeaseKeeper
	lease     *loop.Loop               // of the keeper
	pacing    *controlplane.Pacing     // for how long the control plane requests the Lease to be good
	leases    *controlplane.LeaseWatch // judges whether another machine is alive
	existence *loop.Gate               // shut while there is no Node, and hostler is not to create it
	member    *loop.Gate               // shut once a person took the Node off the control plane
	left      *report.Departures       // who did
	past      *owner.Past              // the kubelet whose Node it may be
}

// identity is the machine by which its Node and Lease are known.
func identity(machine probe.Machine) controlplane.Identity {
	return controlplane.Identity{MachineID: machine.MachineID, SystemUUID: machine.SystemUUID}
}

func (a *Agent) buildControlPlane(cfg config.Config) error {
	opened, err := open.NewControlPlane(cfg.ControlPlane, open.ControlPlaneOptions{
		Node: a.node(), Version: a.version, Pods: cfg.Status.Pods,
		State: a.kept.folder, Endpoint: cfg.State.Directory, Machine: identity(a.host.machine),
		Renewed: a.changed.Send, // write the status now
		Log:     a.log,
	})
	if err != nil {
		return err
	}
	a.defers("control plane", opened.Close)
	return a.joins(cfg, opened, a.host.machine)
}

// joins makes what this host, a machine, needs on a control plane.
func (a *Agent) joins(cfg config.Config, opened *open.ControlPlane, machine probe.Machine) (err error) {
	client := opened.Client
	left := report.OpenDepartures(a.kept.notes, a.node(), client.Type(), a.log)
	unresponsive := func() bool { return left.Gone() || a.naming.unnamed() } // no Events of a Node that has left or has no name
	a.plane = plane{
		ControlPlane: opened,
		left:         left,
		recorder:     controlplane.NewRecorder(client, a.node(), time.Now, unresponsive, a.log),
		lease:        loop.New("lease", time.Duration(cfg.Lease.Duration), nil),
		leases:       controlplane.NewLeaseWatch(nil),
		existence:    loop.NewGate(""), member: loop.NewGate(""),
	}
	if !cfg.Node.Register {
		a.plane.existence.Set("not known yet whether the Node exists")
	}
	a.plane.keeper, err = controlplane.NewLeaseKeeper(observedRenewer{client, a.metrics.Renewal}, controlplane.LeasePolicy{
		Node:      a.node(),
		Holder:    identity(machine),
		Instance:  fmt.Sprintf("%s/%d/%s", machine.BootID, os.Getpid(), rand.Text()[:8]),
		Watch:     a.plane.leases,
		Heartbeat: a.renewalTried,
		Duration:  time.Duration(cfg.Lease.Duration),
		Interval:  time.Duration(cfg.Lease.RenewInterval),
		Takeover:  cfg.Node.Takeover,
	}, a.log)
	if err != nil {
		return err
	}
	takeOff := "correct or remove the annotation on this Node in the control plane (/usr/share/doc/hostler/docs/explanation/heartbeats.md)"
	if client.Type() == kubernetes.Type {
		takeOff = fmt.Sprintf("remove it: `kubectl annotate node %s %s-`", a.node(), controlplane.AnnotationLeaseDuration)
	}
	keeper, lease := a.plane.keeper, a.plane.lease
	a.plane.pacing = controlplane.NewPacing(time.Duration(cfg.Lease.Duration), takeOff, func(duration time.Duration) {
		lease.Allow(duration)
		keeper.SetPace(duration)
	}, a.log)
	return nil
}

// twin is the host that renews this one's Lease as well; nil if none does.
func (p plane) twin() *controlplane.Clone { return p.keeper.Stats().Clone }

// observedRenewer reports how each renewal ended.
type observedRenewer struct {
	controlplane.Client
	observe func(error)
}

// RenewLease renews and reports.
func (r observedRenewer) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	stored, err := r.Client.RenewLease(ctx, lease)
	r.observe(err)
	return stored, err
}
