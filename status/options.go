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

// Options is the configuration of the Node.
type Options struct {
	Name        string // result of NodeName, or FallbackName
	NameProblem string // why the host name is not a valid Node name, or ""
	Version     string // hostler's own, such as "v0.1.0"

	MaxPods   int // capacity for pods
	MaxImages int // in status.images; -1 for all

	Labels        map[string]string
	Annotations   map[string]string
	Taints        []corev1.Taint
	Unschedulable bool
	ProviderID    string
	// ExternalCloud means that a cloud controller manager initializes the Node and knows its
	// addresses.
	ExternalCloud bool

	Addresses AddressOptions
	Reserved  Reserved
	Pressure  Policy
}

// Reserved are resources that the host needs for itself, and that pods do not get.
type Reserved struct {
	CPU              resource.Quantity
	Memory           resource.Quantity
	EphemeralStorage resource.Quantity
	// PIDs are subtracted from the available PIDs before they are compared with the threshold.
	PIDs uint64
}

// Validate checks everything that does not depend on the host; see CheckReserved for the rest. Each
// error is a *field.Error.
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
		fault("status.maxImages", "%d is invalid; write a number of images, or -1 for all", o.MaxImages)
	}
	for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
		for _, problem := range slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(o.Labels[key])) {
			fault("node.labels", "%s=%s: %s", key, o.Labels[key], problem)
		}
	}
	for _, key := range []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable} {
		if _, found := o.Labels[key]; found {
			fault("node.labels", "%s is set by hostler; remove it (node.name sets the host name)", key)
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
		problems = append(problems, fmt.Sprintf("effect %q is not one of NoSchedule, PreferNoSchedule, NoExecute", t.Effect))
	}
	return problems
}

// FallbackName is the Node's name on a host without a usable name.
const FallbackName = "localhost"

// HostNameError says why the host name is not a valid Node name.
type HostNameError struct{ Problem string }

func (e *HostNameError) Error() string {
	return e.Problem + "; name the host (hostnamectl set-hostname NAME) or set node.name in the configuration"
}

// NodeName returns the Node's name: the configured one, else the kernel's host name, trimmed and in
// lowercase. It must be a DNS subdomain (RFC 1123) of at most 63 characters, because it is also the
// value of a label. If the host name is invalid, or is a default that all hosts share, the error is
// a *HostNameError.
func NodeName(configured, hostName string) (string, error) {
	if configured != "" {
		if problem := nameProblem(configured); problem != "" {
			return "", field.Errorf("node.name", "%s; choose lower-case letters, digits, '-' and '.'", problem)
		}
		return configured, nil
	}
	name := strings.ToLower(strings.TrimSpace(hostName))
	switch {
	case name == "":
		return "", &HostNameError{Problem: "the host has no host name"}
	case isLocalhost(name):
		return "", &HostNameError{Problem: fmt.Sprintf("the host name is %q, the default of a host without a name", name)}
	}
	if problem := nameProblem(name); problem != "" {
		return "", &HostNameError{Problem: "host name: " + problem}
	}
	return name, nil
}

// isLocalhost reports whether a name means the local host on every host. It agrees with
// is_localhost in systemd's hostname-util.c.
func isLocalhost(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, "."), ".localdomain")
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// nameProblem returns why a name is not a valid Node name, or "".
func nameProblem(name string) string {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Sprintf("%q cannot name a Node: %s", name, problems[0])
	}
	if problems := validation.IsValidLabelValue(name); len(problems) > 0 {
		return fmt.Sprintf("%q cannot be the value of label %s: %s", name, corev1.LabelHostname, problems[0])
	}
	return ""
}
