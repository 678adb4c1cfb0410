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
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/status/probe"
	"hostler.io/hostler/status/report"
)

// plane has the client of the control plane, and what represents this host there.
type plane struct {
	*open.ControlPlane

	recorder  *controlplane.Recorder
	keeper    *controlplane.LeaseKeeper
	lease     *loop.Loop               // of the keeper
	pacing    *controlplane.Pacing     // Lease duration that the control plane requests
	leases    *controlplane.LeaseWatch // reports whether another machine is alive
	existence *loop.Gate               // closed while there is no Node and hostler must not create it
	member    *loop.Gate               // closed after a user deregistered the host
	left      *report.Departures       // who deregistered it
	past      *owner.Past              // a kubelet that may have written the Node before
}

// identity returns the machine IDs that identify its Node and Lease.
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

// adoptOnly says why hostler must not create the Node; empty if it may. If it is not known whether a person has
// deregistered the host, it only uses an existing one.
func (a *Agent) adoptOnly(n config.Node) string {
	switch {
	case !n.Register:
		return "node.register is false, so another client has to create it"
	case a.plane.Type() == embedded.Type:
		return ""
	}
	return a.kept.unknown()
}

// joins creates the parts that represent this machine on a control plane.
func (a *Agent) joins(cfg config.Config, opened *open.ControlPlane, machine probe.Machine) (err error) {
	client := opened.Client
	left := report.OpenDepartures(a.kept.notes, a.node(), client.Type(), a.log)
	unresponsive := func() bool { return left.Gone() || a.naming.nameInvalid() } // send no Events for a Node that was deregistered or has no name
	a.plane = plane{
		ControlPlane: opened,
		left:         left,
		recorder:     controlplane.NewRecorder(client, a.node(), time.Now, unresponsive, a.log),
		lease:        loop.New("lease", leasePatience(time.Duration(cfg.Lease.Duration)), nil),
		leases:       controlplane.NewLeaseWatch(nil),
		existence:    loop.NewGate(""), member: loop.NewGate(""),
	}
	if a.adoptOnly(cfg.Node) != "" {
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
		Rebooting: a.hasTurn,
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
		lease.Allow(leasePatience(duration))
		keeper.SetPace(duration)
	}, a.log)
	return nil
}

// leaseClone returns another host that renews the same Lease; nil if there is none.
func (p plane) leaseClone() *controlplane.Clone { return p.keeper.Stats().Clone }

// observedRenewer reports the result of each renewal.
type observedRenewer struct {
	controlplane.Client
	observe func(error)
}

// RenewLease renews the Lease and reports the result.
func (r observedRenewer) RenewLease(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	stored, err := r.Client.RenewLease(ctx, lease)
	r.observe(err)
	return stored, err
}

// leasePatience is how long the loop of a Lease may take for a round: a pause, and an attempt with several calls.
func leasePatience(duration time.Duration) time.Duration { return 2 * duration }
