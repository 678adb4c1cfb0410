//go:build integration

package bench_test

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	phaseRuns = 3
	phasePods = 200
)

// measurePhase compares a phase of many pods that end at once on SIGTERM with a client that stops
// all of them at once. The two take turns, each on its own pods and through the same proxy.
func (t *bed) measurePhase(into *table) {
	bare := figure{name: "200 pods: a bare loop of StopContainer, all at once", unit: "s"}
	phase := figure{name: "200 pods: one phase of a shutdown", unit: "s"}
	ratio := figure{name: "200 pods: the phase, of the bare loop of the same run", unit: "times", target: 1.2}
	for range phaseRuns {
		t.removePods()
		t.runPods(phasePods, 0)
		loop := t.stopAtOnce()
		t.removePods()
		t.runPods(phasePods, 0)
		s := t.shutDown()
		bare.samples = append(bare.samples, loop.Seconds())
		phase.samples = append(phase.samples, s.lastAnswer.Sub(s.firstStop).Seconds())
		ratio.samples = append(ratio.samples, s.lastAnswer.Sub(s.firstStop).Seconds()/loop.Seconds())
	}
	t.removePods()
	for _, f := range []figure{bare, phase, ratio} {
		into.add(f)
	}
}

// stopAtOnce stops every container with its own call, all at once, and returns how long that took.
func (t *bed) stopAtOnce() time.Duration {
	t.b.Helper()
	conn, err := grpc.NewClient("unix://"+knownSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t.b, err)
	defer conn.Close()
	client := cri.NewRuntimeServiceClient(conn)
	_, err = client.Version(t.b.Context(), &cri.VersionRequest{}) // connect first, because the agent is connected, too
	check(t.b, err)

	var calls sync.WaitGroup
	failed := make(chan error, phasePods)
	began := time.Now()
	for _, pod := range t.pods {
		for _, id := range pod.Containers {
			calls.Go(func() {
				if _, err := client.StopContainer(t.b.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 20}); err != nil {
					failed <- err
				}
			})
		}
	}
	calls.Wait()
	took := time.Since(began)
	select {
	case err := <-failed:
		t.b.Fatal(err)
	default:
	}
	return took
}
