package fromkubelet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/agent/config"
)

// rule says what hostler calls one thing that a kubelet is told.
type rule func(o *output, g given) error

// rules are all that mean the same to hostler, by the kubelet's key. What several keys
// come to together is said by output.whole.
func rules() map[string]rule {
	return map[string]rule{
		"containerRuntimeEndpoint":         runtimeEndpoint,
		"evictionHard":                     together,
		"evictionPressureTransitionPeriod": duration("pressure.transitionPeriod", defaulted),
		"evictionSoft":                     together,
		"imageGCHighThresholdPercent":      number("imageGC.highThresholdPercent"),
		"imageGCLowThresholdPercent":       number("imageGC.lowThresholdPercent"),
		"imageMaximumGCAge":                duration("imageGC.maximumAge", counts),
		"imageMinimumGCAge":                duration("imageGC.minimumAge", defaulted),
		"kubeReserved":                     together,
		"maxPods":                          number("node.maxPods"),
		"mergeDefaultEvictionSettings":     together,
		"nodeLeaseDurationSeconds":         lease,
		"nodeStatusMaxImages":              number("status.maxImages"),
		"nodeStatusReportFrequency":        together,
		"nodeStatusUpdateFrequency":        duration("status.updateInterval", defaulted),
		"providerID":                       word("node.providerID"),
		"registerNode":                     yesNo("node.register", false),
		"registerWithTaints":               taintList,
		"shutdownGracePeriod":              together,
		"shutdownGracePeriodByPodPriority": together,
		"shutdownGracePeriodCriticalPods":  together,
		"systemReserved":                   together,

		"--bootstrap-kubeconfig":                  kubeconfig("controlPlane.kubernetes.bootstrapKubeconfig"),
		"--cloud-provider":                        cloudProvider,
		"--hostname-override":                     word("node.name"),
		"--kubeconfig":                            kubeconfig("controlPlane.kubernetes.kubeconfig"),
		"--maximum-dead-containers":               number("containerGC.maxContainers"),
		"--maximum-dead-containers-per-container": number("containerGC.maxPerPodContainer"),
		"--minimum-container-ttl-duration":        duration("containerGC.minimumAge", counts),
		"--node-ip":                               nodeIP,
		"--node-labels":                           labels,
		"--pod-infra-container-image":             sandboxImage,
		"--register-schedulable":                  yesNo("node.unschedulable", true),
	}
}

// together is for what output.whole says.
func together(*output, given) error { return nil }

// zero is what a duration of none means to a kubelet.
type zero bool

const (
	defaulted zero = false // take the default
	counts    zero = true  // none
)

func duration(path string, none zero) rule {
	return func(o *output, g given) error {
		d, err := durationOf(g.value)
		if err != nil {
			return err
		}
		if d != 0 || none == counts {
			o.set(path, config.Duration(d), g.from)
		}
		return nil
	}
}

func durationOf(n *yaml.Node) (time.Duration, error) {
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no duration such as 2m0s", n.Value)
	}
	return d, nil
}

func number(path string) rule {
	return func(o *output, g given) error {
		n, err := strconv.ParseInt(g.value.Value, 10, 32)
		if g.value.Kind != yaml.ScalarNode || err != nil {
			return fmt.Errorf("%q is no whole number", g.value.Value)
		}
		// A kubelet takes its default for no pods at all.
		if path != "node.maxPods" || n != 0 {
			o.set(path, n, g.from)
		}
		return nil
	}
}

func word(path string) rule {
	return func(o *output, g given) error {
		if g.value.Kind != yaml.ScalarNode {
			return errors.New("is no text")
		}
		if g.value.Value != "" {
			o.set(path, g.value.Value, g.from)
		}
		return nil
	}
}

func yesNo(path string, reverse bool) rule {
	return func(o *output, g given) error {
		b, err := strconv.ParseBool(g.value.Value)
		if g.value.Kind != yaml.ScalarNode || err != nil {
			return fmt.Errorf("%q is neither true nor false", g.value.Value)
		}
		o.set(path, b != reverse, g.from)
		return nil
	}
}

func labels(o *output, g given) error {
	var all map[string]string
	if err := g.value.Decode(&all); err != nil {
		return errors.New(plain(err))
	}
	if len(all) > 0 {
		o.set("node.labels", all, g.from)
	}
	return nil
}

func taintList(o *output, g given) error {
	var all []config.Taint
	if err := g.value.Decode(&all); err != nil {
		return errors.New(plain(err))
	}
	if len(all) > 0 {
		o.set("node.taints", all, g.from)
	}
	return nil
}

func runtimeEndpoint(o *output, g given) error {
	if g.value.Kind != yaml.ScalarNode {
		return errors.New("is no text")
	}
	if g.value.Value != "" {
		o.set("runtimes", []config.Runtime{{Type: "cri", Endpoint: g.value.Value}}, g.from)
	}
	return nil
}

// lease has the renewals of a kubelet as well, which come four times in a Lease.
func lease(o *output, g given) error {
	n, err := strconv.ParseInt(g.value.Value, 10, 32)
	if g.value.Kind != yaml.ScalarNode || err != nil {
		return fmt.Errorf("%q is no whole number of seconds", g.value.Value)
	}
	if n != 0 {
		d := time.Duration(n) * time.Second
		o.set("lease.duration", config.Duration(d), g.from)
		o.set("lease.renewInterval", config.Duration(d/4), "a kubelet renews four times in that time")
	}
	return nil
}

