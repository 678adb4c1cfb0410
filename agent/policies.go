package agent

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
)

// policies is the configuration in the words of the rooms that it is for.
type policies struct {
	node   status.Options
	gc     gc.Policy
	phases []plan.PhaseSpec
	rules  plan.Rules
}

// newPolicies translates a configuration. Its errors are of values that only the
// rooms can judge.
func newPolicies(cfg config.Config, hostName, version string) (p policies, err error) {
	if p.node, err = nodeOptions(cfg, hostName, version); err != nil {
		return p, err
	}
	if p.gc, err = gcPolicy(cfg); err != nil {
		return p, err
	}
	if p.phases, err = phases(cfg.Shutdown); err != nil {
		return p, fmt.Errorf("shutdown: %w", err)
	}
	rules := make([]plan.Rule, 0, len(cfg.Shutdown.Critical))
	for _, r := range cfg.Shutdown.Critical {
		rules = append(rules, plan.Rule{Namespace: r.Namespace, Name: r.Name, Labels: r.Labels, Annotations: r.Annotations})
	}
	if p.rules, err = plan.NewRules(rules); err != nil {
		return p, fmt.Errorf("shutdown.critical: %w", err)
	}
	return p, nil
}

func nodeOptions(cfg config.Config, hostName, version string) (status.Options, error) {
	name, err := status.NodeName(cfg.Node.Name, hostName)
	if err != nil {
		return status.Options{}, err
	}
	pressure, err := pressurePolicy(cfg.Pressure)
	if err != nil {
		return status.Options{}, err
	}
	pids := cfg.Node.Reserved.PID.Value()
	o := status.Options{
		Name:          name,
		Version:       version,
		MaxPods:       cfg.Node.MaxPods,
		MaxImages:     cfg.Status.MaxImages,
		Labels:        cfg.Node.Labels,
		Annotations:   cfg.Node.Annotations,
		Unschedulable: cfg.Node.Unschedulable,
		Addresses:     status.AddressOptions{Internal: cfg.Node.Address.Internal, External: cfg.Node.Address.External},
		Reserved: status.Reserved{
			CPU:              cfg.Node.Reserved.CPU.Value(),
			Memory:           cfg.Node.Reserved.Memory.Value(),
			EphemeralStorage: cfg.Node.Reserved.EphemeralStorage.Value(),
			PIDs:             uint64(pids.Value()),
		},
		Pressure: pressure,
	}
	for _, t := range cfg.Node.Taints {
		o.Taints = append(o.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return o, o.Validate()
}

func pressurePolicy(cfg config.Pressure) (status.Policy, error) {
	p := status.Policy{TransitionPeriod: time.Duration(cfg.TransitionPeriod)}
	for _, t := range []struct {
		field string
		text  config.Threshold
		into  *status.Threshold
	}{
		{"memoryAvailable", cfg.MemoryAvailable, &p.MemoryAvailable},
		{"nodefsAvailable", cfg.NodefsAvailable, &p.NodefsAvailable},
		{"nodefsInodesFree", cfg.NodefsInodesFree, &p.NodefsInodesFree},
		{"imagefsAvailable", cfg.ImagefsAvailable, &p.ImagefsAvailable},
		{"imagefsInodesFree", cfg.ImagefsInodesFree, &p.ImagefsInodesFree},
		{"pidAvailable", cfg.PIDAvailable, &p.PIDAvailable},
	} {
		threshold, err := status.ParseThreshold(string(t.text))
		if err != nil {
			return p, fmt.Errorf("pressure.%s: %w", t.field, err)
		}
		*t.into = threshold
	}
	return p, p.Validate()
}

func gcPolicy(cfg config.Config) (gc.Policy, error) {
	keep, err := gc.ParsePatterns(cfg.ImageGC.Keep)
	if err != nil {
		return gc.Policy{}, fmt.Errorf("imageGC.keep: %w", err)
	}
	p := gc.Policy{
		Images: gc.ImagePolicy{
			HighPercent:       cfg.ImageGC.HighThresholdPercent,
			LowPercent:        cfg.ImageGC.LowThresholdPercent,
			InodesHighPercent: cfg.ImageGC.InodesHighThresholdPercent,
			InodesLowPercent:  cfg.ImageGC.InodesLowThresholdPercent,
			MinimumAge:        time.Duration(cfg.ImageGC.MinimumAge),
			MaximumAge:        time.Duration(cfg.ImageGC.MaximumAge),
			Keep:              keep,
			IncludeLocal:      cfg.ImageGC.IncludeLocal,
		},
		Containers: gc.ContainerPolicy{
			MinimumAge:         time.Duration(cfg.ContainerGC.MinimumAge),
			MaximumAge:         time.Duration(cfg.ContainerGC.MaximumAge),
			MaxPerPodContainer: cfg.ContainerGC.MaxPerPodContainer,
			MaxContainers:      cfg.ContainerGC.MaxContainers,
		},
	}
	return p, p.Validate()
}

// phases are those of byPriority where it is set, else the two periods; none
// where shutdown is switched off.
func phases(cfg config.Shutdown) ([]plan.PhaseSpec, error) {
	if cfg.Enabled == config.Off {
		return nil, nil
	}
	if len(cfg.ByPriority) > 0 {
		var p plan.Periods
		for _, group := range cfg.ByPriority {
			p.ByPriority = append(p.ByPriority, plan.PriorityGroup{Priority: group.Priority, Grace: time.Duration(group.GracePeriod)})
		}
		return p.Phases()
	}
	if cfg.GracePeriod == 0 {
		return nil, nil
	}
	total, critical := time.Duration(cfg.GracePeriod), time.Duration(cfg.GracePeriodCriticalPods)
	return plan.Periods{GracePeriod: &total, GracePeriodCriticalPods: &critical}.Phases()
}
