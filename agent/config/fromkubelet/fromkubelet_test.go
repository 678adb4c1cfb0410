package fromkubelet_test

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/config/fromkubelet"
)

var update = flag.Bool("update", false, "write the golden files")

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func TestWholeFiles(t *testing.T) {
	flags := strings.Fields(`/usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig /etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml
		--hostname-override=rack7-12 --node-ip=192.0.2.12 --node-labels=tier=batch,rack=7 --register-schedulable=false --pod-infra-container-image=registry.example/pause:3.10 --v=2
		--max-pods=60 --eviction-hard=memory.available<200Mi --fail-swap-on=false --maximum-dead-containers-per-container=2`)
	for name, flags := range map[string][]string{"kubeadm": nil, "full": nil, "flags": flags} {
		t.Run(name, func(t *testing.T) {
			data := []byte(head)
			if name != "flags" {
				var err error
				if data, err = os.ReadFile(filepath.Join("testdata", name+".yaml")); err != nil {
					t.Fatal(err)
				}
			}
			got, err := fromkubelet.Convert(name+".yaml", data, flags)
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != string(want) {
				t.Errorf("Convert() =\n%s\nwant (-update writes it)\n%s", got, want)
			}
			if _, err := config.Parse(name, got); err != nil {
				t.Errorf("hostler refuses what came out: %v\n%s", err, got)
			}
		})
	}
}

// TestWhatComesOut looks at single settings where two tables could drift apart: by what
// hostler makes of the text.
func TestWhatComesOut(t *testing.T) {
	second := config.Duration(time.Second)
	for _, c := range []struct {
		name  string
		file  string
		flags []string
		is    func(c config.Config) bool
	}{
		{"a kubelet that is told nothing of shutdowns closes nothing", "", nil, func(c config.Config) bool {
			return c.Shutdown.GracePeriod == 0 && c.Shutdown.GracePeriodCriticalPods == 0
		}},
		{"one that is told", "shutdownGracePeriod: 60s\nshutdownGracePeriodCriticalPods: 20s\n", nil, func(c config.Config) bool {
			return c.Shutdown.GracePeriod == 60*second && c.Shutdown.GracePeriodCriticalPods == 20*second
		}},
		{"by priority", "shutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 30}, {priority: 100, shutdownGracePeriodSeconds: 5}]\n", nil, func(c config.Config) bool {
			p := c.Shutdown.ByPriority
			return len(p) == 2 && p[0].GracePeriod == 30*second && p[1] == config.PriorityGrace{Priority: 100, GracePeriod: 5 * second}
		}},
		{"a threshold that is not named is off", "evictionHard: {memory.available: 1Gi}\n", nil, func(c config.Config) bool {
			return c.Pressure.MemoryAvailable == "1Gi" && c.Pressure.NodefsAvailable == "0%" && c.Pressure.PIDAvailable == "0%"
		}},
		{"unless defaults are merged", "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n", nil, func(c config.Config) bool {
			return c.Pressure.MemoryAvailable == "1Gi" && c.Pressure.NodefsAvailable == "10%"
		}},
		{"no thresholds at all", "evictionHard: {}\n", nil, func(c config.Config) bool { return c.Pressure.MemoryAvailable == "0%" }},
		{"none given", "", nil, func(c config.Config) bool { return c.Pressure == config.Default().Pressure }},
		{"a soft threshold without a hard one", "evictionSoft: {nodefs.available: 20%}\n", nil, func(c config.Config) bool {
			return c.Pressure.NodefsAvailable == "20%" && c.Pressure.MemoryAvailable == "100Mi"
		}},
		{"100% is off", "evictionHard: {memory.available: 100%}\n", nil, func(c config.Config) bool { return c.Pressure.MemoryAvailable == "0%" }},
		{"reports follow updates", "nodeStatusUpdateFrequency: 1m\n", nil, func(c config.Config) bool {
			return c.Status.UpdateInterval == 60*second && c.Status.ReportInterval == 60*second
		}},
		{"unless they are told", "nodeStatusReportFrequency: 7m\nnodeStatusUpdateFrequency: 1m\n", nil, func(c config.Config) bool { return c.Status.ReportInterval == 420*second }},
		{"renewals come four times in a Lease", "nodeLeaseDurationSeconds: 20\n", nil, func(c config.Config) bool {
			return c.Lease.Duration == 20*second && c.Lease.RenewInterval == 5*second
		}},
		{"a zero is the default", "nodeLeaseDurationSeconds: 0\nmaxPods: 0\nimageMinimumGCAge: 0s\n", nil, func(c config.Config) bool {
			d := config.Default()
			return c.Lease == d.Lease && c.Node.MaxPods == d.Node.MaxPods && c.ImageGC.MinimumAge == d.ImageGC.MinimumAge
		}},
		{"a flag counts more than the file", "maxPods: 20\n", []string{"--max-pods", "30"}, func(c config.Config) bool { return c.Node.MaxPods == 30 }},
		{"as a map, too", "evictionHard: {nodefs.available: 3%}\n", []string{"--eviction-hard=memory.available<7%"}, func(c config.Config) bool {
			return c.Pressure.MemoryAvailable == "7%" && c.Pressure.NodefsAvailable == "0%"
		}},
		{"what is kept twice is added up", "", []string{"--system-reserved=cpu=500m,memory=1Gi", "--kube-reserved=cpu=1"}, func(c config.Config) bool {
			cpu := c.Node.Reserved.CPU.Value()
			return cpu.MilliValue() == 1500 && c.Node.Reserved.Memory == "1Gi"
		}},
		{"taints by flag", "", []string{"--register-with-taints=a=b:NoSchedule,c:NoExecute"}, func(c config.Config) bool {
			return len(c.Node.Taints) == 2 && c.Node.Taints[1] == config.Taint{Key: "c", Effect: "NoExecute"}
		}},
		{"both families", "", []string{"--node-ip=192.0.2.1,2001:db8::1"}, func(c config.Config) bool { return len(c.Node.Address.Internal) == 2 }},
		{"a family without an address", "", []string{"--node-ip=::"}, func(c config.Config) bool { return len(c.Node.Address.Internal) == 0 }},
		{"a Node that others create", "registerNode: false\n", []string{"--kubeconfig=/k"}, func(c config.Config) bool { return !c.Node.Register }},
		{"a flag without a value", "", []string{"--register-schedulable"}, func(c config.Config) bool { return !c.Node.Unschedulable }},
		{"an external cloud", "", []string{"--cloud-provider=external", "--kubeconfig=/k"}, func(c config.Config) bool { return c.Node.CloudProvider == "external" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := fromkubelet.Convert("kubelet.yaml", []byte(head+c.file), c.flags)
			if err != nil {
				t.Fatal(err)
			}
			got, err := config.Parse("out", text)
			if err != nil {
				t.Fatalf("hostler refuses what came out: %v\n%s", err, text)
			}
			if !c.is(got) {
				t.Errorf("Convert() =\n%s", text)
			}
		})
	}
}

