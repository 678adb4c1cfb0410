//go:build integration

package e2e_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/lab"
)

// images lists the names of the images that a containerd has, over CRI.
func images(t testing.TB, c *lab.Containerd) map[string]bool {
	t.Helper()
	reply, err := c.Images.ListImages(t.Context(), &cri.ListImagesRequest{})
	check(t, err)
	names := map[string]bool{}
	for _, img := range reply.Images {
		for _, name := range img.RepoTags {
			names[name] = true
		}
	}
	return names
}

func TestARuntimeThatIsGoneOrHangsIsNamedAndNothingElseSuffers(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]struct {
		begin func(*testing.T, *lab.Containerd)
		end   func(*testing.T, *lab.Containerd)
	}{
		"killed": {
			func(t *testing.T, c *lab.Containerd) { check(t, c.Kill()) },
			func(t *testing.T, c *lab.Containerd) { check(t, c.Start()) },
		},
		"hung": {
			func(t *testing.T, c *lab.Containerd) { check(t, c.Pause()) },
			func(t *testing.T, c *lab.Containerd) { check(t, c.Continue()) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := lab.ContainerdFor(t, lab.ContainerdOptions{})
			_, err := c.Pull(t.Context(), lab.ImageSpec{Names: []string{"docker.io/library/unused:1"}})
			check(t, err)
			// Every image is due at any time; the agent may take none of them blindly.
			a := startAgent(t, quick+"runtimes: [{type: cri, endpoint: "+c.Endpoint+"}]\nimageGC: {minimumAge: 0s, interval: 1s}\n")
			a.awaitReady(corev1.ConditionTrue)

			trouble.begin(t, c)
			// From here to the end of the trouble nobody may get a removal through.
			if r := a.hostler("gc", "run", "--all-unused"); r.code != 1 {
				t.Errorf("gc run = %d, %q, %q, want 1", r.code, r.out, r.err)
			}
			s := a.awaitReady(corev1.ConditionFalse)
			ready := condition(s, corev1.NodeReady)
			if ready.Reason != status.ReasonRuntimeDown {
				t.Errorf("reason of Ready = %s, want %s", ready.Reason, status.ReasonRuntimeDown)
			}
			mentions(t, "message of Ready", ready.Message, "runtime containerd", c.Endpoint, "is not ready", "since ")
			if len(s.Runtimes) != 1 || s.Runtimes[0].Ready || s.Runtimes[0].Version == "" {
				t.Errorf("Runtimes = %+v, want the one that is down, with the version last seen", s.Runtimes)
			}
			r := a.hostler("status")
			if r.code != 0 || r.took > 15*time.Second {
				t.Errorf("hostler status = %d after %v, want 0 within a few seconds", r.code, r.took)
			}
			mentions(t, "hostler status", r.out, "NOT READY", "runtime containerd")
			s = a.awaitLease(a.awaitLease(a.status()))
			if l := loop(t, s, "lease"); !l.Healthy {
				t.Errorf("loop lease = %+v, want it healthy", l)
			}
			a.await("image-gc says why it cannot work", func(s api.Status) bool { return !loop(t, s, "image-gc").Healthy })
			if removed := a.status().ImageGC.LastRun; removed == nil || removed.Removed != 0 {
				t.Errorf("last run = %+v, want one that removed nothing", removed)
			}

			trouble.end(t, c)
			a.awaitReady(corev1.ConditionTrue)
			check(t, c.Ready(t.Context()))
			if !images(t, c)["docker.io/library/unused:1"] {
				t.Error("an image is gone, want none removed by an agent that could not ask what is in use")
			}
			a.await("image-gc is well again", func(s api.Status) bool { return loop(t, s, "image-gc").Healthy })
			if lines := a.logLines("level=WARN", "reason=RuntimeDown"); len(lines) != 1 {
				t.Errorf("the log says %d times that the runtime is down, want once: %q", len(lines), lines)
			}
			a.stop()
		})
	}
}
