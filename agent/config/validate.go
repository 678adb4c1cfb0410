package config

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/internal/configfile"
	"hostler.io/hostler/internal/listen"
	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/runtime/runc/root"
)

// checker checks a whole configuration.
type checker struct{ *configfile.Checker }

func (k *checker) check(c Config) {
	k.node(c.Node)
	k.controlPlane(c.ControlPlane)
	k.registration(c.Node, c.ControlPlane.Type)
	k.Require(!c.Status.Pods || c.ControlPlane.Type == "etcd", "status.pods", "does not apply to control plane %s; set controlPlane.type: etcd", c.ControlPlane.Type)
	k.runtimes(c.Runtimes)
	k.loops(c)
	k.reactions(c)
	k.shutdown(c.Shutdown)
	k.reboot(c)
	k.imageGC(c.ImageGC)
	k.containerGC(c.ContainerGC)
	k.places(c)
	k.packages(c)
}

func (k *checker) node(n Node) {
	if n.Name != "" {
		problems := validation.IsDNS1123Subdomain(n.Name)
		k.Require(len(problems) == 0, "node.name", "%q is not a DNS subdomain: %s", n.Name, strings.Join(problems, "; "))
	}
	for key, value := range n.Labels {
		problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
		k.Require(len(problems) == 0, "node.labels."+key, "not a label: %s", strings.Join(problems, "; "))
	}
	for key := range n.Annotations {
		problems := validation.IsQualifiedName(strings.ToLower(key))
		k.Require(len(problems) == 0, "node.annotations."+key, "not an annotation: %s", strings.Join(problems, "; "))
	}
	effects := []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)}
	for i, t := range n.Taints {
		field := fmt.Sprintf("node.taints[%d]", i)
		problems := append(validation.IsQualifiedName(t.Key), validation.IsValidLabelValue(t.Value)...)
		k.Require(len(problems) == 0, field, "not a taint: %s", strings.Join(problems, "; "))
		k.Require(slices.Contains(effects, t.Effect), field+".effect", "%q is none of %s", t.Effect, strings.Join(effects, ", "))
	}
	for _, whole := range []struct {
		field string
		value Quantity
	}{{"memory", n.Reserved.Memory}, {"ephemeral-storage", n.Reserved.EphemeralStorage}, {"pid", n.Reserved.PID}} {
		problem := whole.value.NotWhole()
		k.Require(problem == "", "node.reserved."+whole.field, "%s", problem)
	}
	k.Require(n.MaxPods > 0, "node.maxPods", "%d is not above 0", n.MaxPods)
	k.Accept(n.Address.options().Validate(), "node.address")
}

// registration checks the keys that depend on who else writes the Node.
func (k *checker) registration(n Node, controlPlane string) {
	external := n.CloudProvider == "external"
	k.Require(external || n.CloudProvider == "none", "node.cloudProvider", "%q is neither none nor external", n.CloudProvider)
	k.Require(!strings.ContainsFunc(n.ProviderID, unicode.IsSpace), "node.providerID", "%q holds a blank; write it as the cloud does, such as aws:///zone/instance", n.ProviderID)
	if controlPlane == "embedded" {
		k.Require(n.Register, "node.register", "false waits for ever: nobody but hostler can create a Node on control plane embedded")
		k.Require(!external, "node.cloudProvider", "external waits for ever: control plane embedded has no cloud controller manager")
	}
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		k.Require(!labelRefused(controlPlane, key), "node.labels."+key, "%s", refusedLabel)
	}
}

// reactions checks the keys of automatic drains.
func (k *checker) reactions(c Config) {
	for field, value := range map[string]string{"node.onTaint": c.Node.OnTaint, "lease.onLost": c.Lease.OnLost} {
		k.Require(value == ReactNone || value == ReactDrain, field, "%q is neither none nor drain", value)
		k.Require(value != ReactDrain || c.ControlPlane.Type != "embedded", field, "drain waits for ever: nobody but this host writes to control plane embedded")
	}
	k.Require(c.Lease.OnLost != ReactDrain || c.Lease.Enabled != Off, "lease.onLost", "drain needs the Lease: %s", k.Other("lease.enabled", c.Lease.Enabled))
}

