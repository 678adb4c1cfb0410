package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/internal/calendar"
	"hostler.io/hostler/internal/field"
	"hostler.io/hostler/shutdown/plan"
	"hostler.io/hostler/status"
	"hostler.io/hostler/status/conditions"
)

// The functions below convert the configuration to the options of each package. Each package
// validates its own values, and Load returns its errors.

// NodeOptions returns the options of the Node, for this host name and this version of hostler.
func (c Config) NodeOptions(hostName, version string) (status.Options, error) {
	problem := ""
	name, err := status.NodeName(c.Node.Name, hostName)
	if invalid, ok := errors.AsType[*status.HostNameError](err); ok { // hostler works without a host name, except for the Node
		name, problem, err = status.FallbackName, invalid.Problem, nil
	}
	if err != nil {
		return status.Options{}, err
	}
	pressure, err := pressurePolicy(c.Pressure)
	if err != nil {
		return status.Options{}, err
	}
	pids := c.Node.Reserved.PID.Value()
	o := status.Options{
		Name:          name,
		NameProblem:   problem,
		Version:       version,
		MaxPods:       c.Node.MaxPods,
		MaxImages:     c.Status.MaxImages,
		Labels:        c.Node.Labels,
		Annotations:   c.Node.Annotations,
		Unschedulable: c.Node.Unschedulable,
		ProviderID:    c.Node.ProviderID,
		ExternalCloud: c.Node.CloudProvider == "external",
		Addresses:     c.Node.Address.options(),
		Reserved: status.Reserved{
			CPU:              c.Node.Reserved.CPU.Value(),
			Memory:           c.Node.Reserved.Memory.Value(),
			EphemeralStorage: c.Node.Reserved.EphemeralStorage.Value(),
			PIDs:             uint64(pids.Value()),
		},
		Pressure: pressure,
	}
	if c.Reboot.Enabled && c.Reboot.Group != controlplane.DefaultRebootGroup {
		o.Labels = maps.Clone(o.Labels)
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[controlplane.LabelRebootGroup] = c.Reboot.Group
	}
	for _, t := range c.Node.Taints {
		o.Taints = append(o.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return o, o.Validate()
}

func (a Address) options() status.AddressOptions {
	return status.AddressOptions{Internal: a.Internal, External: a.External}
}

func pressurePolicy(c Pressure) (status.Policy, error) {
	p := status.Policy{TransitionPeriod: time.Duration(c.TransitionPeriod)}
	for _, t := range []struct {
		key  string
		text Threshold
		into *status.Threshold
	}{
		{"memoryAvailable", c.MemoryAvailable, &p.MemoryAvailable},
		{"nodefsAvailable", c.NodefsAvailable, &p.NodefsAvailable},
		{"nodefsInodesFree", c.NodefsInodesFree, &p.NodefsInodesFree},
		{"imagefsAvailable", c.ImagefsAvailable, &p.ImagefsAvailable},
		{"imagefsInodesFree", c.ImagefsInodesFree, &p.ImagefsInodesFree},
		{"pidAvailable", c.PIDAvailable, &p.PIDAvailable},
	} {
		threshold, err := status.ParseThreshold(string(t.text))
		if err != nil {
			return p, field.Errorf("pressure."+t.key, "%w", err)
		}
		*t.into = threshold
	}
	for _, l := range []struct {
		resource string
		stall    Stall
	}{{"cpu", c.PSI.CPU}, {"memory", c.PSI.Memory}, {"io", c.PSI.IO}} {
		if l.stall == (Stall{}) {
			continue
		}
		limit := status.StallLimit{Resource: l.resource, Kind: l.stall.Kind, Window: time.Duration(l.stall.Window)}
		if l.stall.Threshold != "" {
			threshold, err := status.ParseThreshold(l.stall.Threshold)
			if err != nil {
				return p, field.Errorf("pressure.psi."+l.resource+".threshold", "%w", err)
			}
			limit.Threshold = threshold
		}
		p.PSI = append(p.PSI, limit)
	}
	return p, nil // Options.Validate checks the rest
}

// GCPolicy returns the policy of the collectors.
func (c Config) GCPolicy() (gc.Policy, error) {
	keep, err := gc.ParsePatterns(c.ImageGC.Keep)
	if err != nil {
		return gc.Policy{}, field.Errorf("imageGC.keep", "%w", err)
	}
	p := gc.Policy{
		Images: gc.ImagePolicy{
			HighPercent:       c.ImageGC.HighThresholdPercent,
			LowPercent:        c.ImageGC.LowThresholdPercent,
			InodesHighPercent: c.ImageGC.InodesHighThresholdPercent,
			InodesLowPercent:  c.ImageGC.InodesLowThresholdPercent,
			MinimumAge:        time.Duration(c.ImageGC.MinimumAge),
			MaximumAge:        time.Duration(c.ImageGC.MaximumAge),
			Keep:              keep,
			IncludeLocal:      c.ImageGC.IncludeLocal,
		},
		Containers: gc.ContainerPolicy{
			MinimumAge:         time.Duration(c.ContainerGC.MinimumAge),
			MaximumAge:         time.Duration(c.ContainerGC.MaximumAge),
			AbandonedAge:       gc.DefaultAbandonedAge,
			MaxPerPodContainer: c.ContainerGC.MaxPerPodContainer,
			MaxContainers:      c.ContainerGC.MaxContainers,
		},
	}
	return p, p.Validate()
}

// ConditionsPolicy returns the policy of the custom checks.
func (c Config) ConditionsPolicy() conditions.Policy {
	return conditions.Policy{
		Folder:   c.Conditions.Directory,
		Interval: time.Duration(c.Conditions.Interval),
		Timeout:  time.Duration(c.Conditions.Timeout),
		Optional: c.Conditions.Directory == conditions.DefaultFolder,
	}
}

// Policy returns the policy of reboots.
func (r Reboot) Policy() (reboot.Policy, error) {
	p := reboot.Policy{ReadyFor: time.Duration(r.ReadyFor)}
	for i, text := range r.Window {
		w, err := calendar.Parse(text, time.Local)
		if err != nil {
			return p, field.Errorf(fmt.Sprintf("reboot.window[%d]", i), "%w", err)
		}
		p.Windows = append(p.Windows, w)
	}
	return p, nil
}

// ChecksPolicy returns the policy of the checks that may request a reboot.
func (r Reboot) ChecksPolicy() conditions.Policy {
	return conditions.Policy{Folder: r.Checks, Optional: r.Checks == defaultRebootChecks, Interval: rebootCheckInterval, Timeout: rebootCheckTimeout}
}

// defaultRebootChecks is the default folder of these checks.
const defaultRebootChecks = "/etc/hostler/reboot.d"

// Defaults for the checks in reboot.checks. The timeout is long because package managers are slow.
const (
	rebootCheckInterval = 5 * time.Minute
	rebootCheckTimeout  = time.Minute
)

// Phases returns the phases of byPriority if it is set, otherwise those of the two periods. It
// returns none if shutdown is disabled.
func (s Shutdown) Phases() ([]plan.PhaseSpec, error) {
	if s.Enabled == Off {
		return nil, nil
	}
	return s.periods(func(string) bool { return len(s.ByPriority) == 0 }).Phases()
}

// periods returns the periods that are configured explicitly.
func (s Shutdown) periods(given func(field string) bool) plan.Periods {
	var p plan.Periods
	if given("shutdown.gracePeriod") {
		total := time.Duration(s.GracePeriod)
		p.GracePeriod = &total
	}
	if given("shutdown.gracePeriodCriticalPods") {
		critical := time.Duration(s.GracePeriodCriticalPods)
		p.GracePeriodCriticalPods = &critical
	}
	for _, g := range s.ByPriority {
		p.ByPriority = append(p.ByPriority, plan.PriorityGroup{Priority: g.Priority, Grace: time.Duration(g.GracePeriod)})
	}
	return p
}

// settled clears the periods that have no effect. If byPriority is set, that is both. If
// gracePeriod is 0, it is a default gracePeriodCriticalPods.
func (s Shutdown) settled(given func(field string) bool) Shutdown {
	switch {
	case len(s.ByPriority) > 0:
		s.GracePeriod, s.GracePeriodCriticalPods = 0, 0
	case s.GracePeriod == 0 && !given("shutdown.gracePeriodCriticalPods"):
		s.GracePeriodCriticalPods = 0
	}
	return s
}

// MarshalYAML leaves out periods that have no effect. Otherwise Load would reject the output.
func (s Shutdown) MarshalYAML() (any, error) {
	type plain Shutdown
	var n yaml.Node
	if err := n.Encode(plain(s)); err != nil || len(s.ByPriority) == 0 {
		return &n, err
	}
	for i := 0; i < len(n.Content); {
		if strings.HasPrefix(n.Content[i].Value, "gracePeriod") {
			n.Content = slices.Delete(n.Content, i, i+2)
			continue
		}
		i += 2
	}
	return &n, nil
}

// Rules returns the rules for critical pods.
func (s Shutdown) Rules() (plan.Rules, error) {
	rules := make([]plan.Rule, 0, len(s.Critical))
	for _, r := range s.Critical {
		rules = append(rules, plan.Rule{Namespace: r.Namespace, Name: r.Name, Labels: r.Labels, Annotations: r.Annotations})
	}
	return plan.NewRules(rules)
}
