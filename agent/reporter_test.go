package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/controlplane/controlplanetest"
	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/status"
)

// reporting runs a reporter against a control plane for the time of the test.
func reporting(t *testing.T, client controlplane.Client) *reporter {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	r := newReporter(&reporter{
		client: client, recorder: controlplane.NewRecorder(client, "web", nil, log),
		facts:   factsOf(t, runtimetest.NewFake(runtimetest.Options{})),
		options: func() status.Options { return status.Options{Name: "web"} },
		update:  10 * time.Second, report: 5 * time.Minute,
		mine: func() bool { return true }, named: func(types.UID) {},
		log: log, observe: func(error) {},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- r.run(ctx, func(error) {}) }()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return r
}

func TestANodeThatIsDeletedIsRegisteredAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := controlplanetest.NewFake(nil)
		reporting(t, client)
		time.Sleep(time.Minute)
		if err := client.Leave(t.Context(), "web"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5*time.Minute + time.Second) // the next write of a status finds out
		if _, err := client.Node(t.Context(), "web"); err != nil {
			t.Errorf("Node() = %v, want the node registered again", err)
		}
	})
}

func TestANodeThatIsNeverThereIsNotRegisteredInAHurry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := controlplanetest.NewFake(nil)
		client.Inject(controlplanetest.UpdateStatus, controlplanetest.Fault{Delay: time.Millisecond, Err: controlplane.ErrNotFound})
		r := reporting(t, client)
		time.Sleep(time.Minute)
		if n := client.Calls(controlplanetest.Register); n < 5 || n > 10 {
			t.Errorf("the node was registered %d times in a minute, want it at the usual pace of 10s", n)
		}
		if _, _, connected, err := r.current(); connected || !errors.Is(err, controlplane.ErrNotFound) {
			t.Errorf("current() = connected %v, %v, want the fault", connected, err)
		}
	})
}
