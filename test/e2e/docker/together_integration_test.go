//go:build integration

package docker_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/lab"
)

// A host with all runtimes: each is found where packages install it. Containers that one runtime
// runs for another are shown once. The phases of a drain cover all of them, and labels mean the
// same in each.
func TestAllRuntimesOfAHostAreLookedAfterTogether(t *testing.T) {
	// Start it first, to close it last: Podman's containers also have their state there.
	r := lab.RuncFor(t, "/run/runc")
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	d := lab.DockerFor(t, lab.DockerOptions{Containerd: c})
	p := lab.PodmanFor(t, lab.PodmanOptions{})
	serveAt(t, "/run/containerd/containerd.sock", c.Endpoint)
	usualPlace(t, d)
	spec := lab.ImageSpec{Names: []string{image}}
	for _, load := range []func() (string, error){
		func() (string, error) { return c.Import(t.Context(), spec) },
		func() (string, error) { return d.Load(t.Context(), spec) },
		func() (string, error) { return p.Load(t.Context(), spec) },
	} {
		_, err := load()
		check(t, err)
	}
	unused, keep := "shop/unused:1", "shop/keep:1"
	for name, labels := range map[string]map[string]string{unused: nil, keep: {"hostler.io/keep": "true"}} {
		pulled := func(reference string) lab.ImageSpec {
			return lab.ImageSpec{Names: []string{reference + name}, Labels: labels}
		}
		_, err := c.Pull(t.Context(), pulled("docker.io/"))
		check(t, err)
		_, err = d.Pull(t.Context(), pulled(d.Reference("")))
		check(t, err)
		_, err = p.Pull(t.Context(), pulled(p.Registry.Address+"/"))
		check(t, err)
	}
	for name, pod := range map[string]struct {
		labels  map[string]string
		command []string
	}{
		"web":      {map[string]string{"hostler.io/grace-period": "10m"}, lab.ServeFor(time.Second)},
		"stubborn": {map[string]string{"hostler.io/grace-period": "2s"}, lab.IgnoreTerm()},
		"dns":      {map[string]string{"hostler.io/critical": "true", "hostler.io/grace-period": "10m"}, lab.ServeFor(time.Second)},
		"clock":    {map[string]string{"hostler.io/priority": "2000000000", "hostler.io/grace-period": "10m"}, lab.ServeFor(time.Second)},
	} {
		labels, command := pod.labels, pod.command
		_, err := c.RunPod(t.Context(), lab.PodSpec{Name: name + "-cri", Labels: labels, Containers: []lab.ContainerSpec{{Name: "main", Image: image, Command: command, Ready: "ready"}}})
		check(t, err)
		_, err = d.Run(t.Context(), lab.DockerContainer{Name: name + "-docker", Image: image, Labels: labels, Command: command, Ready: "ready"})
		check(t, err)
		_, err = p.Run(t.Context(), lab.PodmanContainer{Name: name + "-podman", Image: image, Labels: labels, Command: command, Ready: "ready"})
		check(t, err)
		check(t, r.Run(t.Context(), lab.RuncContainer{ID: name + "-runc", Annotations: labels, Command: command, Ready: "ready"}))
	}
	r.Setenv(t)
	a := startAgentOf(t, "runtimes: auto\nimageGC: {minimumAge: 0s}\nshutdown: {gracePeriod: 20m, gracePeriodCriticalPods: 10m}\n", "containerd", "docker", "podman", "runc")

	var all []string
	for _, of := range []string{"cri", "docker", "podman", "runc"} {
		all = append(all, "clock-"+of, "dns-"+of, "stubborn-"+of, "web-"+of)
	}
	slices.Sort(all)
	var pods []string
	eventually(t, "each is listed once", func() bool {
		list, err := a.api.Pods(t.Context())
		pods = nil
		for _, pod := range list.Pods {
			pods = append(pods, pod.Name)
		}
		slices.Sort(pods)
		return err == nil && slices.Equal(pods, all)
	})
	images, err := a.api.Images(t.Context())
	check(t, err)
	holders := map[string]bool{}
	for _, img := range images.Images {
		if slices.Contains(img.Names, image) {
			holders[img.Runtime] = true
		}
	}
	if len(holders) != 3 || holders["runc"] {
		t.Errorf("%s is of %v, want it of each that keeps images", image, holders)
	}

	collected, err := a.api.Collect(t.Context(), api.CollectRequest{Images: true, AllUnused: true}, func(api.Step) {})
	check(t, err)
	var removed []string
	for _, r := range collected.Removed {
		removed = append(removed, r.Names...)
	}
	if n := strings.Count(strings.Join(removed, " "), unused); n != 3 || len(collected.Errors) > 0 {
		t.Errorf("gc run removed %q, with errors %v, want %s of each that keeps images", removed, collected.Errors, unused)
	}
	if strings.Contains(strings.Join(removed, " "), keep) {
		t.Errorf("gc run removed %q, want no %s among them", removed, keep)
	}

	report, err := a.api.Drain(t.Context(), maintenance.DrainRequest{All: true}, func(maintenance.DrainStep) {})
	check(t, err)
	var regular, critical []journal.PodRecord
	for _, pod := range report.Pods {
		outcome := journal.Stopped
		if strings.HasPrefix(pod.Name, "stubborn-") {
			outcome = journal.Killed
			if pod.Grace.Duration != 2*time.Second {
				t.Errorf("%s was given %v, want the 2s of its label", pod.Name, pod.Grace)
			}
		}
		if pod.Outcome != outcome {
			t.Errorf("%s is %s, want it %s", pod.Name, pod.Outcome, outcome)
		}
		if strings.HasPrefix(pod.Name, "dns-") || strings.HasPrefix(pod.Name, "clock-") {
			critical = append(critical, pod)
		} else {
			regular = append(regular, pod)
		}
	}
	if !report.Graceful || len(regular) != 8 || len(critical) != 8 {
		t.Errorf("drain = %+v, want a graceful one of four pods of each runtime", report)
	}
	for _, last := range critical {
		for _, first := range regular {
			if last.StartedAt.Before(first.FinishedAt) {
				t.Errorf("%s, which is critical, was sent the stop signal at %v, and %s had ended at %v", last.Name, last.StartedAt, first.Name, first.FinishedAt)
			}
		}
	}
	for _, name := range []string{"web", "stubborn", "dns", "clock"} {
		if left, err := r.Processes(name + "-runc"); err != nil || len(left) > 0 {
			t.Errorf("processes of %s-runc = %v, %v, want none", name, left, err)
		}
	}
	if left, err := p.Command(t.Context(), "ps", "--quiet"); err != nil || left != "" {
		t.Errorf("podman ps = %q, %v, want none that runs", left, err)
	}
}
