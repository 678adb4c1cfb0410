package cli_test

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
)

// rebootAt is a reboot for a new kernel, at a step.
func rebootAt(step controlplane.RebootStep, message string) *reboot.Report {
	file := reboot.Finding{Source: "/run/reboot-required", Message: "linux-image-6.12.57-amd64"}
	return &reboot.Report{
		Request: &reboot.Request{
			ID: "1", Step: step, Since: ago(3 * time.Minute), Wanted: ago(4 * time.Hour), Boot: bootID,
			Reason: file.String(), Message: message,
		},
		Wanting: []reboot.Finding{file}, Undecided: []reboot.Finding{},
		Past:    []reboot.Past{{Reason: "libc6", At: ago(30 * 24 * time.Hour), Took: metav1.Duration{Duration: 4 * time.Minute}}},
		Longest: metav1.Duration{Duration: 4 * time.Minute},
	}
}

func rebootsAt(step controlplane.RebootStep, message string) api.Status {
	s := healthy()
	s.Reboot = rebootAt(step, message)
	return s
}

// rebootLeftPods is of a host whose reboot is over, with pods that nobody has started.
func rebootLeftPods() api.Status {
	s := rebootsAt(controlplane.RebootDone, "")
	s.Reboot.Wanting = []reboot.Finding{}
	s.NotRestarted = []string{"default/web", "shop/db"}
	return s
}

// rebootIgnored is of a host whose reboot a person has cancelled.
func rebootIgnored() api.Status {
	s := rebootsAt(controlplane.RebootDone, "cancelled by root")
	s.Reboot.Wanting, s.Reboot.Ignored = []reboot.Finding{}, s.Reboot.Wanting
	return s
}

// rebootBroken is of a host on which no reboot can be requested, and another one is ignored.
func rebootBroken() api.Status {
	s := rebootIgnored()
	s.Reboot.Undecided = []reboot.Finding{{Source: "new-kernel", Message: "linux-version is not installed"}, {Source: "new", Pending: true}}
	return s
}

// rebootReasons is of a host on which several files request the reboot.
func rebootReasons() api.Status {
	s := rebootsAt(controlplane.RebootWaiting, "all slots of the group are held")
	s.Reboot.Wanting = append(s.Reboot.Wanting, reboot.Finding{Source: "a"}, reboot.Finding{Source: "b"}, reboot.Finding{Source: "c"})
	return s
}

// rebootStuck is of a host that keeps its slot.
func rebootStuck() api.Status {
	s := rebootsAt(controlplane.RebootVerifying, "containers that ran before the reboot do not run yet: db")
	s.Reboot.Since = ago(2 * time.Hour)
	s.Reboot.Problem = "it takes longer than 1h0m0s, and is at step Verifying: " + s.Reboot.Message
	return s
}

func (b *backend) Reboot(ctx context.Context, ask reboot.Ask) (reboot.Report, error) {
	r := *rebootAt(controlplane.RebootWanted, "")
	r.Reason, r.By, r.Now = ask.Reason, "alice", ask.Now
	if ask.Now {
		r.Held = []reboot.Finding{{Source: "runtime docker", Message: "no answer", Hint: "see check runtimes of `hostler doctor`"}}
	}
	return r, b.answer(ctx)
}

func (b *backend) CancelReboot(ctx context.Context) (reboot.Report, error) {
	r := *rebootAt(controlplane.RebootDraining, "")
	r.Cancelled = "alice"
	return r, b.answer(ctx)
}

func (b *backend) RebootPlan(ctx context.Context) (api.RebootPlan, error) {
	drain, err := b.DrainPlan(ctx, maintenance.DrainRequest{All: true})
	r := *rebootAt(controlplane.RebootWaiting, "all slots of the group are held: rack3-node02 since 2026-11-20T03:05:00Z")
	r.Ignored = []reboot.Finding{{Source: "needs-restarting", Message: "glibc was updated"}}
	r.Undecided = []reboot.Finding{{Source: "new-kernel", Message: "linux-version is not installed", Hint: "to run it manually: /etc/hostler/reboot.d/new-kernel"}}
	r.Held = []reboot.Finding{{Source: "runtime docker", Message: "no answer", Hint: "see check runtimes of `hostler doctor`"}}
	return api.RebootPlan{
		Report: r, Unprotected: "logind grants 1s, the pods need 1m10s",
		Node: drain.Node, Slots: "hostler server, through etcd", Group: "default", Window: "the window is open until 2026-11-20 05:00:00 UTC",
		Drain: drain, RestartAfterBoot: "auto", Command: "systemctl reboot", ReadyFor: seconds(60),
	}, err
}
