//go:build integration

package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/lab"
)

// knownSocket is a socket at which the agent looks for a containerd.
const knownSocket = "/run/containerd/containerd.sock"

// installContainerd makes a containerd detectable until the test ends.
func installContainerd(t testing.TB, c *lab.Containerd) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(knownSocket), 0o755))
	check(t, os.Symlink(c.Endpoint[len("unix://"):], knownSocket))
	t.Cleanup(func() { check(t, os.Remove(knownSocket)) })
}

// cleanDefaults removes the files of an agent without configuration.
func cleanDefaults(t testing.TB) {
	t.Helper()
	remove := func() { check(t, errors.Join(os.RemoveAll("/var/lib/hostler"), os.RemoveAll("/run/hostler"))) }
	remove()
	t.Cleanup(remove)
	if _, err := os.Stat("/etc/hostler"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the lab has a configuration: Stat(/etc/hostler) = %v", err)
	}
}

func TestWithNothingInstalledTheAgentGoesOnAndSaysWhatIsMissing(t *testing.T) {
	cleanDefaults(t)
	a := newBareAgent(t)
	a.start()

	s := a.await("the first lease and the first status of the host", func(s api.Status) bool {
		return s.Lease != nil && condition(s, corev1.NodeReady).Reason == status.ReasonNoRuntime && condition(s, status.ShutdownProtected).Reason == status.ReasonNoBus
	})
	first := s.Lease.Spec.RenewTime.Time
	mentions(t, "message of Ready", condition(s, corev1.NodeReady).Message, "no container runtime found")
	mentions(t, "message of ShutdownProtected", condition(s, status.ShutdownProtected).Message, "bus")
	mentions(t, "reason of Disarmed", s.Shutdown.Reason, "bus")
	if len(s.Runtimes) != 0 || s.Shutdown.State != shutdown.Disarmed {
		t.Errorf("status has runtimes %v and guard %v, want none and Disarmed", s.Runtimes, s.Shutdown.State)
	}
	mentions(t, "hostler status", a.screen(), "NOT READY", "no container runtime found", "Disarmed", "bus", "none found")

	// By the next renewal, each was tried several times.
	a.await("the lease is renewed", func(s api.Status) bool { return s.Lease.Spec.RenewTime.After(first) })
	for what, part := range map[string]string{"runtime": "no container runtime found", "bus": "system bus"} {
		if lines := a.logLines("level=WARN", part); len(lines) != 1 {
			t.Errorf("the log says %d times that the %s is missing, want once:\n%s", len(lines), what, a.logged())
		}
	}

	installContainerd(t, containerd)
	lab.LoginFor(t, lab.LoginOptions{})
	s = a.awaitReady(corev1.ConditionTrue)
	if len(s.Runtimes) != 1 || s.Runtimes[0].Name != "containerd" || !s.Runtimes[0].Ready {
		t.Errorf("Runtimes = %+v, want a containerd that is ready", s.Runtimes)
	}
	s = a.awaitGuard(shutdown.Armed)
	if got := condition(s, status.ShutdownProtected).Status; got != corev1.ConditionTrue {
		a.await("ShutdownProtected is True", func(s api.Status) bool {
			return condition(s, status.ShutdownProtected).Status == corev1.ConditionTrue
		})
	}
	mentions(t, "hostler status", a.screen(), "is Ready", "Armed, 30s for pods, the last 10s for critical pods")
	a.stop()
}

func TestABusWithoutLogindIsReportedAndLogindIsTakenUpWhenItComes(t *testing.T) {
	login := logind(t)
	check(t, login.Logind.Stop(t.Context()))
	a := startAgent(t, quick)
	s := a.await("logind is missing", func(s api.Status) bool { return strings.Contains(s.Shutdown.Reason, "logind") })
	if s.Shutdown.State != shutdown.Disarmed {
		t.Errorf("guard is %v, want Disarmed", s.Shutdown.State)
	}
	a.awaitLease(a.awaitLease(s))
	if lines := a.logLines("level=WARN", "logind"); len(lines) != 1 {
		t.Errorf("the log says %d times that logind is missing, want once: %q", len(lines), lines)
	}
	check(t, login.StartLogind(t.Context()))
	a.awaitGuard(shutdown.Armed)
	wantLocks(t, login, "once logind has come", 1)
	a.stop()
}

