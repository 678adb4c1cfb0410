package agent

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

// conditionsPatience is how long the loop of checks may go without a round.
const conditionsPatience = 6*conditions.LookInterval + time.Minute

// buildConditions reads which checks of conditions there are. What becomes of them is
// told to a reporter that is there by the time that one is run.
func (a *Agent) buildConditions() (err error) {
	a.conditions, err = conditions.New(conditions.Options{
		Policy:  a.cfg.ConditionsPolicy(),
		Changed: func() { a.reporter.Changed() },
		Appeared: func(p conditions.Program, message string) {
			if a.reporter.Left() == nil { // of a Node that is to be gone the fleet hears no more
				a.recorder.Record(controlplane.NodeReference(a.node), corev1.EventTypeWarning, p.Reason, string(p.Type)+": "+message)
			}
		},
		Observe: func(p conditions.Program, r conditions.Result) { a.metrics.Check(p.Type, r.Answer, r.Took) },
		Log:     a.log.With("component", "conditions"),
	})
	return err
}

// runConditions is the loop of the checks.
func (a *Agent) runConditions(ctx context.Context) error {
	return a.conditions.Run(ctx, func() { a.loops.Named("conditions").Beat(nil) })
}

// customConditions tells of the checks and their faults.
func (a *Agent) customConditions() api.CustomConditions {
	c := api.CustomConditions{Directory: a.conditions.Folder(), Checks: a.conditions.Checks(), Faults: a.conditions.Faults()}
	if c.Faults == nil {
		c.Faults = []conditions.Fault{}
	}
	beside := a.besideKubelet()
	for i, check := range c.Checks {
		c.Checks[i].LocalOnly = beside && !check.Temporary && !status.IsOwn(check.Type)
	}
	return c
}
