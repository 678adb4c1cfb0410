package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"hostler.io/hostler/test/lab"
)

const mebibyte = 1 << 20

// imageFSBytes is the size of the file system that holds images.
const imageFSBytes = 320 * mebibyte

// The images of the demo.
const (
	imageWeb      = "docker.io/library/web:2"
	imageOldWeb   = "docker.io/library/web:1" // shares its largest layer with its successor
	imageBatch    = "docker.io/library/batch:1"
	imageMigrate  = "docker.io/library/migrate:1" // only dead containers use it
	imageDNS      = "registry.k8s.io/dns:1"
	imageKept     = "example.com/base/toolbox:1" // matches a keep pattern
	imageLocal    = "example.com/team/draft:dev" // built here, not in a registry
	imageReportOf = "docker.io/library/report:%d"
)

// Configured values that the checks rely on.
const (
	gracePeriod         = 16 * time.Second
	gracePeriodCritical = 4 * time.Second
	interval            = 20 * time.Second // of both collections
	minimumAge          = 3 * time.Second  // of an image that is removed
	highPercent         = 80
	lowPercent          = 60
)

// config returns a configuration as a person writes it, but with short intervals: a demo must not
// take five minutes.
func config(endpoint string) string {
	return fmt.Sprintf(`runtimes:
- {type: cri, endpoint: %s}
lease: {duration: 10s, renewInterval: 2s}
status: {updateInterval: 2s}
pressure: {imagefsAvailable: 5%%}
shutdown:
  gracePeriod: %s              # for all pods,
  gracePeriodCriticalPods: %s   # of which these are for the critical ones
  critical:
  - {namespace: kube-system}
imageGC:
  interval: %s
  highThresholdPercent: %d
  lowThresholdPercent: %d
  minimumAge: %s
  keep: ["example.com/base/*"]
containerGC: {interval: %s}
state: {directory: %s}
`, endpoint, gracePeriod, gracePeriodCritical, interval, highPercent, lowPercent, minimumAge, interval, folder+"/state")
}

// demoPod is a pod of the demo, and what is expected of it in a shutdown.
type demoPod struct {
	*lab.Pod
	takes    time.Duration // time that its container needs after SIGTERM; 0 if it ignores SIGTERM
	grace    time.Duration // its termination grace period
	critical bool
}

func (a demoPod) title() string { return a.Namespace + "/" + a.Name }

// container returns the ID of the pod's one running container.
func (a demoPod) container() string { return a.Containers["main"] }

// podSet are the pods of the demo.
type podSet struct {
	pods    []demoPod
	web     *lab.Pod
	reports int // number of images that nothing uses
}

// makeImages makes the images that exist at the start.
func (h *host) makeImages(ctx context.Context) error {
	shared, err := lab.RandomLayer(20 * mebibyte)
	if err != nil {
		return err
	}
	for _, image := range []struct {
		name   string
		shared bool
		own    int64
	}{
		{imageOldWeb, true, 2 * mebibyte},
		{imageWeb, true, 3 * mebibyte},
		{imageBatch, true, 1 * mebibyte},
		{imageMigrate, true, 1 * mebibyte},
		{imageDNS, false, 1 * mebibyte},
		{imageKept, false, 6 * mebibyte},
	} {
		own, err := lab.RandomLayer(image.own)
		if err != nil {
			return err
		}
		spec := lab.ImageSpec{Names: []string{image.name}, Layers: []lab.Layer{own}}
		if image.shared {
			spec.Layers = []lab.Layer{shared, own}
		}
		if _, err := h.containerd.Pull(ctx, spec); err != nil {
			return err
		}
	}
	_, err = h.containerd.Import(ctx, lab.ImageSpec{Names: []string{imageLocal}})
	return err
}

// pullReport pulls one more image that nothing uses.
func (h *host) pullReport(ctx context.Context, sizeBytes int64) error {
	layer, err := lab.RandomLayer(sizeBytes)
	if err != nil {
		return err
	}
	h.workload.reports++
	name := fmt.Sprintf(imageReportOf, h.workload.reports)
	_, err = h.containerd.Pull(ctx, lab.ImageSpec{Names: []string{name}, Layers: []lab.Layer{layer}})
	return err
}

