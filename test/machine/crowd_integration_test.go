//go:build integration

package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/test/machine"
)

// containerOf is a shell command that prints the ID of a pod's only container.
func containerOf(pod string) string {
	return fmt.Sprintf(`ctr --namespace k8s.io containers list -q 'labels."io.kubernetes.pod.name"==%s,labels."io.kubernetes.container.name"==main'`, pod)
}

// kill is a shell command that kills a pod's only container.
func kill(pod string) string {
	return "ctr --namespace k8s.io tasks kill --signal SIGKILL $(" + containerOf(pod) + ")"
}

// TestACrowd shuts down with many containers, some of which cannot be stopped.
func TestACrowd(t *testing.T) {
	aloneOnDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		pods, period := 50, 90*time.Second
		switch {
		case o.Bed == machine.VM:
			pods, period = 15, 150*time.Second
			o.MemoryMiB = 2048
		case runsAll():
			pods = 100
		}
		config := func() string {
			return fmt.Sprintf("shutdown: {gracePeriod: %v, gracePeriodCriticalPods: %v}\n", period, (period / 3).Truncate(time.Second))
		}
		o.Config = config()
		m := machine.Boot(t, o)
		m.Run("ln -sf /usr/local/bin/guest /usr/local/sbin/runc") // the guest's runc can make a container immortal

		two := []machine.ContainerSpec{{Name: "main"}, {Name: "helper", EndsSlowly: time.Second}}
		manyPods := []machine.Pod{{Name: "immortal", Containers: two}, {Name: "hung", Containers: two}, {Name: "paused", Containers: two}}
		for i := len(manyPods); i < pods; i++ {
			manyPods = append(manyPods, machine.Pod{Name: fmt.Sprintf("pod%d", i), Critical: i%5 == 0, Grace: regularPeriod, Containers: two})
		}
		started := time.Now()
		m.Deploy(manyPods...)
		// On a slow machine, the runtime stops them as slowly. The regular phase waits for what cannot be
		// stopped, and must end while the test waits.
		if long := min(4*time.Since(started).Truncate(time.Second), machine.Patience/2); long > period {
			period = long
			m.Write("/etc/hostler/hostler.yaml", config())
			m.Run("systemctl restart hostler")
			m.AwaitArmed()
		}
		// No signal reaches it, although the runtime reports success.
		m.Run("mkdir -p /run/immortal && touch /run/immortal/$(" + containerOf("immortal") + ")")
		// Its shim, which serves all containers of the pod, does not answer.
		m.Run(`kill -STOP $(ps -o ppid= -p $(ctr --namespace k8s.io tasks list | awk -v id="$(` + containerOf("hung") + `)" '$1 == id {print $2}'))`)
		m.Run("ctr --namespace k8s.io tasks pause $(" + containerOf("paused") + ")")
		boot := m.BootID()

		m.GoesDown("systemctl reboot")

		last := m.LastShutdown()
		if last == nil || !strings.HasPrefix(last.BootID, boot) || len(last.Pods) != pods {
			t.Fatalf("LastShutdown() = %+v, want that of boot %s, with %d pods", last, boot, pods)
		}
		took := last.FinishedAt.Sub(last.StartedAt)
		t.Logf("%d pods of two containers took %v of the %v that they have", pods, took, period)
		if last.FinishedAt.IsZero() || took > period+late || last.Graceful {
			t.Errorf("LastShutdown() took %v and was graceful: %t, want it to end with its %v, and not graceful", took, last.Graceful, period)
		}
		logindWaited(t, m)
		work := m.Work().Boot(boot)
		stuck := map[string][]string{"immortal": {"main"}, "hung": {"helper", "main"}}
		for _, p := range last.Pods {
			switch {
			case stuck[p.Name] != nil:
				if p.Outcome != journal.Left || !slices.Equal(slices.Sorted(slices.Values(p.Stuck)), stuck[p.Name]) {
					t.Errorf("LastShutdown() says %+v, want it left, and its containers %v named", p, stuck[p.Name])
				}
			case p.Name == "paused":
				t.Logf("the paused one: %+v", p)
				left := p.Outcome == journal.Left && slices.Equal(p.Stuck, []string{"main"})
				if p.Outcome != journal.Killed && !left {
					t.Errorf("LastShutdown() reports %+v, want it killed, or left and named: it ignores SIGTERM", p)
				}
			case p.Outcome != journal.Stopped:
				t.Errorf("LastShutdown() says %+v, want it stopped", p)
			}
		}
		for _, l := range work {
			if !strings.HasPrefix(l.Pod, "pod") {
				continue
			}
			if l.CutOff() || terms(l) != 1 {
				t.Errorf("Work() = want it to end on its one SIGTERM: %s", machine.Work{l})
			}
		}
		log := m.Journal(-1, "-u hostler")
		for _, name := range []string{"default/hung/main", "default/immortal/main"} {
			if !strings.Contains(log, name) {
				t.Errorf("the agent's log does not name %s:\n%s", name, log)
			}
		}
	})
}
