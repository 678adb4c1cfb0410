//go:build integration

package e2e_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
)

// quick renews and checks every second.
const quick = "lease: {renewInterval: 1s}\nstatus: {updateInterval: 1s}\n"

// awaitLease waits until the Lease is renewed after a status.
func (a *agent) awaitLease(before api.Status) api.Status {
	a.t.Helper()
	return a.await("the lease is renewed", func(s api.Status) bool {
		return s.Lease != nil && (before.Lease == nil || s.Lease.Spec.RenewTime.After(before.Lease.Spec.RenewTime.Time))
	})
}

// awaitNode waits for the Node to be registered.
func (a *agent) awaitNode() api.Status {
	a.t.Helper()
	return a.await("the node is registered", func(s api.Status) bool { return s.Node != nil && nodeOf(s).UID != "" && s.Lease != nil })
}

func TestNodeAndLeaseOutliveTheAgent(t *testing.T) {
	t.Parallel()
	a := startAgent(t, quick)
	first := a.awaitNode()
	for _, end := range []struct {
		how string
		do  func()
	}{
		{"SIGTERM", a.stop},
		{"SIGKILL", func() {
			eventually(t, "node and lease are in the state files", func() bool {
				nodes, err := os.ReadFile(filepath.Join(a.state, "nodes.state"))
				check(t, err)
				leases, err := os.ReadFile(filepath.Join(a.state, "leases.state"))
				check(t, err)
				return bytes.Contains(nodes, []byte(first.Node.UID)) && bytes.Contains(leases, []byte(first.Lease.UID))
			})
			a.kill()
		}},
	} {
		before := a.awaitLease(a.status())
		end.do()
		a.start()
		after := a.awaitNode()
		if after.Node.UID != first.Node.UID || after.Lease.UID != first.Lease.UID {
			t.Errorf("after %s node and lease have UIDs %s and %s, want %s and %s", end.how, after.Node.UID, after.Lease.UID, first.Node.UID, first.Lease.UID)
		}
		if after.Lease.Spec.RenewTime.Before(before.Lease.Spec.RenewTime) {
			t.Errorf("after %s the renewTime went back from %v to %v", end.how, before.Lease.Spec.RenewTime, after.Lease.Spec.RenewTime)
		}
		if after.State.Message != "" {
			t.Errorf("after %s the state says %q, want nothing to say", end.how, after.State.Message)
		}
	}
	a.stop()
}

func TestADamagedStateFileIsSetAsideAndTheAgentStartsAfresh(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(data []byte) []byte{
		"zeroed":    func(data []byte) []byte { return make([]byte, len(data)) },
		"empty":     func([]byte) []byte { return nil },
		"truncated": func(data []byte) []byte { return data[:len(data)/2] },
		"cut short": func(data []byte) []byte { return data[:len(data)-1] },
		"no state":  func([]byte) []byte { return []byte(strings.Repeat("this was a state file once\n", 1000)) },
		"torn": func(data []byte) []byte {
			for i := len(data) / 2; i < len(data); i++ {
				data[i] = 0xa5
			}
			return data
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAgent(t, quick)
			before := a.awaitNode()
			a.stop()
			file := filepath.Join(a.state, "nodes.state")
			data, err := os.ReadFile(file)
			check(t, err)
			check(t, os.WriteFile(file, damage(data), 0o600))

			a.start()
			s := a.awaitNode()
			if nodeOf(s).UID == before.Node.UID {
				t.Errorf("the node has UID %s again, want a new one: its file was lost", nodeOf(s).UID)
			}
			aside, err := filepath.Glob(file + ".*")
			if err != nil || len(aside) != 1 {
				t.Fatalf("files set aside = %v, %v, want one", aside, err)
			}
			mentions(t, "state in hostler status", s.State.Message, "set aside", aside[0])
			mentions(t, "hostler status", a.screen(), "set aside")
			if lines := a.logLines("level=WARN", "moved unusable state file aside", aside[0]); len(lines) != 1 {
				t.Errorf("warnings in the log = %q, want one", lines)
			}
			a.awaitLease(s)

			a.stop()
			a.start()
			if again := a.awaitNode(); again.Node.UID != nodeOf(s).UID {
				t.Errorf("after a restart the node has UID %s, want %s", again.Node.UID, nodeOf(s).UID)
			}
			a.stop()
		})
	}
}