func TestTheNodeReportsTheHost(t *testing.T) {
	t.Parallel()
	a := startAgent(t, "node: {labels: {example.com/rack: r7}, reserved: {memory: 64Mi, cpu: 100m}}\n")
	s := a.awaitReady(corev1.ConditionTrue)
	n := s.Node
	name := lab.In(t).Hostname
	if n.Name != name || n.Labels["kubernetes.io/hostname"] != name || n.Labels["example.com/rack"] != "r7" {
		t.Errorf("node is %s with labels %v, want it to be %s", n.Name, n.Labels, name)
	}
	want := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: lab.Address}, {Type: corev1.NodeHostName, Address: name}}
	if !slices.Equal(n.Status.Addresses, want) {
		t.Errorf("addresses = %v, want %v", n.Status.Addresses, want)
	}
	info := n.Status.NodeInfo
	var kernel unix.Utsname
	check(t, unix.Uname(&kernel))
	bootID, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	check(t, err)
	machineID, err := os.ReadFile("/etc/machine-id")
	check(t, err)
	for what, pair := range map[string][2]string{
		"kernel version":    {info.KernelVersion, unix.ByteSliceToString(kernel.Release[:])},
		"boot ID":           {info.BootID, strings.TrimSpace(string(bootID))},
		"machine ID":        {info.MachineID, strings.TrimSpace(string(machineID))},
		"operating system":  {info.OperatingSystem, "linux"},
		"architecture":      {info.Architecture, goruntime.GOARCH},
		"container runtime": {info.ContainerRuntimeVersion, "containerd://" + s.Runtimes[0].Version},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %q, want %q", what, pair[0], pair[1])
		}
	}
	mentions(t, "kubeletVersion", info.KubeletVersion, "hostler", version)
	for _, resource := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		capacity, allocatable := n.Status.Capacity[resource], n.Status.Allocatable[resource]
		if capacity.Sign() <= 0 || allocatable.Sign() <= 0 || allocatable.Cmp(capacity) >= 0 {
			t.Errorf("%s: capacity %v, allocatable %v, want both, and less allocatable", resource, &capacity, &allocatable)
		}
	}
	if pods := n.Status.Capacity[corev1.ResourcePods]; pods.Value() != 110 {
		t.Errorf("capacity of pods = %v, want 110", &pods)
	}
	for _, kind := range []corev1.NodeConditionType{
		corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable, status.ShutdownProtected,
	} {
		c := condition(s, kind)
		if c.Status == "" || c.Reason == "" || c.Message == "" || c.LastHeartbeatTime.IsZero() || c.LastTransitionTime.IsZero() {
			t.Errorf("condition %s = %+v, want it complete", kind, c)
		}
	}
	if s.Topology.CPUs != goruntime.NumCPU() {
		t.Errorf("topology = %+v, want %d CPUs", s.Topology, goruntime.NumCPU())
	}
	a.stop()
}

// On the embedded control plane, a machine with another mainboard or another ID is still the same
// host.
func TestAHostWithAnotherMachineIDReplacesItsNode(t *testing.T) {
	const other = "0123456789abcdef0123456789abcdef"
	a := startAgent(t, quick)
	first := a.awaitNode()
	a.stop()
	reinstalled(t, other)
	a.start()
	s := a.await("its node is another one, and its lease is renewed", func(s api.Status) bool {
		return s.Node != nil && nodeOf(s).UID != "" && nodeOf(s).UID != first.Node.UID && s.Lease != nil && s.Lease.UID != first.Lease.UID
	})
	if got := nodeOf(s).Annotations[controlplane.AnnotationMachineID]; got != other {
		t.Errorf("the Node is machine %s's, want %s's", got, other)
	}
	if s.ControlPlane.LastError != "" || s.ControlPlane.Paused != "" {
		t.Errorf("control plane: %+v, want nothing amiss", s.ControlPlane)
	}
	a.stop()
}

