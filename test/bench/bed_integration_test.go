//go:build integration

package bench_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/test/lab"
)

const (
	imageCount = 500
	podCount   = 20 // with one container each
	critical   = 2  // of the pods
	// knownSocket is a socket at which the agent looks for a containerd.
	knownSocket = "/run/containerd/containerd.sock"
)

// bed is a host with a containerd full of images, and pods.
type bed struct {
	b          *testing.B
	containerd *lab.Containerd
	proxy      *proxy
	pods       []*lab.Pod
}

// newBed prepares the host, which takes about a minute.
func newBed(b *testing.B) *bed {
	b.Helper()
	t := &bed{b: b, containerd: lab.ContainerdFor(b, lab.ContainerdOptions{})}
	check(b, os.MkdirAll(filepath.Dir(knownSocket), 0o755))
	p, err := startProxy(knownSocket, strings.TrimPrefix(t.containerd.Endpoint, "unix://"))
	check(b, err)
	t.proxy = p
	b.Cleanup(func() { check(b, p.listener.Close()) })
	fillImages(b, t.containerd)
	t.runPods(podCount, critical)
	return t
}

// fillImages makes a containerd pull images, until it has imageCount of them, including the image
// of sandboxes.
func fillImages(b *testing.B, c *lab.Containerd) {
	b.Helper()
	for i := range imageCount - 1 {
		_, err := c.Pull(b.Context(), lab.ImageSpec{Names: []string{imageName(i)}})
		check(b, err)
	}
}

func imageName(i int) string {
	return fmt.Sprintf("registry.example.com/platform/service-%d:v1.2.3", i)
}

// runPods runs pods that end at once on SIGTERM. The first ones are critical.
func (t *bed) runPods(count, critical int) {
	t.b.Helper()
	for i := range count {
		spec := lab.PodSpec{Name: fmt.Sprintf("web-%d", i), Containers: []lab.ContainerSpec{{Name: "main", Image: imageName(i), Ready: "ready"}}}
		if i < critical {
			spec.Annotations = map[string]string{"hostler.io/critical": "true"}
		}
		pod, err := t.containerd.RunPod(t.b.Context(), spec)
		check(t.b, err)
		t.pods = append(t.pods, pod)
	}
}

// removePods removes the pods of runPods.
func (t *bed) removePods() {
	t.b.Helper()
	for _, pod := range t.pods {
		check(t.b, t.containerd.RemovePod(t.b.Context(), pod))
	}
	t.pods = nil
}

// login starts a logind, and returns it with a function that stops it.
func (t *bed) login() (login *lab.Login, end func()) {
	t.b.Helper()
	login, err := lab.In(t.b).StartLogin(t.b.Context(), lab.LoginOptions{})
	check(t.b, err)
	return login, func() {
		t.b.Helper()
		check(t.b, login.Close(context.Background()))
	}
}

// until polls at short intervals, for events that take milliseconds.
func until(b *testing.B, what string, done func() bool) {
	b.Helper()
	for deadline := time.Now().Add(patience); !done(); time.Sleep(200 * time.Microsecond) {
		if time.Now().After(deadline) {
			b.Fatal(errors.New("waited in vain: " + what))
		}
	}
}
