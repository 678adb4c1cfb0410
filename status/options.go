package status

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/internal/field"
)

// Options is what a person decides about the Node.
type Options struct {
	Name    string // as NodeName returned it
	Version string // hostler's own, such as "v0.1.0"

	MaxPods   int // capacity of pods
	MaxImages int // of status.images; -1 lists all

	Labels        map[string]string
	Annotations   map[string]string
	Taints        []corev1.Taint
	Unschedulable bool
	ProviderID    string
	// ExternalCloud tells that a cloud controller manager initializes the Node and
	// knows its addresses.
	ExternalCloud bool

	Addresses AddressOptions
	Reserved  Reserved
	Pressure  Policy
}

// Reserved is what pods do not get because the host itself needs it.
type Reserved struct {
	CPU              resource.Quantity
	Memory           resource.Quantity
	EphemeralStorage resource.Quantity
	// PIDs are taken off those available before the threshold is looked at.
	PIDs uint64
}

// Validate checks everything that can be checked without knowing the host; see
// CheckReserved for the rest. Each fault is a *field.Error.
func (o Options) Validate() error {
	var errs []error
	fault := func(path, format string, args ...any) {
		errs = append(errs, field.Errorf(path, format, args...))
	}
	if _, err := NodeName(o.Name, ""); err != nil {
		errs = append(errs, err)
	}
	if o.MaxPods < 0 {
		fault("node.maxPods", "%d is negative", o.MaxPods)
	}
	if o.MaxImages < -1 {
		fault("status.maxImages", "%d is neither a number of images nor -1 for all", o.MaxImages)
	}
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		for _, problem := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(o.Labels[key])) {
			fault("node.labels", "%s=%s: %s", key, o.Labels[key], problem)
		}
	}
	for _, key := range []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable} {
		if _, found := o.Labels[key]; found {
			fault("node.labels", "%s is set by hostler itself; leave it out (node.name decides the host name)", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.Annotations)) {
		for _, problem := range validation.IsQualifiedName(strings.ToLower(key)) {
			fault("node.annotations", "%s: %s", key, problem)
		}
	}
	for _, t := range o.Taints {
		for _, problem := range checkTaint(t) {
			fault("node.taints", "%s: %s", t.ToString(), problem)
		}
	}
	for _, q := range []struct {
		name     string
		quantity resource.Quantity
	}{{"cpu", o.Reserved.CPU}, {"memory", o.Reserved.Memory}, {"ephemeral-storage", o.Reserved.EphemeralStorage}} {
		if q.quantity.Sign() < 0 {
			fault("node.reserved."+q.name, "%s is negative", q.quantity.String())
		}
	}
	return errors.Join(append(errs, o.Addresses.Validate(), o.Pressure.Validate())...)
}

func checkTaint(t corev1.Taint) []string {
	problems := slices.Concat(validation.IsQualifiedName(t.Key), validation.IsValidLabelValue(t.Value))
	switch t.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
	default:
		problems = append(problems, fmt.Sprintf("effect %q is none of NoSchedule, PreferNoSchedule, NoExecute", t.Effect))
	}
	return problems
}

// NodeName returns the Node's name: the configured one, else the kernel's host
// name, trimmed and lower-cased. It must be a DNS subdomain (RFC 1123) of at
// most 63 characters, for it becomes the value of a label as well.
func NodeName(configured, hostName string) (string, error) {
	name, hint := configured, "choose lower-case letters, digits, '-' and '.'"
	fault := func(format string, args ...any) error { return field.Errorf("node.name", format, args...) }
	if configured == "" {
		name = strings.ToLower(strings.TrimSpace(hostName))
		hint = "rename the host (hostnamectl set-hostname NAME) or set node.name in the configuration"
		fault = func(format string, args ...any) error { return fmt.Errorf("host name: "+format, args...) }
		if name == "" || name == "(none)" {
			return "", fmt.Errorf("the kernel has no host name to name the Node by; %s", hint)
		}
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fault("%q cannot name a Node: %s; %s", name, problems[0], hint)
	}
	if problems := validation.IsValidLabelValue(name); len(problems) > 0 {
		return "", fault("%q cannot be the value of label %s: %s; %s", name, corev1.LabelHostname, problems[0], hint)
	}
	return name, nil
}
