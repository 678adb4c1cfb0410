//go:build integration

package lab_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"hostler.io/hostler/test/lab"
)

func TestDockerRunsContainers(t *testing.T) {
	d := lab.DockerFor(t, lab.DockerOptions{})
	ctx := within(t, 5*time.Minute)
	local, err := d.Load(ctx, lab.ImageSpec{Names: []string{"localhost/lab/a:1", "localhost/lab/a:2"}})
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := d.Pull(ctx, lab.ImageSpec{Names: []string{d.Reference("lab/b:1")}})
	if err != nil {
		t.Fatal(err)
	}
	for id, wanted := range map[string]struct{ tags, digests int }{local: {2, 0}, pulled: {1, 1}} {
		image, err := d.API.ImageInspect(ctx, id)
		if err != nil || len(image.RepoTags) != wanted.tags || len(image.RepoDigests) != wanted.digests {
			t.Errorf("image %s = %v, %v, %v, want %+v", id, image.RepoTags, image.RepoDigests, err, wanted)
		}
	}
	id, err := d.Run(ctx, lab.DockerContainer{
		Name: "web", Project: "shop", DependsOn: []string{"db"}, Image: "localhost/lab/a:1",
		Command: lab.ServeFor(0), Ready: "ready", StopTimeout: 70 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.API.ContainerList(ctx, client.ContainerListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].State != container.StateRunning || list.Items[0].Labels["com.docker.compose.depends_on"] != "db:service_started:false" {
		t.Errorf("ContainerList() = %+v, %v, want web running, which depends on db", list.Items, err)
	}
	if _, err := d.API.ContainerStop(ctx, id, client.ContainerStopOptions{}); err != nil {
		t.Fatal(err)
	}
	if code, err := d.AwaitEnd(ctx, id); err != nil || code != 0 {
		t.Errorf("AwaitEnd() = %d, %v, want 0: it heeds SIGTERM", code, err)
	}
}

// Without dockerd, containers continue to run if live restore is configured, and end otherwise.
func TestDockerComesBack(t *testing.T) {
	for name, live := range map[string]bool{"live-restore": true, "as installed": false} {
		t.Run(name, func(t *testing.T) {
			d := lab.DockerFor(t, lab.DockerOptions{LiveRestore: live})
			ctx := within(t, 5*time.Minute)
			if _, err := d.Load(ctx, lab.ImageSpec{Names: []string{"localhost/lab/a:1"}}); err != nil {
				t.Fatal(err)
			}
			id, err := d.Run(ctx, lab.DockerContainer{Name: "web", Image: "localhost/lab/a:1", Ready: "ready"})
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Kill(); err != nil {
				t.Fatal(err)
			}
			if _, err := d.API.Ping(ctx, client.PingOptions{}); err == nil {
				t.Errorf("dockerd answers after it was killed")
			}
			if err := d.Start(); err != nil {
				t.Fatal(err)
			}
			if err := d.Ready(ctx); err != nil {
				t.Fatal(err)
			}
			web, err := d.API.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
			if err != nil || web.Container.State.Running != live {
				t.Errorf("container after the crash: running %v, %v, want %v", web.Container.State, err, live)
			}
		})
	}
}

func TestDockerLeavesNothing(t *testing.T) {
	d := lab.DockerFor(t, lab.DockerOptions{ImageFSBytes: 256 << 20})
	ctx := within(t, 5*time.Minute)
	if deviceOf(t, d.Root) == "" || d.Driver != "overlay2" {
		t.Errorf("Root is on %q by %s, want a device of its own with overlay2", deviceOf(t, d.Root), d.Driver)
	}
	if _, err := d.Load(ctx, lab.ImageSpec{Names: []string{"localhost/lab/a:1"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Run(ctx, lab.DockerContainer{Image: "localhost/lab/a:1", Command: lab.IgnoreTerm(), Ready: "ready", Restart: "always"}); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(ctx); err != nil {
		t.Fatalf("Close() = %v", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), d.Root) {
		t.Errorf("mounts are left below %s: %v", d.Root, err)
	}
	if _, err := os.Stat(d.Root); !os.IsNotExist(err) {
		t.Errorf("Stat(%s) = %v, want it gone", d.Root, err)
	}
	if err := d.Close(ctx); err != nil {
		t.Errorf("second Close() = %v", err)
	}
}
