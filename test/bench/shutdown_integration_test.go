//go:build integration

package bench_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	apievents "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/services/events/v1"
	"github.com/containerd/typeurl/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/controlplane/embedded"
	"hostler.io/hostler/internal/statefile"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status"
)

const shutdownRuns = 7

// measureShutdown requests reboots of a host with running pods from logind.
func (t *bed) measureShutdown(into *table) {
	first := figure{name: "PrepareForShutdown to the first StopContainer", unit: "ms", target: 20}
	release := figure{name: "containerd says the last container is gone, to reboot.target started", unit: "ms", target: 20}
	cleanup := figure{name: "before that: its process ended, to containerd says so", unit: "ms"}
	both := figure{name: "both together", unit: "ms"}
	whole := figure{name: "PrepareForShutdown to reboot.target started", unit: "ms"}
	unsaid := figure{name: "reboots that began before the final status was on disk", unit: "of " + strconv.Itoa(shutdownRuns), samples: []float64{0}}
	for run := range shutdownRuns {
		if run > 0 {
			t.runPods(podCount, critical)
		}
		s := t.shutDown()
		t.removePods()
		first.samples = append(first.samples, milliseconds(s.firstStop.Sub(s.announced)))
		release.samples = append(release.samples, milliseconds(s.rebooted.Sub(s.lastAnswer)))
		cleanup.samples = append(cleanup.samples, milliseconds(s.lastAnswer.Sub(s.lastExit)))
		both.samples = append(both.samples, milliseconds(s.rebooted.Sub(s.lastExit)))
		whole.samples = append(whole.samples, milliseconds(s.rebooted.Sub(s.announced)))
		if !s.stored {
			unsaid.samples[0]++
		}
	}
	for _, f := range []figure{first, release, cleanup, both, whole, unsaid} {
		into.add(f)
	}
}

// times are the moments of one shutdown, by this machine's clock.
type times struct {
	announced  time.Time // the bus delivered PrepareForShutdown to a listener like the agent
	firstStop  time.Time // the agent sent the first StopContainer
	lastExit   time.Time // the last container's process was reaped
	lastAnswer time.Time // containerd answered the last StopContainer
	rebooted   time.Time // logind, without locks, started reboot.target
	stored     bool      // after a power failure at that moment, the end is on record
}

// shutDown reboots the host once. When logind continues, the agent is killed, like by a power
// failure, and its files are read.
func (t *bed) shutDown() (s times) {
	t.b.Helper()
	login, end := t.login()
	defer end()
	a := startAgent(t.b, true)
	defer a.end(syscall.SIGKILL)
	node := a.await("the guard is armed", func(s api.Status) bool {
		return s.Shutdown.State == shutdown.Armed && s.Node != nil && ready(s.Node).Reason == status.ReasonHostReady
	}).Node.Name
	exits := t.watchExits()
	announced, err := login.Announced(t.b.Context())
	check(t.b, err)

	asked := time.Now()
	check(t.b, login.Reboot(t.b.Context()))
	select {
	case s.announced = <-announced:
	case <-time.After(patience):
		t.b.Fatal("logind announces nothing")
	}
	until(t.b, "logind continues", func() bool { return len(login.Manager.StartedUnits()) > 0 })
	s.rebooted = login.Manager.StartedUnits()[0].Time
	a.end(syscall.SIGKILL)

	stops := 0
	for _, c := range t.proxy.since(asked) {
		if c.method != "StopContainer" {
			continue
		}
		if stops++; stops == 1 || c.began.Before(s.firstStop) {
			s.firstStop = c.began
		}
		if c.answered.After(s.lastAnswer) {
			s.lastAnswer = c.answered
		}
	}
	if stops != len(t.pods) {
		t.b.Fatalf("%d containers were requested to stop, want %d", stops, len(t.pods))
	}
	s.lastExit = exits(t)
	s.stored = stored(t.b, node, len(t.pods), s.rebooted)
	return s
}

// watchExits watches the exits of the pods' containers. The returned function returns when the last
// one was reaped.
func (t *bed) watchExits() func(*bed) time.Time {
	t.b.Helper()
	conn, err := grpc.NewClient(t.containerd.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t.b, err)
	ctx, cancel := context.WithCancel(t.b.Context())
	stream, err := events.NewEventsClient(conn).Subscribe(ctx, &events.SubscribeRequest{Filters: []string{`topic=="/tasks/exit",namespace=="k8s.io"`}})
	check(t.b, err)
	running := map[string]bool{}
	for _, pod := range t.pods {
		for _, id := range pod.Containers {
			running[id] = true
		}
	}
	var last time.Time
	var done sync.WaitGroup
	done.Go(func() {
		for len(running) > 0 {
			envelope, err := stream.Recv()
			if err != nil {
				return // the remaining watchers see it
			}
			var exit apievents.TaskExit
			if err := typeurl.UnmarshalTo(envelope.GetEvent(), &exit); err != nil || !running[exit.GetID()] {
				continue
			}
			delete(running, exit.GetID())
			if at := exit.GetExitedAt().AsTime(); at.After(last) {
				last = at
			}
		}
	})
	return func(t *bed) time.Time {
		t.b.Helper()
		timeout := time.AfterFunc(patience, cancel)
		done.Wait()
		timeout.Stop()
		cancel()
		check(t.b, conn.Close())
		if len(running) > 0 {
			t.b.Fatalf("%d containers were not seen to exit", len(running))
		}
		return last
	}
}

// stored reports whether the files of an agent are complete: the Node is not ready because of the
// shutdown, and the record of it is complete.
func stored(b *testing.B, name string, pods int, rebooted time.Time) bool {
	b.Helper()
	quiet := slog.New(slog.DiscardHandler)
	kept, err := statefile.Open(stateFolder(b), quiet)
	check(b, err)
	client := embedded.New(embedded.Options{Folder: kept, Endpoint: stateFolder(b), Log: quiet})
	node, err := client.Node(b.Context(), name)
	check(b, err)
	check(b, kept.Close())

	var last struct{ Record *journal.Record }
	text, err := os.ReadFile(filepath.Join(stateFolder(b), "shutdown.json"))
	check(b, err)
	check(b, json.Unmarshal(text, &last))
	record := last.Record
	return ready(node).Reason == status.ReasonDraining && record != nil && record.Graceful && len(record.Pods) == pods &&
		!record.FinishedAt.IsZero() && record.FinishedAt.Before(rebooted)
}

// ready returns the Node's condition Ready.
func ready(node *corev1.Node) corev1.NodeCondition {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c
		}
	}
	return corev1.NodeCondition{}
}
