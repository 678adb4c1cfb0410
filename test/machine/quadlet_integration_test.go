//go:build integration

package machine_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
)

// TestPodsOfQuadlet stops a pod that is a unit (.pod) with a container that is another one
// (.container), and one of a Kubernetes manifest (.kube): manually and with the machine, after
// which they start again. It also stops, manually, a oneshot that systemd kills. Quadlet supports
// pods from Podman 5 on.
func TestPodsOfQuadlet(t *testing.T) {
	onDebians(t, []machine.Release{machine.Debian13}, bed(), func(t *testing.T, o machine.Options) {
		o.Config = "shutdown: {gracePeriod: 3m, gracePeriodCriticalPods: 1m}\n"
		o.Files = machine.PodmanFiles()
		m := machine.Boot(t, o)
		for name, text := range map[string]string{
			"shop.pod": "[Pod]\nPodName=shop\nNetwork=none\n[Install]\nWantedBy=multi-user.target\n",
			"web.container": "[Container]\nImage=" + job.Image + "\nContainerName=web\nPod=shop.pod\nStopTimeout=25\nExec=" + heeds + "\n" +
				"[Service]\nRestart=always\n",
			"backup.container": "[Container]\nImage=" + job.Image + "\nContainerName=backup\nNetwork=none\nExec=" + deaf + "\n" +
				"[Service]\nType=oneshot\nTimeoutStopSec=4\n",
			"store.kube": "[Kube]\nYaml=store.yaml\nNetwork=none\n[Service]\nRestart=always\n[Install]\nWantedBy=multi-user.target\n",
			"store.yaml": `{apiVersion: v1, kind: Pod, metadata: {name: store}, spec: {containers: [
				{name: db, image: "` + job.Image + `", imagePullPolicy: Never, command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.2; done"]},
				{name: cache, image: "` + job.Image + `", imagePullPolicy: Never, command: [sh, -c, "trap 'exit 0' TERM; while :; do sleep 0.2; done"]},
			]}}`,
		} {
			m.Write("/etc/containers/systemd/"+name, text)
		}
		// Services of the host that are ordered after a container: a running one, and one with a command
		// at its end.
		for name, more := range map[string]string{"web-user": "ExecStart=sleep infinity", "web-dump": "Type=oneshot\nRemainAfterExit=yes\nExecStart=true"} {
			m.Write("/etc/systemd/system/"+name+".service", "[Unit]\nWants=web.service\nAfter=web.service\n[Service]\n"+more+
				"\nExecStop=sh -c 'sleep 0.3; podman exec web echo reached >>/root/"+name+"'\n")
		}
		const units = "shop-pod web store"
		m.Run("systemctl enable --now podman.socket && podman load --quiet --input " + job.ImageArchive + " && systemctl daemon-reload && systemctl start " + units)

		arePlanned := func() {
			t.Helper()
			awaitPlan(m, map[string]string{"web": "web.service 25s", "store-db": "store.service 30s", "store-cache": "store.service 30s"})
		}
		arePlanned()
		m.Run("systemctl start --no-block backup")
		awaitPlan(m, map[string]string{"web": "web.service 25s", "store-db": "store.service 30s", "store-cache": "store.service 30s", "backup": "backup.service 4s"})
		if text := m.Run("hostler drain --all"); !strings.Contains(text, "killed backup after ") {
			t.Errorf("hostler drain says\n%s\nwant backup to be killed: its unit waits 4 s", text)
		}
		if running := strings.TrimSpace(m.Run("podman ps --quiet")); running != "" {
			t.Errorf("after hostler drain %q run, want none", running)
		}
		m.Eventually("the units are down", func() bool {
			return strings.TrimSpace(strings.ReplaceAll(m.Run("systemctl is-active "+units+" || true"), "inactive", "")) == ""
		})
		if restarts := strings.Fields(m.Run("systemctl show -P NRestarts " + units)); strings.Join(restarts, " ") != "0 0 0" {
			t.Errorf("the units were started again %v times, want never", restarts)
		}

		m.Run("systemctl start " + units + " web-user web-dump && hostler uncordon")
		arePlanned()
		if text := m.Hostler("shutdown", "plan"); !strings.Contains(text, "by web.service, after web-dump.service and web-user.service") {
			t.Errorf("hostler shutdown plan names no services that stop before web:\n%s", text)
		}
		m.GoesDown("systemctl reboot")
		last := m.LastShutdown()
		if last == nil || !last.Graceful || len(last.Pods) != 2 {
			t.Fatalf("LastShutdown() = %+v, want a graceful one of two pods", last)
		}
		for _, p := range last.Pods {
			if p.Outcome != journal.Stopped {
				t.Errorf("%s is %v on record, want it %v", p.Name, p.Outcome, journal.Stopped)
			}
			if status := last.PodStatus(p); status.Phase != corev1.PodSucceeded {
				t.Errorf("%s is %+v, want that it ended well", p.Name, status)
			}
		}
		if text := m.Run("cat /root/web-*"); text != "reached\nreached\n" {
			t.Errorf("the services that are ordered after web say at their stop %q, want both to reach it", text)
		}
		m.Eventually("all are back", func() bool {
			return strings.Join(strings.Fields(m.Run("systemctl is-active "+units+" || true")), " ") == "active active active"
		})
		arePlanned()
	})
}
