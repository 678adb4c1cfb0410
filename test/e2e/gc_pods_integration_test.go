//go:build integration

package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/runs"
	"hostler.io/hostler/test/lab"
)

func TestADeadPodGoesAfterItsContainers(t *testing.T) {
	t.Parallel()
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	_, err := c.Pull(t.Context(), lab.ImageSpec{Names: []string{webImage}})
	check(t, err)
	container := lab.ContainerSpec{Name: "main", Image: webImage, Command: lab.ServeFor(0), Ready: "ready"}
	over, err := c.RunPod(t.Context(), lab.PodSpec{Name: "over", Containers: []lab.ContainerSpec{container}})
	check(t, err)
	lives, err := c.RunPod(t.Context(), lab.PodSpec{Name: "lives", Containers: []lab.ContainerSpec{container}})
	check(t, err)
	kept, err := c.RunPod(t.Context(), lab.PodSpec{Name: "kept", Labels: map[string]string{"hostler.io/keep": "true"}})
	check(t, err)
	check(t, c.StopPod(t.Context(), over))
	check(t, c.StopPod(t.Context(), kept))
	sandboxes := func() map[string]bool {
		reply, err := c.Runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
		check(t, err)
		found := map[string]bool{}
		for _, s := range reply.Items {
			found[s.Id] = true
		}
		return found
	}
	// Every agent of this lab may collect it.
	rubbish := fmt.Sprintf("/var/log/pods/barn_gone_%d", os.Getpid())
	check(t, os.MkdirAll(filepath.Join(rubbish, "main"), 0o755))
	check(t, os.WriteFile(filepath.Join(rubbish, "main/0.log"), []byte("neigh\n"), 0o600))
	old := time.Now().Add(-2 * time.Hour)
	for _, path := range []string{"main/0.log", "main", ""} {
		check(t, os.Chtimes(filepath.Join(rubbish, path), old, old))
	}

	a := startAgent(t, "runtimes: [{type: cri, endpoint: "+c.Endpoint+"}]\ncontainerGC: {interval: 1s}\n")
	eventually(t, "the logs of a pod that no runtime knows are gone", func() bool {
		_, err := os.Stat(rubbish)
		return os.IsNotExist(err)
	})
	plan := answers[api.CollectPlan](a, "gc", "plan", "--containers")
	reasons := map[string]gc.PodDecision{}
	for _, p := range plan.Pods {
		reasons[p.ID] = p
	}
	if p := reasons[over.ID]; len(reasons) != 2 || p.Action != gc.Keep || p.Reason != gc.InUse || !strings.Contains(p.Detail, "main") {
		t.Errorf("gc plan = %+v, want the dead pod kept by its container, which is the newest of its name", plan.Pods)
	}
	if p := reasons[kept.ID]; p.Reason != gc.Protected {
		t.Errorf("gc plan = %+v, want the pod with the label kept", p)
	}
	report := answers[runs.Report](a, "gc", "run", "--containers", "--all-unused")
	if report.Count(runs.KindContainer) != 1 || report.Removed[0].ID != over.Containers["main"] || len(report.Errors) != 0 {
		t.Errorf("gc run --all-unused removed %+v, errors %q, want the container of the dead pod", report.Removed, report.Errors)
	}
	eventually(t, "the dead pod is gone, a minute after its end", func() bool { return !sandboxes()[over.ID] })
	if found := sandboxes(); !found[lives.ID] || !found[kept.ID] {
		t.Errorf("pods left = %v, want the one that lives, %s, and the one with the label, %s", found, lives.ID, kept.ID)
	}
	status, err := c.Container(t.Context(), lives.Containers["main"])
	check(t, err)
	if status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("container of the pod that lives is %v, want it running", status.State)
	}
	answers[runs.Report](a, "gc", "run", "--containers") // it waits for the run that removed it
	metric(t, a, `hostler_gc_pods_removed_total{reason="pod-dead"}`, "1")
	a.stop()
}