// controlPlane checks that the keys fit the chosen client.
func (k *checker) controlPlane(c ControlPlane) {
	controlPlanes := []string{"embedded", "kubernetes", "etcd", "plugin"}
	k.Require(slices.Contains(controlPlanes, c.Type), "controlPlane.type", "%q is not a control plane that this version has; use one of %s", c.Type, strings.Join(controlPlanes, ", "))
	const field = "controlPlane.kubernetes"
	kubernetes := c.Type == "kubernetes"
	for name, path := range map[string]string{"kubeconfig": c.Kubernetes.Kubeconfig, "bootstrapKubeconfig": c.Kubernetes.BootstrapKubeconfig} {
		k.Require(path == "" || filepath.IsAbs(path), field+"."+name, "%q is not an absolute path", path)
		k.Require(path == "" || kubernetes, field+"."+name, "does not apply to control plane %s; set controlPlane.type: kubernetes", c.Type)
	}
	if kubernetes {
		k.Require(c.Kubernetes.Kubeconfig != "" || c.Kubernetes.BootstrapKubeconfig != "", "controlPlane.type", "kubernetes needs to know the cluster: name a file as %s.kubeconfig, or as %[1]s.bootstrapKubeconfig", field)
	}
	k.Require(slices.Contains([]string{UserExec, UserRoot}, c.Kubernetes.ExecPluginUser), field+".execPluginUser", "%q is neither hostler-exec nor root", c.Kubernetes.ExecPluginUser)
	k.Require(filepath.IsAbs(c.Kubernetes.CertificateDirectory), field+".certificateDirectory", "%q is not an absolute path", c.Kubernetes.CertificateDirectory)
	k.etcd(c)
	k.plugin(c)
}

// plugin checks the address of a plug-in. Other control planes must not have one.
func (k *checker) plugin(c ControlPlane) {
	const (
		field  = "controlPlane.plugin.socket"
		length = 107 // the longest path that a unix socket can have (unix(7))
	)
	socket, chosen := c.Plugin.Socket, c.Type == "plugin"
	k.Require(socket == "" || chosen, field, "does not apply to control plane %s; set controlPlane.type: plugin", c.Type)
	k.Require(socket == "" || filepath.IsAbs(socket) && len(socket) <= length, field, "%q is not an absolute path of at most %d bytes", socket, length)
	k.Require(socket != "" || !chosen, "controlPlane.type", "plugin needs to know which: set %s to the path of the socket that it serves", field)
}

// etcd checks the connection to etcd. Other control planes must not have one.
func (k *checker) etcd(c ControlPlane) {
	const field = "controlPlane.etcd"
	chosen := c.Type == "etcd"
	for _, name := range c.Etcd.Set() {
		k.Require(chosen, field+"."+name, "does not apply to control plane %s; set controlPlane.type: etcd", c.Type)
	}
	k.Require(len(c.Etcd.Endpoints) > 0 || !chosen, "controlPlane.type", "etcd needs to know the cluster: name its members in %s.endpoints", field)
	c.Etcd.Check(k.Checker, field)
}

// refusedLabel is the message for a label that labelRefused reports.
const refusedLabel = "a node may not give itself this label; use a domain of your own, or have an administrator set it. " +
	"Of kubernetes.io and k8s.io, a node may set only host and topology labels, and labels of node.kubernetes.io and kubelet.kubernetes.io"

// labelRefused reports whether the control plane rejects this label if the Node sets it itself, as
// Kubernetes' admission plug-in NodeRestriction does.
func labelRefused(controlPlane, key string) bool {
	if controlPlane != "kubernetes" {
		return false
	}
	domain, _, qualified := strings.Cut(key, "/")
	within := func(parents ...string) bool {
		return slices.ContainsFunc(parents, func(p string) bool { return domain == p || strings.HasSuffix(domain, "."+p) })
	}
	switch {
	case !qualified || !within("kubernetes.io", "k8s.io"):
		return false
	case within(corev1.LabelNamespaceNodeRestriction):
		return true
	}
	return !within("kubelet.kubernetes.io", "node.kubernetes.io") && !slices.Contains([]string{
		corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion,
		corev1.LabelFailureDomainBetaZone, corev1.LabelFailureDomainBetaRegion,
		corev1.LabelInstanceType, "beta.kubernetes.io/os", "beta.kubernetes.io/arch",
	}, key)
}

// runtimeTypes are the runtime types that have an adapter.
func runtimeTypes() []string { return []string{"cri", "docker", "podman", typeRunc} }

// typeRunc is the type that has a folder instead of a socket.
const typeRunc = "runc"

