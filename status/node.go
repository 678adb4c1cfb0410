package status

import (
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	semver "k8s.io/apimachinery/pkg/util/version"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status/probe"
)

// Node returns the complete Node of this host, and the state for the next check. Options must be
// valid and name the Node. Only metadata.name, labels, annotations, spec and status are set; the
// client merges them with the stored Node.
func Node(facts Facts, options Options, memory Memory, now time.Time) (*corev1.Node, Memory) {
	// The condition NetworkUnavailable reports the error.
	addresses, _ := Addresses(facts.Network, options.Addresses, options.Name)
	if options.ExternalCloud && len(options.Addresses.Internal) == 0 {
		addresses = slices.DeleteFunc(addresses, func(a corev1.NodeAddress) bool { return a.Type == corev1.NodeInternalIP })
	}
	if facts.Network.Resolving && len(options.Addresses.Internal) == 0 {
		addresses = nil // keeps the stored addresses, because they must not change temporarily
	}
	capacity := Capacity(facts, options.MaxPods)
	conditions, memory := Conditions(facts, options, memory, now)
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{
			Name:        options.Name,
			Labels:      labels(facts.Machine, options),
			Annotations: annotations(facts, options),
		},
		Spec: corev1.NodeSpec{
			ProviderID:    options.ProviderID,
			Unschedulable: options.Unschedulable,
			Taints:        taints(options),
		},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: Allocatable(capacity, options.Reserved, options.Pressure),
			Conditions:  conditions,
			Addresses:   addresses,
			NodeInfo:    nodeInfo(facts, options.Version),
			Images:      images(facts.Images, options.MaxImages),
		},
	}
	return node, memory
}

// labels returns the configured labels, and the standard ones that schedulers need.
// Options.Validate rejects configured values for the latter.
func labels(machine probe.Machine, options Options) map[string]string {
	result := maps.Clone(options.Labels)
	if result == nil {
		result = map[string]string{}
	}
	result[corev1.LabelHostname] = options.Name
	result[corev1.LabelOSStable] = "linux"
	result[corev1.LabelArchStable] = machine.Architecture
	return result
}

// The annotation and the taint that kubelets and cloud controller managers exchange, as in
// k8s.io/cloud-provider/api.
const (
	taintUninitialized   = "node.cloudprovider.kubernetes.io/uninitialized"
	annotationProvidedIP = "alpha.kubernetes.io/provided-node-ip"
)

// annotations returns the configured annotations and one with the configured addresses, by which a
// cloud controller manager selects among its addresses.
func annotations(facts Facts, options Options) map[string]string {
	result := maps.Clone(options.Annotations)
	if !options.ExternalCloud || len(options.Addresses.Internal) == 0 {
		return result
	}
	var given []string
	internal, _ := internalAddresses(facts.Network, options.Addresses.Internal) // Node ignores this error, too
	for _, a := range internal {
		given = append(given, a.IP.String())
	}
	if len(given) > 0 {
		if result == nil {
			result = map[string]string{}
		}
		result[annotationProvidedIP] = strings.Join(given, ",")
	}
	return result
}

// taints returns the taints of a new Node. After initialization, a cloud controller manager removes
// its own.
func taints(options Options) []corev1.Taint {
	result := slices.Clone(options.Taints)
	if options.ExternalCloud {
		result = append(result, corev1.Taint{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	return result
}

func nodeInfo(facts Facts, version string) corev1.NodeSystemInfo {
	m := facts.Machine
	info := corev1.NodeSystemInfo{
		MachineID:               m.MachineID,
		SystemUUID:              m.SystemUUID,
		BootID:                  m.BootID,
		KernelVersion:           m.KernelVersion,
		OSImage:                 m.OSImage,
		ContainerRuntimeVersion: runtimeVersion(facts.Runtimes),
		KubeletVersion:          KubeletVersion(version),
		OperatingSystem:         "linux",
		Architecture:            m.Architecture,
	}
	if m.SwapBytes > 0 {
		capacity := int64(m.SwapBytes)
		info.Swap = &corev1.NodeSwapStatus{Capacity: &capacity}
	}
	return info
}

// runtimeVersion returns the version of one runtime, because the field takes only one: the first
// that has images, because it runs the Node's pods, else the first.
func runtimeVersion(runtimes []runtime.Health) string {
	if len(runtimes) == 0 {
		return ""
	}
	chosen := runtimes[max(0, slices.IndexFunc(runtimes, func(r runtime.Health) bool { return !r.Imageless }))]
	version := chosen.Version
	if version == "" {
		version = "Unknown" // as in kubelet
	}
	return chosen.Name + "://" + version
}

// versionMark distinguishes hostler's nodeInfo.kubeletVersion from that of a kubelet.
const versionMark = "+hostler"

// IsKubelets reports whether a kubelet has written the status of a Node, judging by its
// kubeletVersion.
func IsKubelets(stored corev1.NodeSystemInfo) bool {
	return stored.KubeletVersion != "" && !strings.Contains(stored.KubeletVersion, versionMark)
}

// KubeletVersion returns hostler's version as nodeInfo.kubeletVersion: "v0.1.0+hostler".
// Distributions with their own kubelet use the same format ("v1.34.1+k3s1"), and parsers of
// semantic versions accept it. An invalid version becomes build metadata of v0.0.0.
func KubeletVersion(version string) string {
	number, build, _ := strings.Cut(strings.TrimPrefix(version, "v"), "+")
	if _, err := semver.ParseSemantic(number); err != nil {
		number, build = "0.0.0", version
	}
	// Build metadata may contain only letters, digits, '-' and '.'.
	build = strings.Trim(strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' {
			return r
		}
		return -1
	}, build), ".-")
	result := "v" + number + versionMark
	if build != "" {
		result += "." + build
	}
	return result
}

// HostlerVersion returns hostler's version in a nodeInfo.kubeletVersion. found is false for a
// kubelet's version.
func HostlerVersion(reported string) (version string, found bool) {
	number, build, found := strings.Cut(strings.TrimPrefix(reported, "v"), versionMark)
	build = strings.TrimPrefix(build, ".")
	switch {
	case !found:
		return "", false
	case build == "":
		return number, true
	case number == "0.0.0": // an invalid version
		return build, true
	}
	return number + "+" + build, true
}

// Changed reports whether a status differs from the last written one in a way that is worth a
// write. Heartbeats are not, and neither are messages of pressure, contention and custom
// conditions, whose numbers change with every check. These are written with the next regular
// report.
func Changed(written, current *corev1.NodeStatus) bool {
	before, after := comparable(written), comparable(current)
	if !slices.EqualFunc(before.Images, after.Images, func(a, b corev1.ContainerImage) bool {
		return a.SizeBytes == b.SizeBytes && slices.Equal(a.Names, b.Names)
	}) {
		return true
	}
	before.Images, after.Images = nil, nil // compared separately, because reflection would take most of its time for them
	return !equality.Semantic.DeepEqual(before, after)
}

// comparable returns a status without what Changed ignores, conditions sorted by type.
func comparable(status *corev1.NodeStatus) *corev1.NodeStatus {
	s := *status
	s.Conditions = slices.Clone(s.Conditions)
	slices.SortFunc(s.Conditions, func(a, b corev1.NodeCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	for i := range s.Conditions {
		c := &s.Conditions[i]
		c.LastHeartbeatTime = metav1.Time{}
		// A control plane stores whole seconds.
		c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Truncate(time.Second))
		switch c.Type {
		case corev1.NodeReady, corev1.NodeNetworkUnavailable, ShutdownProtected:
		default:
			c.Message = ""
		}
	}
	return &s
}
