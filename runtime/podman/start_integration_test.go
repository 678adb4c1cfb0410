//go:build integration

package podman_test

import (
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/podman"
	"hostler.io/hostler/test/lab"
)

// shop runs a pod of two containers, of which web needs db, and a single container.
func shop(t *testing.T, d labDriver) {
	t.Helper()
	d.AddImage(t, built)
	_, err := d.MakePod(t.Context(), "shop", nil)
	check(t, err)
	for _, c := range []lab.PodmanContainer{
		{Name: "db", Pod: "shop"},
		{Name: "web", Pod: "shop", Flags: []string{"--requires", "db"}},
		{Name: "alone"},
	} {
		c.Image, c.Command, c.Ready, c.Restart = built, lab.ServeFor(0), "ready", "unless-stopped"
		_, err := d.Run(t.Context(), c)
		check(t, err)
	}
}

// stopAll stops one pod after the other, as a shutdown does.
func stopAll(t *testing.T, r *podman.Runtime) {
	t.Helper()
	pods, err := r.Pods(t.Context())
	check(t, err)
	for _, p := range pods {
		for _, c := range p.Containers {
			check(t, r.StopContainer(t.Context(), c, patience))
		}
		check(t, r.StopPod(t.Context(), p))
	}
}

// After a boot, each container still has its last run. A container that is started has its
// dependencies running.
func TestPodmansContainersAreStartedAfterABoot(t *testing.T) {
	r, d := startPodman(t, lab.PodmanOptions{})
	shop(t, d)
	before := containers(t, r)
	stopAll(t, r)
	check(t, d.Boot(t.Context()))

	r = newAdapter(t, d.Podman, nil)
	after := containers(t, r)
	for name, c := range before {
		now := after[name]
		if now.State != runtime.Exited || c.StartedAt.IsZero() || !now.StartedAt.Equal(c.StartedAt) || now.FinishedAt.Before(now.StartedAt) || now.Restart != runtime.RestartUnlessStopped {
			t.Errorf("after the boot %s is %+v, want it ended, %v, and its run from %v", name, now, runtime.RestartUnlessStopped, c.StartedAt)
		}
	}
	if err := r.StartContainer(t.Context(), after["web"]); err != nil {
		t.Fatalf("StartContainer() = %v", err)
	}
	again := containers(t, r)
	for name, c := range map[string]runtime.Container{"web": again["web"], "db": again["db"]} {
		if c.State != runtime.Running || !c.StartedAt.After(after[name].FinishedAt) {
			t.Errorf("%s is %+v after the start of web, want it running", name, c)
		}
	}
	if c := again["alone"]; c.State != runtime.Exited {
		t.Errorf("alone is %+v after the start of another, want it as it was", c)
	}
	if pods, err := r.Pods(t.Context()); err != nil || !pods[0].Ready {
		t.Errorf("Pods() = %+v, %v, want the pod ready", pods, err)
	}
}

// If a container ended with the host, Podman knows when its run began.
func TestTheRunOfAContainerThatEndedWithItsHostIsKnown(t *testing.T) {
	r, d := startPodman(t, lab.PodmanOptions{})
	shop(t, d)
	before := containers(t, r)
	check(t, d.Boot(t.Context()))
	for name, now := range containers(t, newAdapter(t, d.Podman, nil)) {
		if now.State != runtime.Exited || !now.StartedAt.Equal(before[name].StartedAt) || !now.FinishedAt.IsZero() && now.FinishedAt.Before(now.StartedAt) {
			t.Errorf("%s is %+v, want it ended, its run from %v, and no end before", name, now, before[name].StartedAt)
		}
	}
}

// A container whose start failed can be started later.
func TestAFailedStartOfPodmanIsTriedAgain(t *testing.T) {
	r, d := startPodman(t, lab.PodmanOptions{})
	d.AddImage(t, built)
	volume := filepath.Join(t.TempDir(), "volume")
	check(t, os.Mkdir(volume, 0o755))
	_, err := d.Run(t.Context(), lab.PodmanContainer{Name: "web", Image: built, Command: lab.ServeFor(0), Ready: "ready", Restart: "always", Flags: []string{"--volume", volume + ":/mnt"}})
	check(t, err)
	stopAll(t, r)
	before := containers(t, r)["web"]
	check(t, os.Remove(volume))
	if err := r.StartContainer(t.Context(), before); err == nil {
		t.Error("StartContainer() without what is to be mounted = nil, want an error")
	}
	if now := containers(t, r)["web"]; now.State != runtime.Exited || !now.StartedAt.Equal(before.StartedAt) || !now.FinishedAt.Equal(before.FinishedAt) {
		t.Errorf("after a start that failed it is %+v, want it as before: %+v", now, before)
	}
	check(t, os.Mkdir(volume, 0o755))
	if err := r.StartContainer(t.Context(), before); err != nil {
		t.Errorf("StartContainer() = %v", err)
	}
	if now := containers(t, r)["web"]; now.State != runtime.Running || !now.StartedAt.After(before.FinishedAt) {
		t.Errorf("it is %+v, want it running", now)
	}
}
