package backend

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/caller"
	"hostler.io/hostler/internal/hint"
)

// Reboots answers requests about reboots.
type Reboots struct {
	Controller *reboot.Controller // nil unless reboots are enabled
	Drainer    *maintenance.Drainer
	Settings   *settings.Settings
	// Unprotected returns api.RebootPlan.Unprotected.
	Unprotected func() string
}

// enabled returns an error unless reboots are enabled.
func (b *Reboots) enabled() error {
	if b.Controller == nil {
		return &hint.Error{Message: "reboots by hostler are disabled on this host", Hint: "set reboot.enabled: true and run `systemctl restart hostler`; `systemctl reboot` reboots at once, with pods stopped in order"}
	}
	return nil
}

// Cordon implements api.Drainer. While hostler reboots the host, it does not uncordon the Node, because the drain
// continues.
func (b *Backend) Cordon(ctx context.Context, unschedulable bool) (maintenance.CordonReport, error) {
	if c := b.Controller; c != nil && !unschedulable {
		if r := c.Report().Request; r != nil && r.Step.Running() {
			e := &hint.Error{Message: fmt.Sprintf("uncordon: hostler reboots this host, and is at step %s", r.Step), Hint: "to cancel the reboot, run `hostler reboot --cancel`"}
			if r.Step == controlplane.RebootVerifying {
				e.Hint = "to end the checks after the reboot, run `hostler reboot --cancel`"
			}
			return maintenance.CordonReport{}, e
		}
	}
	return b.Drainer.Cordon(ctx, unschedulable)
}

// Leave implements api.Drainer. A reboot in progress ends at once: the host has no slot any more.
func (b *Backend) Leave(ctx context.Context) (maintenance.LeaveReport, error) {
	report, err := b.Drainer.Leave(ctx)
	if b.Controller != nil {
		b.Controller.Reconfigured()
	}
	return report, err
}

// Reboot implements api.Rebooter.
func (b *Reboots) Reboot(ctx context.Context, ask reboot.Ask) (reboot.Report, error) {
	if err := b.enabled(); err != nil {
		return reboot.Report{}, err
	}
	return b.Controller.Request(caller.Name(ctx), ask)
}

// CancelReboot implements api.Rebooter.
func (b *Reboots) CancelReboot(ctx context.Context) (reboot.Report, error) {
	if err := b.enabled(); err != nil {
		return reboot.Report{}, err
	}
	return b.Controller.Cancel(caller.Name(ctx))
}

// RebootPlan implements api.Rebooter.
func (b *Reboots) RebootPlan(ctx context.Context) (api.RebootPlan, error) {
	if err := b.enabled(); err != nil {
		return api.RebootPlan{}, err
	}
	cfg := b.Settings.Config()
	drain, err := b.Drainer.DrainPlan(ctx, maintenance.DrainRequest{All: true})
	report := b.Controller.Report()
	report.Held = b.Controller.Held()
	p := api.RebootPlan{
		Report: report, Unprotected: b.Unprotected(), Node: drain.Node, Group: cfg.Reboot.Group, Drain: drain,
		RestartAfterBoot: cfg.Shutdown.RestartAfterBoot, Command: cfg.Reboot.Command, Window: b.Settings.Policies().Reboot.Window(time.Now(), report.Longest.Duration),
		ReadyFor: metav1.Duration{Duration: time.Duration(cfg.Reboot.ReadyFor)},
	}
	switch {
	case cfg.Reboot.Lock.FleetLock != "":
		p.Slots = cfg.Reboot.Lock.FleetLock
	case cfg.ControlPlane.Type != "embedded":
		p.Slots = fmt.Sprintf("hostler server, through %s", cfg.ControlPlane.Type)
	}
	return p, err
}

// brokenChecks returns the broken files and checks in the format of doctor.
func brokenChecks(r reboot.Report) (broken []doctor.Fix) {
	for _, f := range r.Broken() {
		broken = append(broken, doctor.Fix{Message: f.Source + ": " + f.Message, Command: f.Hint})
	}
	return broken
}