// A host that a person has taken out of service must not return by itself.
func TestAPersonsDecisionOutlivesTheStateFiles(t *testing.T) {
	t.Parallel()
	a := startAgent(t, quick)
	first := a.awaitNode()
	lose := func(end func()) {
		t.Helper()
		end()
		files, err := filepath.Glob(filepath.Join(a.state, "*.state"))
		check(t, err)
		for _, file := range files {
			info, err := os.Stat(file)
			check(t, err)
			check(t, os.WriteFile(file, make([]byte, info.Size()), 0o600))
		}
		a.start()
	}
	a.prints("cordon")
	text := a.status().Cordon
	lose(a.kill) // the request was on disk before it was answered
	s := a.awaitNode()
	if nodeOf(s).UID == first.Node.UID || !cordoned(t, s) || s.Cordon == nil || text == nil || *s.Cordon != *text {
		t.Errorf("the new Node = %+v, cordon %+v, want another one that is cordoned as %+v says", s.Node.ObjectMeta, s.Cordon, text)
	}
	a.prints("leave")
	lose(a.kill)
	s = a.await("the Node stays away", func(s api.Status) bool { return s.ControlPlane.Paused != "" })
	mentions(t, "why nothing is written", s.ControlPlane.Paused, text.By+" deregistered the Node", "hostler leave --undo")
	a.prints("leave", "--undo")
	lose(a.stop)
	if s := a.awaitNode(); !cordoned(t, s) {
		t.Error("the Node that has returned is not cordoned any more")
	}
	a.prints("uncordon")
	lose(a.kill)
	if s := a.awaitNode(); cordoned(t, s) {
		t.Error("the Node is cordoned again, which somebody has uncordoned since")
	}
	a.stop()
}

// cramp mounts a small filesystem as the state folder, and fills it.
func cramp(t *testing.T, a *agent) (filler string) {
	t.Helper()
	check(t, os.MkdirAll(a.state, 0o700))
	check(t, unix.Mount("tmpfs", a.state, "tmpfs", 0, "size=512k,mode=700"))
	t.Cleanup(func() { check(t, unix.Unmount(a.state, unix.MNT_DETACH)) })
	filler = filepath.Join(a.state, "filler")
	f, err := os.Create(filler)
	check(t, err)
	defer f.Close()
	for block := make([]byte, 4096); err == nil; {
		_, err = f.Write(block)
	}
	return filler
}

func TestWithAFullDiskUnderItsStateTheAgentDoesItsWork(t *testing.T) {
	t.Parallel()
	a := newAgent(t, quick)
	filler := cramp(t, a)
	a.start()
	s := a.awaitNode()
	s = a.await("the state cannot be written", func(s api.Status) bool { return s.State.Message != "" })
	mentions(t, "state in hostler status", s.State.Message, "not persisted", "no space left on device")
	mentions(t, "hostler status", a.screen(), "not persisted")
	a.awaitReady(corev1.ConditionTrue)
	s = a.awaitLease(a.awaitLease(s))
	if l := loopOf(t, s, "lease"); !l.Healthy {
		t.Errorf("loop lease = %+v, want it healthy", l)
	}
	a.prints("gc", "run")
	if lines := a.logLines("level=WARN", "cannot persist state"); len(lines) != 1 {
		t.Errorf("warnings in the log = %q, want one", lines)
	}

	check(t, os.Remove(filler))
	a.await("the state persisted again", func(s api.Status) bool { return s.State.Message == "" })
	a.stop()
	a.start()
	if again := a.awaitNode(); again.Node.UID != nodeOf(s).UID {
		t.Errorf("after a restart the node has UID %s, want %s", again.Node.UID, nodeOf(s).UID)
	}
	a.stop()
}

func TestASecondAgentRefuses(t *testing.T) {
	t.Parallel()
	a := startAgent(t, quick)
	first := a.awaitNode()

	sameState := newAgent(t, "")
	sameState.state = a.state
	sameState.configure("")
	sameState.launch()
	if code := sameState.exit(); code != 1 {
		t.Errorf("exit code of an agent with the same state = %d, want 1", code)
	}
	mentions(t, "its words", sameState.logged(), a.state, "in use by another hostler agent", "systemctl status hostler")

	sameSocket := newAgent(t, "")
	sameSocket.socket = a.socket
	sameSocket.configure("")
	sameSocket.launch()
	if code := sameSocket.exit(); code != 1 {
		t.Errorf("exit code of an agent with the same socket = %d, want 1", code)
	}
	mentions(t, "its words", sameSocket.logged(), "another process serves "+a.socket, "one is enough for a host")

	if s := a.awaitLease(first); nodeOf(s).UID != first.Node.UID {
		t.Errorf("the first agent's node has UID %s, want %s as before", nodeOf(s).UID, first.Node.UID)
	}
	// The socket of a killed agent does not prevent a start.
	a.kill()
	if _, err := os.Stat(a.socket); err != nil {
		t.Fatalf("Stat = %v, want the socket of the dead agent", err)
	}
	if r := a.hostler("status"); r.code != 3 {
		t.Errorf("hostler status of a dead agent = %d, want 3", r.code)
	}
	a.start()
	a.stop()
}
