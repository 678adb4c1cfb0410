//go:build integration

package lab_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/test/lab"
)

func layer(t *testing.T, sizeBytes int64) lab.Layer {
	t.Helper()
	l, err := lab.RandomLayer(sizeBytes)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func pull(t *testing.T, c *lab.Containerd, spec lab.ImageSpec) string {
	t.Helper()
	id, err := c.Pull(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestContainerdRunsPodsAsKubeletDoes(t *testing.T) {
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	pull(t, c, lab.ImageSpec{Names: []string{"docker.io/library/web:1"}})
	pod, err := c.RunPod(t.Context(), lab.PodSpec{
		Name: "web", Namespace: "shop", UID: "11111111-2222-3333-4444-555555555555", Grace: 45 * time.Second,
		Labels: map[string]string{"app": "web"},
		Containers: []lab.ContainerSpec{
			{Name: "polite", Image: "docker.io/library/web:1", Command: lab.ServeFor(time.Second), Ready: "ready", Labels: map[string]string{"hostler.io/keep": "true"}},
			{Name: "stubborn", Image: "docker.io/library/web:1", Command: lab.IgnoreTerm(), Ready: "ready"},
			{Name: "brief", Image: "docker.io/library/web:1", Command: lab.ExitWith(3)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sandboxes, err := c.Runtime.ListPodSandbox(t.Context(), &cri.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if len(sandboxes.Items) != 1 || sandboxes.Items[0].Labels["io.kubernetes.pod.namespace"] != "shop" || sandboxes.Items[0].Labels["app"] != "web" {
		t.Errorf("ListPodSandbox() = %v, want the pod shop/web with its labels", sandboxes.Items)
	}

	brief, err := c.AwaitExit(t.Context(), pod.Containers["brief"])
	if err != nil || brief.ExitCode != 3 {
		t.Fatalf("AwaitExit(brief) = %v, %v, want exit code 3", brief, err)
	}
	stop := func(name string, grace int64) (*cri.ContainerStatus, time.Duration) {
		t.Helper()
		began := time.Now()
		if _, err := c.Runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: pod.Containers[name], Timeout: grace}); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		status, err := c.AwaitExit(t.Context(), pod.Containers[name])
		if err != nil {
			t.Fatal(err)
		}
		return status, took
	}
	if status, took := stop("polite", 600); status.ExitCode != 0 || took < time.Second || took > 5*time.Minute {
		t.Errorf("stop polite: exit code %d after %v, want 0 after about 1s", status.ExitCode, took)
	}
	if status, took := stop("stubborn", 1); status.ExitCode != 137 || took < time.Second {
		t.Errorf("stop stubborn: exit code %d after %v, want 137 after 1s", status.ExitCode, took)
	}
	polite, err := c.Container(t.Context(), pod.Containers["polite"])
	if err != nil {
		t.Fatal(err)
	}
	if got := polite.Labels["hostler.io/keep"]; got != "true" {
		t.Errorf("label hostler.io/keep = %q, want true", got)
	}
	if got := polite.Annotations["io.kubernetes.pod.terminationGracePeriod"]; got != "45" {
		t.Errorf("annotation of the grace period = %q, want 45", got)
	}

	again, err := c.RunContainer(t.Context(), pod, lab.ContainerSpec{Name: "brief", Attempt: 1, Image: "docker.io/library/web:1", Command: lab.ExitWith(0)})
	if err != nil {
		t.Fatal(err)
	}
	if status, err := c.AwaitExit(t.Context(), again); err != nil || status.Metadata.Attempt != 1 {
		t.Errorf("AwaitExit(second brief) = %v, %v, want attempt 1", status, err)
	}
	if err := c.RemovePod(t.Context(), pod); err != nil {
		t.Error(err)
	}
}

func TestImageFilesystemIsAMountOfItsOwn(t *testing.T) {
	for _, tt := range []struct {
		name, device string
		tmpfs        bool
	}{
		{"ext4 on a loop device", "/dev/loop", false},
		{"tmpfs", "tmpfs", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const size = 256 << 20
			c := lab.ContainerdFor(t, lab.ContainerdOptions{ImageFSBytes: size, ImageFSTmpfs: tt.tmpfs})
			if device := deviceOf(t, c.Root); !strings.HasPrefix(device, tt.device) {
				t.Errorf("%s is mounted from %q, want %s", c.Root, device, tt.device)
			}
			if c.Snapshotter != "overlayfs" {
				t.Errorf("Snapshotter = %q, want overlayfs", c.Snapshotter)
			}
			info, err := c.Images.ImageFsInfo(t.Context(), &cri.ImageFsInfoRequest{})
			if err != nil || len(info.ImageFilesystems) != 1 || !strings.HasPrefix(info.ImageFilesystems[0].FsId.Mountpoint, c.Root+"/") {
				t.Fatalf("ImageFsInfo() = %v, %v, want one filesystem below %s", info, err, c.Root)
			}
			total, free := space(t, c.Root)
			if total > size || total < size*8/10 {
				t.Errorf("the filesystem has %d bytes, want nearly %d", total, size)
			}

			shared := layer(t, 20<<20)
			pull(t, c, lab.ImageSpec{Names: []string{"docker.io/library/a:1"}, Layers: []lab.Layer{shared}})
			_, afterA := space(t, c.Root)
			if used := free - afterA; used < 40<<20 {
				t.Errorf("an image with a layer of 20 MiB took %d bytes, want 40 MiB or more (packed and unpacked)", used)
			}
			pull(t, c, lab.ImageSpec{Names: []string{"docker.io/library/b:1"}, Layers: []lab.Layer{shared}})
			if _, afterB := space(t, c.Root); afterA-afterB > 5<<20 {
				t.Errorf("a second image with the same layer took %d bytes, want next to none", afterA-afterB)
			}
		})
	}
}

func TestImagesPulledAndBuiltHere(t *testing.T) {
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	pulled := pull(t, c, lab.ImageSpec{Names: []string{"registry.example/team/app:1", "registry.example/team/app:latest"}})
	built, err := c.Import(t.Context(), lab.ImageSpec{Names: []string{"docker.io/local/built:1"}, Layers: []lab.Layer{layer(t, 1<<20)}})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := c.Images.ListImages(t.Context(), &cri.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]*cri.Image{}
	for _, img := range reply.Images {
		images[img.Id] = img
	}
	if img := images[pulled]; img == nil || len(img.RepoTags) != 2 || len(img.RepoDigests) != 1 || !strings.HasPrefix(img.RepoDigests[0], "registry.example/team/app@sha256:") {
		t.Errorf("the pulled image is %v, want two tags and a digest", img)
	}
	if img := images[built]; img == nil || len(img.RepoTags) != 1 || len(img.RepoDigests) != 0 {
		t.Errorf("the image built here is %v, want one tag and no digest", img)
	}
	if err := c.RemoveImage(t.Context(), built); err != nil {
		t.Error(err)
	}
}

func TestContainerdHangsDiesAndReturns(t *testing.T) {
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	pull(t, c, lab.ImageSpec{Names: []string{"docker.io/library/web:1"}})
	pod, err := c.RunPod(t.Context(), lab.PodSpec{Name: "web", Containers: []lab.ContainerSpec{{Name: "web", Image: "docker.io/library/web:1", Ready: "ready"}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Pause(); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Runtime.Version(short, &cri.VersionRequest{}); err == nil {
		t.Error("Version() of a paused containerd = nil error, want none before the deadline")
	}
	if err := c.Continue(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if c.PID() != 0 {
		t.Errorf("PID() = %d after Kill, want 0", c.PID())
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, err := c.Container(t.Context(), pod.Containers["web"])
	if err != nil || status.State != cri.ContainerState_CONTAINER_RUNNING {
		t.Errorf("Container() = %v, %v after kill and restart, want running", status, err)
	}
}

func TestNetworkReadiness(t *testing.T) {
	for _, tt := range []struct {
		name    string
		without bool
	}{{"ready with a CNI configuration", false}, {"not ready without", true}} {
		t.Run(tt.name, func(t *testing.T) {
			c := lab.ContainerdFor(t, lab.ContainerdOptions{NoNetwork: tt.without})
			reply, err := c.Runtime.Status(t.Context(), &cri.StatusRequest{})
			if err != nil {
				t.Fatal(err)
			}
			for _, condition := range reply.Status.Conditions {
				if condition.Type == cri.NetworkReady && condition.Status == tt.without {
					t.Errorf("NetworkReady = %v, want %v", condition.Status, !tt.without)
				}
			}
		})
	}
}

// space returns total and free bytes of a filesystem after a sync.
func space(t *testing.T, path string) (total, free int64) {
	t.Helper()
	var st unix.Statfs_t
	unix.Sync()
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Blocks) * st.Bsize, int64(st.Bavail) * st.Bsize
}
