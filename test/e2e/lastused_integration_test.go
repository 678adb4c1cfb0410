//go:build integration

package e2e_test

import (
	"slices"
	"testing"
	"time"

	imageapi "github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/lab"
)

// imageNamed returns the agent's facts of the image of a name; the zero value if there is none.
func imageNamed(a *agent, name string) api.Image {
	a.t.Helper()
	for _, img := range answers[api.ImageList](a, "images").Images {
		if slices.Contains(img.Names, name) {
			return img
		}
	}
	return api.Image{}
}

// A container that ended before anybody listed it was still a use. That stays recorded across a
// kill of the agent, a reboot, and a tag that moves.
func TestLastUseOfAnImageSurvivesWhatMayCome(t *testing.T) {
	t.Parallel()
	c := lab.ContainerdFor(t, lab.ContainerdOptions{ImageFSBytes: 256 << 20})
	const old, renamed, other = "docker.io/library/horse:1", "docker.io/library/horse:2", "docker.io/library/cow:1"
	for _, name := range []string{other, old} {
		_, err := c.Pull(t.Context(), lab.ImageSpec{Names: []string{name}})
		check(t, err)
	}
	pulled := time.Now()
	settings := "runtimes: [{type: cri, endpoint: " + c.Endpoint + "}]\n"

	// It was pulled before the agent started; containerd knows when.
	a := startAgent(t, settings)
	if img := imageNamed(a, old); img.FirstSeen.After(pulled) || img.FirstSeen.IsZero() || !img.LastUsed.IsZero() {
		t.Errorf("image = %+v, want it first seen before %s and never used", img, pulled)
	}

	pod, err := c.RunPod(t.Context(), lab.PodSpec{Name: "short"})
	check(t, err)
	attempts := uint32(0)
	use := func(image string) {
		t.Helper()
		id, err := c.RunContainer(t.Context(), pod, lab.ContainerSpec{Name: "main", Image: image, Command: lab.ExitWith(0), Attempt: attempts})
		check(t, err)
		attempts++
		_, err = c.AwaitExit(t.Context(), id)
		check(t, err)
		_, err = c.Runtime.RemoveContainer(t.Context(), &cri.RemoveContainerRequest{ContainerId: id})
		check(t, err)
	}
	eventually(t, "the agent follows containerd's events", func() bool { use(other); return !imageNamed(a, other).LastUsed.IsZero() })
	started := time.Now()
	use(old)
	var used time.Time
	eventually(t, "the use is known", func() bool {
		used = imageNamed(a, old).LastUsed
		return !used.IsZero()
	})
	if known := time.Now(); used.Before(started) || used.After(known) { // an event may come late
		t.Errorf("image was last used at %s, want between %s and %s", used, started, known)
	}
	a.stop()

	conn, err := grpc.NewClient(c.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	defer conn.Close()
	r := &imageRace{t: t, c: c, store: imageapi.NewImagesClient(conn)}
	check(t, r.tag(t.Context(), old, renamed))
	eventually(t, "CRI knows the new tag", func() bool { return images(t, c)[renamed] })
	check(t, r.untag(t.Context(), old))
	eventually(t, "CRI has forgotten the old tag", func() bool { return !images(t, c)[old] })
	check(t, c.GoDown(t.Context()))
	check(t, c.Start())
	check(t, c.Ready(t.Context()))

	a.start()
	eventually(t, "the image is listed by its new name", func() bool { return imageNamed(a, renamed).ID != "" })
	if img := imageNamed(a, renamed); !img.LastUsed.Equal(used) {
		t.Errorf("image after a reboot = %+v, want it last used at %s as before", img, used)
	}
	a.kill()
	a.start()
	eventually(t, "the image is listed again", func() bool { return imageNamed(a, renamed).ID != "" })
	if img := imageNamed(a, renamed); !img.LastUsed.Equal(used) {
		t.Errorf("image after a kill of the agent = %+v, want it last used at %s as before", img, used)
	}
	a.stop()
}
