//go:build integration

package machine_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/machine"
)

func TestMain(m *testing.M) {
	// For people who watch the tests.
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if err := kube.Prepare(context.Background(), log, kube.Etcd, kube.APIServer, kube.Kubectl, kube.ControllerManager); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	machine.Main(m, "hostler.io/hostler/docs/examples/plugin-https", "hostler.io/hostler/test/httpstore/serve")
}

// TestAReboot is the basic scenario.
func TestAReboot(t *testing.T) {
	onBothDebians(t, func(t *testing.T, o machine.Options) {
		o.Config = workloadConfig()
		m := machine.Boot(t, o)
		m.Deploy(machine.Pod{Name: "web"}, machine.Pod{Name: "db", Critical: true})
		before := m.BootID()

		down := m.GoesDown("systemctl reboot")

		if down.Off || !down.NewKernel {
			t.Errorf("GoesDown() = %+v, want a new boot", down)
		}
		work := m.Work().Boot(before)
		if !work.TermBefore("web", "db") || !work.Ended("web") || !work.Ended("db") {
			t.Errorf("Work() = want web, then db to get SIGTERM, and both to end in time:\n%s", work)
		}
		last := machine.Answer[struct{ Shutdown *journal.Record }](m, "ps", "--last-shutdown").Shutdown
		if last == nil || !last.Graceful || !strings.HasPrefix(last.BootID, before) || len(last.Pods) != 2 {
			t.Errorf("hostler ps --last-shutdown = %+v, want a graceful one of two pods, in boot %s", last, before)
		}
		if id := m.BootID(); id == before {
			t.Errorf("BootID() = %s, as before, want another one", id)
		}
	})
}