func (k *checker) runtimes(r Runtimes) {
	seen := map[string]bool{}
	for i, rt := range r.List {
		field := fmt.Sprintf("runtimes[%d]", i)
		k.Require(slices.Contains(runtimeTypes(), rt.Type), field+".type", "%q is not a runtime type that this version has; use %s", rt.Type, strings.Join(runtimeTypes(), " or "))
		path, isUnix := strings.CutPrefix(rt.Endpoint, "unix://")
		if rt.Type == typeRunc {
			_, err := root.Parse(rt.Endpoint)
			k.Accept(err, field+".endpoint")
		} else {
			k.Require(filepath.IsAbs(path) && (isUnix || !strings.Contains(path, "://")) && !strings.HasSuffix(path, "/") && len(path) < 108,
				field+".endpoint", "%q is not the path of a unix socket of at most 107 bytes, such as /run/containerd/containerd.sock", rt.Endpoint)
		}
		path = filepath.Clean(path)
		k.Require(!seen[path], field+".endpoint", "%s is listed twice", path)
		seen[path] = true
	}
}

func (k *checker) loops(c Config) {
	duration := time.Duration(c.Lease.Duration)
	k.Require(duration >= time.Second && duration%time.Second == 0 && duration <= controlplane.LongestLease,
		"lease.duration", "%s is not a number of whole seconds from 1s to %s: a longer Lease would not show in time that the host is dead", c.Lease.Duration, Duration(controlplane.LongestLease))
	k.AtLeast(c.Lease.RenewInterval, 100*time.Millisecond, "lease.renewInterval")
	k.Require(2*time.Duration(c.Lease.RenewInterval) < duration, "lease.renewInterval",
		"%s is not below half of %s: one lost renewal would end the lease",
		k.Own("lease.renewInterval", c.Lease.RenewInterval), k.Other("lease.duration", c.Lease.Duration))

	k.AtLeast(c.Status.UpdateInterval, time.Second, "status.updateInterval")
	k.Require(c.Status.ReportInterval >= c.Status.UpdateInterval, "status.reportInterval", "%s is shorter than %s",
		k.Own("status.reportInterval", c.Status.ReportInterval), k.Other("status.updateInterval", c.Status.UpdateInterval))
	k.Require(c.Status.MaxImages >= -1, "status.maxImages", "%d is neither -1 nor 0 nor above", c.Status.MaxImages)
	k.AtLeast(c.ImageGC.Interval, time.Second, "imageGC.interval")
	k.AtLeast(c.ContainerGC.Interval, time.Second, "containerGC.interval")
}

func (k *checker) shutdown(s Shutdown) {
	for i := range s.ByPriority {
		field := fmt.Sprintf("shutdown.byPriority[%d]", i)
		k.Require(k.Given(field+".gracePeriod"), field, "has no gracePeriod; write {priority: 0, gracePeriod: 30s}, or 0s for no time at all")
	}
	k.Require(s.RestartAfterBoot == string(Auto) || s.RestartAfterBoot == RestartNever, "shutdown.restartAfterBoot", "%q is neither auto nor never", s.RestartAfterBoot)
	k.Require(len(s.StopFirst) == 0 || s.Enabled == On, "shutdown.stopFirst", "needs shutdown.enabled: true: with %s, hostler may leave the shutdown to a kubelet", s.Enabled)
	for i, name := range s.StopFirst {
		field := fmt.Sprintf("shutdown.stopFirst[%d]", i)
		k.Require(trust.IsServiceName(name), field, "%q is not the name of a service, such as k3s.service", name)
		k.Require(name != "hostler.service", field, "hostler.service is hostler itself, who stops the pods")
		k.Require(!slices.Contains(s.StopFirst[:i], name), field, "%s is named twice", name)
	}
	_, err := s.periods(k.Given).Phases()
	k.Accept(err, "shutdown")
	_, err = s.Rules()
	k.Accept(err, "shutdown")
}

