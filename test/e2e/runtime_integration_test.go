//go:build integration

package e2e_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/status"
	"hostler.io/hostler/test/lab"
)

// images lists the names of a containerd's images, over CRI.
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
			// Every image is due at any time. The agent must not remove one without current facts.
			a := newAgent(t, quick+"runtimes: [{type: cri, endpoint: "+c.Endpoint+"}]\nimageGC: {minimumAge: 0s, interval: 1s}\n")
			a.notify, a.env = serviceManager(t), []string{"WATCHDOG_USEC=2000000"}
			a.start()
			a.awaitReady(corev1.ConditionTrue)

			trouble.begin(t, c)
			// Before the outage is noticed, the host must not look empty.
			early := a.hostler("status")
			outages := 1
			for ; !strings.Contains(onOneLine(early.out), "images incomplete") && !a.status().Runtimes[0].Ready && outages < 10; outages++ { // it was noticed too soon
				trouble.end(t, c)
				a.await("the runtime is ready again", func(s api.Status) bool { return s.Runtimes[0].Ready })
				trouble.begin(t, c)
				early = a.hostler("status")
			}
			if early.code != 0 || early.took > patience {
				t.Errorf("hostler status at once = %d after %v, want 0 without waiting for the runtime", early.code, early.took)
			}
			mentions(t, "hostler status at once", onOneLine(early.out), "runtime containerd: ", "images incomplete", "containers incomplete")
			if r := a.hostler("ps"); r.code != 1 || !strings.Contains(r.err, c.Endpoint[len("unix://"):]) {
				t.Errorf("hostler ps = %d, %q, want 1 and the runtime named", r.code, r.err)
			}
			plan := a.hostler("shutdown", "plan") // the host may have any number of pods
			if plan.code != 1 {
				t.Errorf("hostler shutdown plan = %d, %q, want 1", plan.code, plan.err)
			}
			mentions(t, "hostler shutdown plan", onOneLine(plan.out), "incomplete: ", "regular: ")
			// From here to the end of the outage, no removal may succeed.
			if r := a.hostler("gc", "run", "--images", "--all-unused"); r.code != 1 {
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
			if r.code != 0 || r.took > patience {
				t.Errorf("hostler status = %d after %v, want 0 without waiting for the runtime", r.code, r.took)
			}
			mentions(t, "hostler status", r.out, "NOT READY", "runtime containerd")
			if n := strings.Count(r.out, "runtime containerd"); n != 1 {
				t.Errorf("hostler status says %d times what ails the runtime, want once:\n%s", n, r.out)
			}
			s = a.awaitLease(a.awaitLease(a.status()))
			if l := loopOf(t, s, "lease"); !l.Healthy {
				t.Errorf("loop lease = %+v, want it healthy", l)
			}
			_, err = a.notify.Await(within(t), "WATCHDOG", "1", time.Now())
			check(t, err) // a runtime that hangs is no reason to restart the agent
			a.await("image-gc says why it cannot work", func(s api.Status) bool { return !loopOf(t, s, "image-gc").Healthy })
			if removed := a.status().ImageGC.LastRun; removed == nil || removed.Removed != 0 {
				t.Errorf("last run = %+v, want one that removed nothing", removed)
			}

			trouble.end(t, c)
			a.awaitReady(corev1.ConditionTrue)
			check(t, c.Ready(t.Context()))
			if !images(t, c)["docker.io/library/unused:1"] {
				t.Error("an image is gone, want none removed by an agent that could not ask what is in use")
			}
			a.await("image-gc is well again", func(s api.Status) bool { return loopOf(t, s, "image-gc").Healthy })
			if lines := a.logLines("level=WARN", "reason=RuntimeDown"); len(lines) < 1 || len(lines) > outages {
				t.Errorf("the log says %d times that the runtime is down, want once for each of %d outages: %q", len(lines), outages, lines)
			}
			a.stop()
		})
	}
}

func TestARuntimeThatHangsAtTheStartIsTakenUpWhenItAnswers(t *testing.T) {
	t.Parallel()
	c := lab.ContainerdFor(t, lab.ContainerdOptions{})
	check(t, c.Pause())
	a := startAgent(t, quick+"runtimes: [{type: cri, endpoint: "+c.Endpoint+"}]\n")
	a.awaitLease(a.awaitLease(a.status()))
	a.awaitReady(corev1.ConditionFalse)
	check(t, c.Continue())
	a.awaitReady(corev1.ConditionTrue)
	a.stop()
}

func TestASocketThatAnswersNonsenseIsNamed(t *testing.T) {
	t.Parallel()
	a := newAgent(t, "")
	socket := filepath.Join(a.folder, "nonsense.sock")
	l, err := net.Listen("unix", socket)
	check(t, err)
	server := &http.Server{Handler: http.NotFoundHandler(), ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(l) }() // ends with Close
	t.Cleanup(func() { check(t, server.Close()) })
	a.configure(quick + "runtimes: [{type: cri, endpoint: " + socket + "}]")
	a.start()
	s := a.awaitReady(corev1.ConditionFalse)
	mentions(t, "message of Ready", condition(s, corev1.NodeReady).Message, socket, "is not ready: ")
	a.awaitLease(s)
	a.stop()
}

func TestSocketsWithoutARuntimeBehindThemAreNamedOnce(t *testing.T) {
	check(t, os.MkdirAll(filepath.Dir(knownSocket), 0o755))
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: knownSocket, Net: "unix"})
	check(t, err)
	l.SetUnlinkOnClose(false) // as after a kill of containerd
	check(t, l.Close())
	t.Cleanup(func() { check(t, os.Remove(knownSocket)) })
	a := startAgent(t, quick+"runtimes: auto")
	s := a.await("the runtimes were scanned", func(s api.Status) bool { return condition(s, corev1.NodeReady).Reason == status.ReasonNoRuntime })
	mentions(t, "message of Ready", condition(s, corev1.NodeReady).Message, knownSocket, "do not answer")
	if lines := a.logLines("level=WARN", "without a usable runtime", knownSocket); len(lines) != 1 {
		t.Errorf("warnings in the log = %q, want one", lines)
	}
	a.stop()
}
