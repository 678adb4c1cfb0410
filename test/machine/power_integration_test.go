//go:build integration

package machine_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/test/machine"
)

// TestAMachineGoesDownInEveryWay tests the containers that other scenarios run in.
func TestAMachineGoesDownInEveryWay(t *testing.T) {
	t.Parallel()
	for _, release := range machine.Releases() {
		t.Run("debian"+string(release), func(t *testing.T) {
			t.Parallel()
			goesDown(t, machine.Boot(t, machine.Options{Release: release, Bed: machine.Container}))
		})
	}
}

func goesDown(t *testing.T, m *machine.Machine) {
	t.Helper()
	m.Write("/srv/kept", "over every reboot\n")
	if down := m.GoesDown("systemctl poweroff"); !down.Off {
		t.Errorf("GoesDown(poweroff) = %+v, want it off", down)
	}
	m.Start()
	if down := m.CtrlAltDel(); down.Off || !down.NewKernel {
		t.Errorf("CtrlAltDel() = %+v, want a new boot", down)
	}
	if m.Options.Release == machine.Debian13 {
		before := m.BootID()
		if down := m.GoesDown("systemctl soft-reboot"); down.Off || down.NewKernel || m.BootID() != before {
			t.Errorf("GoesDown(soft-reboot) = %+v, want the same kernel", down)
		}
	}
	if down := m.GoesDown("reboot -ff"); down.Off || !down.NewKernel {
		t.Errorf("GoesDown(reboot -ff) = %+v, want a new boot", down)
	}
	m.CutPower()
	m.Start()
	if text := m.Read("/srv/kept"); text != "over every reboot\n" {
		t.Errorf("Read() = %q, want what was written before", text)
	}
	if boots := strings.Count(m.Run("journalctl --list-boots --no-pager"), "\n"); boots < 5 {
		t.Errorf("the journal knows %d boots, want each", boots)
	}
}

func TestCommandsRunInAMachine(t *testing.T) {
	t.Parallel()
	m := machine.Boot(t, machine.Options{Release: machine.Debian12, Bed: machine.Container})
	r, err := m.Try(t.Context(), "echo out; echo err >&2; exit 3")
	if want := (machine.Result{Stdout: "out\n", Stderr: "err\n", Code: 3}); err != nil || r != want {
		t.Errorf("Try() = %+v, %v, want %+v", r, err, want)
	}
	if r, err = m.Try(t.Context(), "kill -KILL $$"); err != nil || r.Code != 137 {
		t.Errorf("Try(kill -KILL) = %+v, %v, want code 137", r, err)
	}
	if n := len(m.Run("head -c 3000000 /dev/zero")); n != 3_000_000 {
		t.Errorf("Run() printed %d bytes, want 3000000", n)
	}
	long := strings.Repeat("x", 1_000_000)
	m.Write("/tmp/long", long)
	if got := m.Read("/tmp/long"); got != long {
		t.Errorf("Read() returns %d bytes, want the %d that were written", len(got), len(long))
	}
	// A command that hangs blocks nothing, and ends with its context.
	ctx, cancel := context.WithCancel(t.Context())
	hangs := make(chan error, 1)
	go func() {
		_, err := m.Try(ctx, "echo $$ >/tmp/hangs; exec sleep 1000000")
		hangs <- err
	}()
	m.Eventually("the command runs", func() bool { return m.Run("cat /tmp/hangs 2>/dev/null || true") != "" })
	cancel()
	if err := <-hangs; !errors.Is(err, context.Canceled) {
		t.Errorf("Try() of a command that was given up = %v, want %v", err, context.Canceled)
	}
	m.Eventually("the command that was given up is dead", func() bool { return m.Run("kill -0 $(cat /tmp/hangs) 2>/dev/null || echo dead") != "" })

	m.Options.Tolerant = true // like a person's machine
	m.Write("/etc/systemd/system/broken.service", "[Service]\nExecStart=false\n[Install]\nWantedBy=multi-user.target\n")
	m.Run("systemctl daemon-reload && systemctl enable broken")
	m.GoesDown("systemctl reboot")
	if state := m.Run("systemctl is-system-running || true"); state != "degraded\n" {
		t.Errorf("the machine is %q, want it to run on, degraded", state)
	}
}

func TestWorkloadsReportHowTheyEnd(t *testing.T) {
	t.Parallel()
	m := machine.Boot(t, machine.Options{
		Release: machine.Debian12, Bed: machine.Container, SystemdCgroup: true,
		Config: "shutdown: {gracePeriod: 602s, gracePeriodCriticalPods: 2s}\n",
	})
	m.Deploy(
		machine.Pod{Name: "brief", Containers: []machine.ContainerSpec{{Name: "job", EndsAfter: time.Millisecond}}},
		machine.Pod{Name: "stubborn", Grace: time.Second, Containers: []machine.ContainerSpec{{Name: "main", IgnoresTERM: true}}},
		machine.Pod{Name: "slow", Containers: []machine.ContainerSpec{{Name: "main", EndsSlowly: 2 * time.Second}}},
	)
	if scopes := m.Run("systemctl list-units --no-legend 'cri-containerd-*.scope'"); strings.Count(scopes, "running") < 4 {
		t.Errorf("systemd runs these scopes, want one for each container and sandbox:\n%s", scopes)
	}
	before := m.BootID()
	m.GoesDown("reboot")
	work := m.Work().Boot(before)
	if len(work) != 3 || !work.Ended("brief") || !work.Ended("slow") || work.Ended("stubborn") {
		t.Errorf("Work() = want brief and slow to have ended, and stubborn killed:\n%s", work)
	}
	stubborn, slow := work.Pod("stubborn")[0], work.Pod("slow")[0]
	if lasted := stubborn.Gone().Sub(stubborn.Term()); lasted < 500*time.Millisecond || lasted > 5*time.Minute {
		t.Errorf("stubborn lived on for %v after SIGTERM, want its grace of 1s:\n%s", lasted, work)
	}
	if lasted := slow.Ended.Sub(slow.Term()); lasted < 2*time.Second {
		t.Errorf("slow took %v to end, want 2s:\n%s", lasted, work)
	}
}