func kubeconfig(path string) rule {
	return func(o *output, g given) error {
		if g.value.Value != "" {
			o.set("controlPlane.type", "kubernetes", g.from)
			o.set(path, g.value.Value, g.from)
		}
		return nil
	}
}

func cloudProvider(o *output, g given) error {
	switch g.value.Value {
	case "":
	case "external":
		o.set("node.cloudProvider", "external", g.from)
	default:
		o.nothing(g, "hostler knows external, and no provider that is built in")
	}
	return nil
}

func nodeIP(o *output, g given) error {
	var all []string
	for text := range strings.SplitSeq(g.value.Value, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		address, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("%q is no IP address", text)
		}
		if address.IsUnspecified() { // it names a family, whose address is found
			o.nothing(g, "hostler publishes an address of each family that it finds; name one as node.address.internal")
			return nil
		}
		all = append(all, text)
	}
	if len(all) > 0 {
		o.set("node.address.internal", all, g.from)
	}
	return nil
}

// sandboxImage is kept from collection, as a kubelet of old kept it.
func sandboxImage(o *output, g given) error {
	if g.value.Value != "" {
		o.set("imageGC.keep", []string{g.value.Value}, g.from)
	}
	return nil
}

// reasons say why there is nothing for what a kubelet is told; what is in none of them is
// not known here.
var reasons = []struct {
	reason string
	keys   []string
}{
	{"hostler runs no pods, and makes no containers", strings.Fields(`allowedUnsafeSysctls cgroupDriver cgroupRoot cgroupsPerQOS clusterDNS clusterDomain configMapAndSecretChangeDetectionStrategy
		containerLogMaxFiles containerLogMaxSize containerLogMaxWorkers containerLogMonitorInterval cpuCFSQuota cpuCFSQuotaPeriod cpuManagerPolicy cpuManagerPolicyOptions
		cpuManagerReconcilePeriod crashLoopBackOff enableControllerAttachDetach enableProfilingHandler enforceNodeAllocatable failSwapOn fileCheckFrequency hairpinMode httpCheckFrequency
		imageCredentialProviderConfig imagePullCredentialsVerificationPolicy imageServiceEndpoint iptablesDropBit iptablesMasqueradeBit kubeReservedCgroup kubeletCgroups localStorageCapacityIsolation
		makeIPTablesUtilChains maxParallelImagePulls memoryManagerPolicy memorySwap memoryThrottlingFactor oomScoreAdj podCIDR podLogsDir podPidsLimit podsPerCore preloadedImagesVerificationAllowlist
		protectKernelDefaults qosReserved registerNodeWithTaints registryBurst registryPullQPS reservedMemory reservedSystemCPUs resolvConf runtimeRequestTimeout seccompDefault
		serializeImagePulls showHiddenMetricsForVersion singleProcessOOMKill staticPodPath staticPodURL staticPodURLHeader streamingConnectionIdleTimeout syncFrequency systemCgroups
		systemReservedCgroup topologyManagerPolicy topologyManagerPolicyOptions topologyManagerScope userNamespaces volumePluginDir volumeStatsAggPeriod
		--cni-bin-dir --cni-conf-dir --image-credential-provider-bin-dir --image-credential-provider-config --network-plugin --runtime-cgroups --root-dir`)},
	{"hostler serves no API of a kubelet; its own is on a unix socket", strings.Fields(`address authentication authorization enableContentionProfiling enableDebugFlagsHandler enableDebuggingHandlers
		enableServer enableSystemLogHandler enableSystemLogQuery healthzBindAddress healthzPort port readOnlyPort tlsCertFile tlsCipherSuites tlsMinVersion tlsPrivateKeyFile serverTLSBootstrap
		--anonymous-auth --client-ca-file --tls-cert-file --tls-private-key-file`)},
	{"hostler evicts no pods: its conditions are raised as soon as a threshold is passed", strings.Fields(`evictionMaxPodGracePeriod evictionMinimumReclaim evictionSoftGracePeriod kernelMemcgNotification`)},
	{"hostler paces itself", strings.Fields(`eventBurst eventRecordQPS kubeAPIBurst kubeAPIQPS contentType`)},
	{"see log.level and log.format", strings.Fields(`logging --v --vmodule --logging-format`)},
	{"hostler renews its certificate by itself, in controlPlane.kubernetes.certificateDirectory", strings.Fields(`rotateCertificates --cert-dir --rotate-server-certificates`)},
	{"convert that file, which is the argument", []string{"--config"}},
	{"convert the files there as well, and put what differs into /etc/hostler/conf.d", []string{"--config-dir"}},
	{"a feature gate of a kubelet is none of hostler's", []string{"featureGates"}},
	{"hostler exports no traces", []string{"tracing"}},
}

// reason is why there is nothing for a key.
func reason(key string) string {
	for _, r := range reasons {
		if slices.Contains(r.keys, key) {
			return r.reason
		}
	}
	return "not known to this version of hostler"
}