func (k *checker) reboot(c Config) {
	r := c.Reboot
	for i, path := range r.Sentinels {
		k.Require(filepath.IsAbs(path), fmt.Sprintf("reboot.sentinels[%d]", i), "%q is not an absolute path", path)
	}
	k.Require(filepath.IsAbs(r.Checks), "reboot.checks", "%q is not an absolute path", r.Checks)
	_, err := r.Policy()
	k.Accept(err, "reboot.window")
	problems := validation.IsValidLabelValue(r.Group)
	k.Require(r.Group != "" && len(problems) == 0, "reboot.group", "%q is not the value of a label: %s", r.Group, strings.Join(problems, "; "))
	k.Require(r.ReadyFor >= 0, "reboot.readyFor", "%s is below 0", r.ReadyFor)
	k.Require(len(strings.Fields(r.Command)) > 0, "reboot.command", "is empty; the default is `systemctl reboot`")
	if lock := r.Lock.FleetLock; lock != "" {
		u, err := url.Parse(lock)
		k.Require(err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Host != "" && u.User == nil, "reboot.lock.fleetLock", "%q is not the URL of a server, such as https://reboots.example:9757", lock)
		// While no server runs, any user can listen on its port of this host.
		plain := err == nil && u.Scheme == "http" && (!listen.IsLoopbackHost(u.Hostname()) || r.Lock.PasswordFile != "")
		k.Require(!plain || r.Lock.Insecure, "reboot.lock.fleetLock", "%q is not encrypted, so others can answer and read a password: use https, or set reboot.lock.insecure: true", lock)
		k.Require(plain || !r.Lock.Insecure, "reboot.lock.insecure", "has no effect without an http:// address of another host, or one of this host and a password")
	}
	password := r.Lock.PasswordFile
	k.Require(password == "" || filepath.IsAbs(password), "reboot.lock.passwordFile", "%q is not an absolute path", password)
	k.Require(password == "" || r.Lock.FleetLock != "", "reboot.lock.passwordFile", "has no effect without reboot.lock.fleetLock")
	k.Require(r.Lock.FleetLock != "" || !r.Lock.Insecure, "reboot.lock.insecure", "has no effect without reboot.lock.fleetLock")
	k.Require(!r.Enabled || r.Lock.FleetLock != "" || c.ControlPlane.Type != "plugin", "reboot.lock.fleetLock", "is needed with control plane plugin, where hostler server cannot give slots")
}

func (k *checker) imageGC(g ImageGC) {
	pair := func(low, high int, lowField, highField string) {
		highFits, lowFits := high > 0 && high <= 100, low >= 0 && low < 100
		k.Require(highFits, highField, "%d is not a percentage from 1 to 100, of which 100 never starts a collection", high)
		k.Require(lowFits, lowField, "%d is not a percentage from 0 to 99", low)
		if !highFits || !lowFits || low < high {
			return
		}
		if !k.Given(lowField) { // the low value is a default, so report the high value
			k.Require(false, highField, "%s is not above %s", k.Own(highField, high), k.Other(lowField, low))
			return
		}
		k.Require(false, lowField, "%d is not below %s", low, k.Other(highField, high))
	}
	pair(g.LowThresholdPercent, g.HighThresholdPercent, "imageGC.lowThresholdPercent", "imageGC.highThresholdPercent")
	pair(g.InodesLowThresholdPercent, g.InodesHighThresholdPercent, "imageGC.inodesLowThresholdPercent", "imageGC.inodesHighThresholdPercent")
	k.ages(g.MaximumAge, g.MinimumAge, "imageGC")
	for i, text := range g.Keep {
		_, err := gc.ParsePattern(text)
		k.Accept(err, fmt.Sprintf("imageGC.keep[%d]", i))
	}
}

func (k *checker) ages(maximum, minimum Duration, section string) {
	k.Require(maximum == 0 || maximum > minimum, section+".maximumAge", "%s is not above %s", maximum, k.Other(section+".minimumAge", minimum))
}

func (k *checker) containerGC(g ContainerGC) {
	k.ages(g.MaximumAge, g.MinimumAge, "containerGC")
	k.Require(g.MaxPerPodContainer >= -1, "containerGC.maxPerPodContainer", "%d is neither -1 nor 0 nor above", g.MaxPerPodContainer)
	k.Require(g.MaxContainers >= -1, "containerGC.maxContainers", "%d is neither -1 nor 0 nor above", g.MaxContainers)
}

// packages lets the packages that use the values validate them together.
func (k *checker) packages(c Config) {
	if k.Sound("node") {
		_, err := c.NodeOptions("host", "0.0.0")
		k.Accept(err, "node")
	}
	if k.Sound("imageGC") && k.Sound("containerGC") {
		_, err := c.GCPolicy()
		k.Accept(err, "imageGC")
	}
	k.Accept(c.ConditionsPolicy().Validate(), "conditions")
}

func (k *checker) places(c Config) {
	k.Require(filepath.IsAbs(c.State.Directory), "state.directory", "%q is not an absolute path", c.State.Directory)
	k.api(c.API, c.Metrics)
	k.Require(slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level), "log.level", "%q is none of debug, info, warn, error", c.Log.Level)
	k.Require(slices.Contains([]string{"text", "json"}, c.Log.Format), "log.format", "%q is neither text nor json", c.Log.Format)
}
