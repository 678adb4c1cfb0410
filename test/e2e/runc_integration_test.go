//go:build integration

package e2e_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/lab"
)

// Containers that people run with runc alone are managed in addition to containerd's: listed,
// planned, stopped in order with their grace period, and deleted on request.
func TestContainersOfRuncAloneAreLookedAfterBesideContainerd(t *testing.T) {
	t.Parallel()
	r := lab.RuncFor(t, "")
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	_, err := c.Pull(t.Context(), lab.ImageSpec{Names: []string{webImage}})
	check(t, err)
	_, err = c.RunPod(t.Context(), lab.PodSpec{Name: "pod", Containers: []lab.ContainerSpec{{Name: "main", Image: webImage, Command: lab.ServeFor(0), Ready: "ready"}}})
	check(t, err)

	// The state root does not exist yet. That is no error.
	a := newAgent(t, quick+"shutdown: {gracePeriod: 20m, gracePeriodCriticalPods: 10m}\nruntimes: [{type: cri, endpoint: "+c.Endpoint+"}, {type: runc, endpoint: "+r.Root+"}]\n")
	a.env = r.Environ()
	a.start()
	a.awaitReady(corev1.ConditionTrue)
	s := a.await("both runtimes are ready", func(s api.Status) bool {
		ready := len(s.Runtimes) == 2 && s.Runtimes[0].Ready && s.Runtimes[1].Ready
		if ready && s.Runtimes[1].Version == "" { // not printed within 2 s: runc is run again after minutes, or by a new agent
			a.stop()
			a.start()
			return false
		}
		return ready
	})
	if got := s.Runtimes[1]; got.Name != "runc" || got.Version == "" || got.Endpoint != r.Root {
		t.Errorf("runtimes[1] = %+v, want runc with its version", got)
	}
	if version := nodeOf(s).Status.NodeInfo.ContainerRuntimeVersion; !strings.HasPrefix(version, "containerd://") {
		t.Errorf("containerRuntimeVersion = %s, want containerd's", version)
	}

	for id, command := range map[string][]string{"web": lab.ServeFor(time.Second), "stubborn": lab.IgnoreTerm(), "dns": lab.ServeFor(0)} {
		annotations := map[string]map[string]string{"stubborn": {"hostler.io/grace-period": "2s"}, "dns": critical}[id]
		check(t, r.Run(t.Context(), lab.RuncContainer{ID: id, Command: command, Annotations: annotations, Ready: "ready"}))
	}
	check(t, r.Run(t.Context(), lab.RuncContainer{ID: "job", Command: lab.ExitWith(0)}))
	eventually(t, "job has ended", func() bool {
		left, err := r.Processes("job")
		return err == nil && len(left) == 0
	})
	mentions(t, "hostler ps", a.prints("ps"), "web", "stubborn", "dns", "pod", "Running")
	mentions(t, "hostler shutdown plan", a.prints("shutdown", "plan"), "web", "stubborn", "dns", "pod")

	report := answers[maintenance.DrainReport](a, "drain", "--all")
	outcomes := map[string]journal.Outcome{}
	for _, p := range report.Pods {
		outcomes[p.Name] = p.Outcome
	}
	if !report.Graceful || len(outcomes) != 4 || outcomes["web"] != journal.Stopped || outcomes["dns"] != journal.Stopped || outcomes["pod"] != journal.Stopped || outcomes["stubborn"] != journal.Killed {
		t.Errorf("drain --all = %+v, want all stopped, and the stubborn one killed after its grace", report)
	}
	if text, err := r.Output("web"); err != nil || !strings.Contains(text, "ended") {
		t.Errorf("web printed %q, %v, want that it took its second to end", text, err)
	}
	for _, id := range []string{"web", "stubborn", "dns"} {
		if left, err := r.Processes(id); err != nil || len(left) > 0 {
			t.Errorf("processes of %s = %v, %v, want none", id, left, err)
		}
	}

	// Dead containers stay until their removal is requested. Containers that the drain has stopped
	// stay even then, because they are to be started again.
	a.prints("gc", "run", "--containers")
	mentions(t, "hostler ps after a collection", a.prints("ps"), "web", "stubborn", "dns", "job")
	mentions(t, "hostler gc run", a.prints("gc", "run", "--containers", "--all-unused"), "job")
	var left []string
	eventually(t, "job is gone from runc", func() bool {
		left = nil
		for _, p := range answers[api.PodList](a, "ps").Pods {
			if p.Runtime == "runc" {
				left = append(left, p.Name)
			}
		}
		return !slices.Contains(left, "job")
	})
	slices.Sort(left)
	if want := []string{"dns", "stubborn", "web"}; !slices.Equal(left, want) {
		t.Errorf("runc has %q left, want what was drained: %q", left, want)
	}
	a.stop()
}

// This also works without another runtime: there are no images, and no check fails because of that.
func TestAHostOfRuncAloneIsReady(t *testing.T) {
	t.Parallel()
	r := lab.RuncFor(t, "")
	a := newAgent(t, quick+"runtimes: [{type: runc, endpoint: "+r.Root+"}]\n")
	a.env = r.Environ()
	a.start()
	a.awaitReady(corev1.ConditionTrue)
	check(t, r.Run(t.Context(), lab.RuncContainer{ID: "web", Command: lab.ServeFor(0), Ready: "ready"}))
	mentions(t, "hostler ps", a.prints("ps"), "web")
	if images := a.hostler("images"); images.code != 0 {
		t.Errorf("hostler images = %d, %s, want 0", images.code, images.err)
	}
	if plan := a.hostler("gc", "plan"); plan.code != 0 {
		t.Errorf("hostler gc plan = %d, %s, want 0", plan.code, plan.err)
	}
	a.await("the loops have run and are healthy", func(s api.Status) bool {
		return loopOf(t, s, "image-gc").LastSuccess != nil && !slices.ContainsFunc(s.Loops, func(l api.Loop) bool {
			return !l.Healthy && l.Name != "shutdown-guard" // there is no logind
		})
	})
	a.awaitReady(corev1.ConditionTrue)
	if lines := a.logLines("level=WARN", "runc"); len(lines) > 0 {
		t.Errorf("the log warns of what is no fault: %q", lines)
	}
	a.stop()
}
