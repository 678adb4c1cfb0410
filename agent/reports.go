package agent

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/status/conditions"
	"hostler.io/hostler/status/gather"
	"hostler.io/hostler/status/pods"
	"hostler.io/hostler/status/report"
)

// conditionsPatience is how long the loop of checks may run without completing a round.
const conditionsPatience = 6*conditions.ScanInterval + time.Minute

// reports has the parts that report this host to the control plane.
type reports struct {
	reporter   *report.Reporter
	bootEvents *report.BootEvents
	drains     *report.DrainEvents
	pods       *pods.Publisher // nil if there are no objects of pods
	podsLoop   *loop.Loop      // of pods
}

func (a *Agent) buildReports(cfg config.Config) (err error) {
	h := &a.host
	h.network = gather.NewNetwork(gather.NetworkOptions{
		ControlPlane: a.plane.Address, Endpoint: a.plane.Endpoint, Lost: a.plane.Reconnect,
		Log: a.log.With("component", "network"),
	})
	h.checks, err = conditions.New(conditions.Options{
		Policy:  cfg.ConditionsPolicy(),
		Changed: a.changed.Send,
		Appeared: func(p conditions.Program, message string) {
			a.plane.recorder.Record(controlplane.NodeReference(a.node()), corev1.EventTypeWarning, p.Reason, string(p.Type)+": "+message)
		},
		Observe: func(p conditions.Program, r conditions.Result) { a.metrics.Check(p.Type, r.Answer, r.Took) },
		Log:     a.log.With("component", "conditions"),
	})
	if err != nil {
		return err
	}
	h.facts = gather.NewFacts(gather.FactsOptions{
		Reader:     h.reader,
		Folder:     cfg.State.Directory,
		Runtimes:   h.runtimes,
		Machine:    h.machine,
		Network:    h.network.Current,
		Guard:      a.shutdown.board.Status,
		OtherGuard: a.otherGuard,
		Stalls:     func() []string { return a.settings.Node().Pressure.Stalls() },
		MaxImages:  func() int { return a.config().Status.MaxImages },
		Custom:     h.checks.Custom,
		Scanned:    h.checks.Scanned,
	})
	a.reports.reporter = report.New(a.reportOptions(cfg))
	a.reports.bootEvents = report.NewBootEvents(a.node(), a.plane.recorder, a.kept.journal, a.kept.reboots, a.kept.values, a.log)
	a.buildPods(cfg)
	a.reports.drains = report.NewDrainEvents(a.node(), a.plane.recorder)
	return nil
}

// reportOptions returns the options of the reporter.
func (a *Agent) reportOptions(cfg config.Config) report.Options {
	return report.Options{
		Client:   a.plane.Client,
		Recorder: a.plane.recorder,
		Facts:    a.host.facts,
		Node:     a.settings.Node,
		Policy: report.Policy{
			Update:    time.Duration(cfg.Status.UpdateInterval),
			Rewrite:   time.Duration(cfg.Status.ReportInterval),
			Takeover:  cfg.Node.Takeover,
			AdoptOnly: a.adoptOnly(cfg.Node),
		},
		Watch:     a.plane.leases,
		Twin:      a.plane.leaseClone,
		Mine:      func() bool { return a.owners.Has(owner.Node) },
		Beside:    a.owners.Beside,
		Rebooting: a.shutdown.rebooting,
		Boot:      a.host.boot,
		Storage:   report.Storage{Store: a.kept.values, Notes: a.kept.notes, Flush: a.kept.flush, Unread: a.kept.notes.Unread(), Departures: a.plane.left},
		Listeners: report.Listeners{
			Named:     a.named,
			Lost:      a.lost,
			Requested: func(leaseDuration string) { a.plane.pacing.Request(controlplane.RequestedForNode, leaseDuration) },
			Waits:     a.leaseWaits,
			Taints:    func(taints []corev1.Taint) { a.shutdown.selfDrainer.Taints(taints) },
			Stored:    a.nodeStored,
			Theirs:    a.plane.past.NodeShows,
			Observe:   a.metrics.StatusWrite,
			Count:     a.transitioned,
		},
		Changed: a.changed,
		Log:     a.log,
	}
}

// transitioned counts a condition's change. If a disk is under pressure, it starts the collection
// of dead containers and then of images at once.
func (a *Agent) transitioned(c corev1.NodeCondition) {
	a.metrics.Transition(c)
	if c.Type == corev1.NodeDiskPressure && c.Status == corev1.ConditionTrue {
		a.gc.dead.Trigger(string(c.Type))
		a.gc.images.Trigger(string(c.Type))
	}
}