// TestAnswersHaveThePromisedKeys checks the JSON keys that scripts rely on.
func TestAnswersHaveThePromisedKeys(t *testing.T) {
	t.Parallel()
	pod(t, "promised", nil, 0, lab.ServeFor(0))
	a := startAgent(t, quick)
	a.awaitReady(corev1.ConditionTrue)
	a.await("images and filesystems are seen", func(s api.Status) bool {
		return len(s.ImageGC.Filesystems) > 0 && s.ImageGC.LastRun != nil && s.ContainerGC.LastRun != nil
	})
	for _, promise := range []struct {
		args string
		keys []string // "a.b" is b in a, or in the first element of a
	}{
		{"status", []string{
			"node", "lease", "controlPlane.type", "controlPlane.connected", "runtimes.name", "runtimes.version", "runtimes.endpoint", "runtimes.ready",
			"owners.node.evidence", "owners.lease", "owners.shutdown", "owners.imageGC", "owners.containerGC", "topology",
			"shutdown.state", "shutdown.reason", "shutdown.gracePeriod", "shutdown.gracePeriodCriticalPods", "shutdown.inhibitDelayMax", "shutdown.inhibitDelaySource", "shutdown.last",
			"imageGC.filesystems.mountpoint", "imageGC.filesystems.device", "imageGC.filesystems.capacityBytes", "imageGC.filesystems.availableBytes",
			"imageGC.filesystems.usedPercent", "imageGC.filesystems.inodesUsedPercent", "imageGC.highThresholdPercent", "imageGC.lowThresholdPercent",
			"imageGC.images", "imageGC.unused", "imageGC.lastRun", "containerGC.containers", "containerGC.dead", "containerGC.lastRun",
			"loops.name", "loops.healthy", "loops.lastSuccess", "loops.restarts",
			"addresses.type", "addresses.address", "addresses.interface", "addresses.reason",
			"customConditions.directory", "customConditions.checks", "customConditions.faults",
		}},
		{"gc plan", []string{
			"filesystems.bytesToFree", "filesystems.inodesToFree", "images.id", "images.names", "images.sizeBytes", "images.action", "images.reason", "images.runtime",
			"images.filesystem", "containers.id", "containers.name", "containers.pod", "containers.action", "containers.reason", "containers.runtime",
		}},
		{"gc run", []string{"requestedBytes", "freedBytes", "removed", "errors", "duration"}},
		{"shutdown plan", []string{"phases.name", "phases.priority", "phases.grace", "phases.pods.namespace", "phases.pods.name", "phases.pods.grace", "phases.pods.containers", "total", "granted"}},
		{"drain --dry-run", []string{"node", "phases.name", "phases.priority", "phases.grace", "total", "spared"}},
		{"ps", []string{"pods.runtime", "pods.namespace", "pods.name", "pods.containers.runtime"}},
		{"images", []string{"images.id", "images.runtime", "images.filesystem"}},
		{"version", []string{"version"}},
	} {
		v := answers[any](a, strings.Fields(promise.args)...)
		for _, key := range promise.keys {
			if !has(v, strings.Split(key, ".")) {
				t.Errorf("hostler %s -o json has no %s", promise.args, key)
			}
		}
		var same any
		out := a.prints(append(strings.Fields(promise.args), "-o", "yaml")...)
		if err := yaml.Unmarshal([]byte(out), &same); err != nil || !has(same, strings.Split(promise.keys[0], ".")) {
			t.Errorf("hostler %s -o yaml = %v, want %s in it:\n%s", promise.args, err, promise.keys[0], out)
		}
		if wide := a.prints(append(strings.Fields(promise.args), "-o", "wide")...); strings.TrimSpace(wide) == "" {
			t.Errorf("hostler %s -o wide prints nothing", promise.args)
		}
	}
	a.stop()
}

// has reports whether a path of keys exists in a JSON value.
func has(v any, path []string) bool {
	if list, ok := v.([]any); ok && len(path) > 0 {
		return len(list) > 0 && has(list[0], path)
	}
	if len(path) == 0 {
		return true
	}
	object, _ := v.(map[string]any)
	below, ok := object[path[0]]
	return ok && has(below, path[1:])
}