func TestFaultsOfAKubelet(t *testing.T) {
	for _, c := range []struct {
		name, file string
		flags      []string
		says       string
	}{
		{"another document", "apiVersion: v1\nkind: Pod\n", nil, "no KubeletConfiguration"},
		{"no map", "- a\n", nil, "no map"},
		{"no YAML", "a: [\n", nil, "kubelet.yaml"},
		{"nothing", "", nil, "KubeletConfiguration"},
		{"no number", head + "maxPods: many\n", nil, `kubelet.yaml:3: maxPods: "many" is no whole number`},
		{"no duration", head + "imageMinimumGCAge: soon\n", nil, "kubelet.yaml:3: imageMinimumGCAge:"},
		{"no quantity", head + "kubeReserved: {cpu: much}\n", nil, `kubeReserved.cpu: "much" is no quantity`},
		{"a list for a map", head + "evictionHard: [a]\n", nil, "kubelet.yaml:3: evictionHard:"},
		{"a key twice", head + "maxPods: 1\nmaxPods: 2\n", nil, "maxPods: stands twice"},
		{"an alias", head + "evictionHard: &a {b: *a}\n", nil, "aliases"},
		{"no flag", head, []string{"--max-pods=1", "stray"}, `"stray" is no flag`},
		{"a flag of another kind", head, []string{"--node-ip=here"}, `--node-ip: "here" is no IP address`},
		{"pairs without a sign", head, []string{"--eviction-hard=memory.available=1Gi"}, "--eviction-hard:"},
		{"what hostler refuses", head + "imageGCHighThresholdPercent: 50\n", nil, "imageGC.highThresholdPercent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, err := fromkubelet.Convert("kubelet.yaml", []byte(c.file), c.flags)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Convert() = %v, want an error that says %q\n%s", err, c.says, text)
			}
		})
	}
}

// FuzzConvert holds that whatever a kubelet is told, what comes out is a file that
// hostler reads, or an error says why not.
func FuzzConvert(f *testing.F) {
	for _, name := range []string{"kubeadm", "full"} {
		data, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "--max-pods=3")
	}
	f.Add([]byte(head+"\"a\\nb\": c\n"), "--node-labels=a=b")
	f.Fuzz(func(t *testing.T, data []byte, arguments string) {
		text, err := fromkubelet.Convert("f", data, strings.Fields(arguments))
		if err != nil {
			return
		}
		if _, err := config.Parse("out", text); err != nil {
			var faults config.Faults
			t.Errorf("hostler refuses what came out (%t): %v\n%s", errors.As(err, &faults), err, text)
		}
	})
}