// runPods runs the pods that are stopped by the reboot.
func (h *host) runPods(ctx context.Context) error {
	for _, pod := range []struct {
		namespace, name, image string
		takes, grace           time.Duration
	}{
		{"default", "web", imageWeb, 1 * time.Second, 10 * time.Second},
		{"default", "batch", imageBatch, 3 * time.Second, 30 * time.Second},
		{"default", "stubborn", imageBatch, 0, 2 * time.Second},
		{"kube-system", "dns", imageDNS, 1 * time.Second, 10 * time.Second},
		{"kube-system", "proxy", imageDNS, 2 * time.Second, 10 * time.Second},
	} {
		command := lab.IgnoreTerm()
		if pod.takes > 0 {
			command = lab.ServeFor(pod.takes)
		}
		p, err := h.containerd.RunPod(ctx, lab.PodSpec{
			Namespace: pod.namespace, Name: pod.name, Grace: pod.grace,
			Containers: []lab.ContainerSpec{{Name: "main", Image: pod.image, Command: command, Ready: "ready"}},
		})
		if err != nil {
			return err
		}
		h.workload.pods = append(h.workload.pods, demoPod{Pod: p, takes: pod.takes, grace: pod.grace, critical: pod.namespace == "kube-system"})
	}
	h.workload.web = h.workload.pods[0].Pod
	return nil
}

// runDead runs a container that ends at once, twice, like a job that is retried. It returns the
// IDs, the older one first.
func (h *host) runDead(ctx context.Context) (older, newer string, err error) {
	var ids [2]string
	for attempt := range ids {
		id, err := h.containerd.RunContainer(ctx, h.workload.web, lab.ContainerSpec{
			Name: "migrate", Image: imageMigrate, Command: lab.ExitWith(attempt), Attempt: uint32(attempt),
		})
		if err != nil {
			return "", "", err
		}
		if _, err := h.containerd.AwaitExit(ctx, id); err != nil {
			return "", "", err
		}
		ids[attempt] = id
	}
	return ids[0], ids[1], nil
}

// startDaemons starts bus, logind and containerd.
func (h *host) startDaemons(ctx context.Context) (err error) {
	if h.login, err = h.lab.StartLogin(ctx, lab.LoginOptions{}); err != nil {
		return err
	}
	if h.manager, err = lab.StartNotify(2); err != nil {
		return err
	}
	if h.containerd != nil {
		return errors.Join(h.containerd.Start(), h.containerd.Ready(ctx))
	}
	h.containerd, err = h.lab.StartContainerd(ctx, lab.ContainerdOptions{ImageFSBytes: imageFSBytes})
	if err != nil {
		// Some hosts have no loop devices.
		h.containerd, err = h.lab.StartContainerd(ctx, lab.ContainerdOptions{ImageFSBytes: imageFSBytes, ImageFSTmpfs: true})
	}
	return err
}

// prepare starts the daemons, creates images and pods, and shows them.
func (h *host) prepare(ctx context.Context) error {
	h.out.printf(`This is a private corner of the machine: own mounts, processes, network, bus
		and cgroups, all of which end with this program. In it run a real containerd
		with an image file system of its own, a real dbus-daemon and a real
		systemd-logind. Only the service manager below logind is a stand-in, so that
		nothing really reboots.`)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if err := h.startDaemons(ctx); err != nil {
		return err
	}
	if err := h.makeImages(ctx); err != nil {
		return err
	}
	if err := h.runPods(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(configFile, []byte(config(h.containerd.Endpoint)), 0o600); err != nil {
		return err
	}
	if err := errors.Join(h.showCommand(ctx, "cat", configFile), h.show(ctx, "config", "check", "--config", configFile)); err != nil {
		return err
	}
	u, err := h.imageFS()
	if err != nil {
		return err
	}
	h.out.checks()
	h.out.check(u.capacity > imageFSBytes/2 && u.capacity <= imageFSBytes, fmt.Sprintf("images lie on a file system of their own, of %s", mib(u.capacity)), "%s has %d bytes", h.containerd.Root, u.capacity)
	return nil
}
