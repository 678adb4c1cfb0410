package shutdown_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"hostler.io/hostler/runtime/runtimetest"
	"hostler.io/hostler/shutdown"
	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/shutdown/plan"
)

func TestTheRecordReportsHowContainersEnded(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		r.pod("good", 0, runtimetest.ContainerSpec{})
		r.pod("termed", 0, runtimetest.ContainerSpec{ExitCode: 143})
		r.pod("deaf", 0, runtimetest.ContainerSpec{IgnoresTERM: true})
		r.pod("early", plan.CriticalPriority, runtimetest.ContainerSpec{})
		r.start()
		r.logind.shutdown("reboot")
		time.Sleep(time.Second)
		r.fake.Exit("early-c", 3) // before its stop was requested
		time.Sleep(time.Minute)
		r.expect(shutdown.Released, 0)
		r.expectSignals("early", "")
		last := r.guard.Status().Last
		got := map[string]string{}
		for _, p := range last.Pods {
			s := last.PodStatus(p)
			got[p.Name] = fmt.Sprint(p.ExitCodes, " ", s.Phase, " ", s.Reason)
		}
		want := map[string]string{
			"good": "map[c:0] Succeeded Completed", "termed": "map[c:143] Failed Error",
			"deaf": "map[c:137] Failed Terminated", "early": "map[c:3] Failed Error",
		}
		if !maps.Equal(got, want) {
			t.Errorf("pods = %v, want %v", got, want)
		}
	})
}

func TestAJournalThatIsReadLateIsStillReported(t *testing.T) {
	onHost(t, func(t *testing.T, r *rig) {
		if err := os.Symlink(r.path, r.path); err != nil { // it cannot be read
			t.Fatal(err)
		}
		r.usual()
		r.boot = "two"
		r.options.Journal = journal.Open(r.path, r.boot, r.options.Log)
		guard, err := shutdown.New(r.options)
		if err != nil {
			t.Fatal(err)
		}
		if got := guard.Status().Last; got != nil {
			t.Errorf("Last = %+v of a journal that cannot be read, want nil", got)
		}
		const finished = `{"version":1,"bootID":"one","record":{"bootID":"one","startedAt":"2026-01-02T03:04:05Z","finishedAt":"2026-01-02T03:04:06Z","graceful":true,"pods":[]}}`
		if err := os.Remove(r.path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(r.path, []byte(finished), 0o600); err != nil {
			t.Fatal(err)
		}
		// It is read before the first write, long after the guard is armed.
		r.fake.Inject(runtimetest.Pods, runtimetest.Fault{Hang: true})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- guard.Run(ctx) }()
		time.Sleep(time.Minute)
		guard.Observe(nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := guard.Status().Last; got == nil || got.BootID != "one" {
			t.Errorf("Last = %+v once it can be read, want the shutdown of before", got)
		}
		cancel()
		<-ended
	})
}
