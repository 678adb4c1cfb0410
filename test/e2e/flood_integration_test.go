//go:build integration

package e2e_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
)

const (
	// flooded is the number of connections that one user holds to each listener.
	flooded = 20_000
	// heldByOne is the number that one process holds: its descriptors are limited, too.
	heldByOne = 10_000
	// floodedMemory is the maximum memory of the agent meanwhile. An idle agent has about 40 MB.
	floodedMemory = 128 << 20
)

// TestAShutdownIsAsGoodWhileListenersAreFlooded lets an ordinary user hold connections to all
// listeners of an agent, and open new ones, during the drain of a shutdown.
func TestAShutdownIsAsGoodWhileListenersAreFlooded(t *testing.T) {
	for _, c := range []struct {
		name, metrics string
		dropIn        []string
	}{
		{"metrics on loopback", "127.0.0.1:9757", nil},
		{"metrics over the network", "0.0.0.0:9757", nil},
		{"few files", "127.0.0.1:9757", []string{"LimitNOFILE=128"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			const gid = 4711
			login := logind(t)
			addGroup(t, "hostler", gid)
			h := fullWorkload(t)
			a := newAgent(t, shortPhases+"metrics: {listen: \""+c.metrics+"\"}\n")
			a.dropIn = c.dropIn
			a.overNetwork("127.0.0.1:9758")
			a.start()
			a.awaitGuard(shutdown.Armed)
			a.await("the API and metrics are served", func(s api.Status) bool {
				return loopOf(t, s, "api").LastSuccess != nil && loopOf(t, s, "metrics").LastSuccess != nil
			})
			for _, address := range []string{a.socket, "127.0.0.1:9757", "127.0.0.1:9758"} {
				flood(t, address, 65534, gid)
			}
			mentions(t, "hostler status for root", a.screen(), "Ready")
			if reported := len(a.logLines("accepting fewer connections")) > 0; reported != (c.dropIn != nil) {
				t.Errorf("the log says that fewer connections are accepted: %t, want %t", reported, c.dropIn != nil)
			}

			began := time.Now()
			check(t, login.Reboot(t.Context()))
			down, err := login.Manager.AwaitStart(within(t), "reboot.target", began)
			check(t, err)
			if last := h.emptied(t, began); down.Time.Before(last) {
				t.Errorf("the host went down %v before the last container ended", last.Sub(down.Time))
			}
			s := a.awaitGuard(shutdown.Released)
			wantReport(t, s.Shutdown.Current, journal.TriggerShutdown)
			for _, c := range nodeOf(s).Status.Conditions {
				if c.Status == corev1.ConditionUnknown {
					t.Errorf("condition %+v, want it known", c)
				}
			}

			peak := peakMemory(t, a.process.PID)
			t.Logf("seen: at most %d MB in memory, %d descriptors", peak>>20, descriptors(t, a.process.PID))
			if peak > floodedMemory {
				t.Errorf("the agent had %d MB in memory, want at most %d", peak>>20, floodedMemory>>20)
			}
			if n := descriptors(t, a.process.PID); n > 1024 {
				t.Errorf("the agent has %d descriptors open, want few beside those of its own work", n)
			}
			a.stop()
		})
	}
}

// flood lets processes of a user and a group hold that many connections to an address, and replace
// them one by one, until the test ends.
func flood(t testing.TB, address string, uid, gid uint32) {
	t.Helper()
	for range flooded / heldByOne {
		cmd := exec.Command(spawner, "hold", address, strconv.Itoa(heldByOne))
		runAs(cmd, uid, gid)
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		check(t, err)
		out, err := cmd.StdoutPipe()
		check(t, err)
		check(t, cmd.Start())
		t.Cleanup(func() {
			check(t, in.Close()) // this ends the process
			check(t, cmd.Wait())
		})
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		text, err := bufio.NewReader(out).ReadString('\n')
		if late.Stop(); err != nil {
			t.Fatalf("%d connections to %s are not held: %q, %v", heldByOne, address, text, err)
		}
	}
}

// peakMemory returns the peak memory of a process, in bytes.
func peakMemory(t testing.TB, pid int) int64 {
	t.Helper()
	kilobytes, err := strconv.ParseInt(strings.TrimSuffix(statusOf(t, pid)["VmHWM"], " kB"), 10, 64)
	check(t, err)
	return kilobytes << 10
}

// descriptors returns how many descriptors a process has open.
func descriptors(t testing.TB, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	check(t, err)
	return len(entries)
}
