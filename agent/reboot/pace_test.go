package reboot_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"hostler.io/hostler/agent/reboot"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// A control plane sets the pace of the watch, but not of the rounds.
func TestAControlPlaneDoesNotSetThePaceOfReboots(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.turn = reboot.Turn{Lost: true, Message: "all slots are held: b"}
		m.asked()
		written := m.plane.Calls(controlplanetest.Annotate)
		for i := range 100 {
			m.edit(func(n *corev1.Node) {
				n.Labels = map[string]string{"i": fmt.Sprint(i)}
				delete(n.Annotations, controlplane.AnnotationReboot)
			})
			synctest.Wait()
			time.Sleep(50 * time.Millisecond)
		}
		if n := m.plane.Calls(controlplanetest.Annotate) - written; n < 4 || n > 6 {
			t.Errorf("wrote the Node %d times in 5 seconds, want once a second", n)
		}
		m.passes(10 * time.Second)
		m.want(controlplane.RebootWaiting, "all slots are held: b") // the last Node was not missed
	})
}

// fickle gives a slot to a host that waits, and takes it back from a host that has it.
type fickle struct{ *machine }

func (fickle) Turn(_ context.Context, r *reboot.Request, _ *corev1.Node) reboot.Turn {
	granted := r.Step == controlplane.RebootWaiting
	return reboot.Turn{Granted: granted, Lost: !granted, Message: "released"}
}

func TestAControlPlaneDoesNotSetThePaceOfSteps(t *testing.T) {
	for name, change := range map[string]func(m *machine){
		"a slot that is given and taken":       func(m *machine) { m.lock = fickle{m} },
		"a Node that is in the group by turns": func(m *machine) { m.group = "web" },
	} {
		t.Run(name, func(t *testing.T) {
			inMachine(t, func(m *machine) {
				change(m)
				m.turn = reboot.Turn{Lost: true}
				m.restart()
				m.asked()
				before := m.log.Count("msg=reboot component=reboot step")
				for i := range 60 {
					m.edit(func(n *corev1.Node) {
						n.Labels = map[string]string{controlplane.LabelRebootGroup: []string{"web", "db"}[i%2]}
					})
					m.passes(time.Second)
				}
				if n := m.log.Count("msg=reboot component=reboot step") - before; n < 6 || n > 14 {
					t.Errorf("took %d steps in a minute, want two each 10 seconds:\n%s", n, &m.log)
				}
			})
		})
	}
}

// stripped is a control plane that does not keep what is written on a Node, and reports no error.
type stripped struct{ *controlplanetest.Fake }

func (s stripped) Annotate(ctx context.Context, name string, _ types.UID, _, _ string) (*corev1.Node, error) {
	return s.Node(ctx, name)
}

func TestAStepThatTheControlPlaneDropsIsNotOnTheNode(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.stop()
		m.client = stripped{m.plane}
		m.agent()
		m.asked()
		m.passes(time.Minute)
		if r := m.Report(); r.Step != controlplane.RebootWaiting || r.Message != "the control plane has not kept step Waiting on the Node" {
			t.Errorf("report = %+v, want the host to wait, and to say that its step is not on the Node", r.Request)
		}
	})
}

// silent is a control plane whose watch reports nothing, and does not end.
type silent struct{ *controlplanetest.Fake }

func (silent) WatchNode(ctx context.Context, _ string, _ chan<- *corev1.Node) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAWatchThatIsSilentHoldsNoRebootUp(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.stop()
		m.client = silent{m.plane}
		m.agent()
		m.asked()
		m.passes(20 * time.Minute) // the Node gets Ready after the boot
		m.want(controlplane.RebootDone, "")
		m.clean()
	})
}

// recorded records the steps that are written on the Node.
type recorded struct {
	*controlplanetest.Fake
	steps *[]controlplane.RebootStep
}

func (r recorded) Annotate(ctx context.Context, name string, uid types.UID, key, value string) (*corev1.Node, error) {
	if on, err := controlplane.RebootOf(map[string]string{key: value}); err == nil && on != nil {
		*r.steps = append(*r.steps, on.Step)
	}
	return r.Fake.Annotate(ctx, name, uid, key, value)
}

// A host that loses its power while it drains boots with that step on its disk. Meanwhile its Node may say something else.
func TestAStepFromBeforeTheBootIsNotWrittenAgain(t *testing.T) {
	inMachine(t, func(m *machine) {
		m.drains = func() (time.Duration, error) { return time.Hour, nil }
		m.asked()
		m.passes(5 * time.Second)
		m.want(controlplane.RebootDraining, "")
		m.edit(func(n *corev1.Node) { delete(n.Annotations, controlplane.AnnotationReboot) })
		var steps []controlplane.RebootStep
		m.client = recorded{m.plane, &steps}
		m.reboots()
		m.passes(time.Minute)
		if len(steps) == 0 || slices.Contains(steps, controlplane.RebootDraining) {
			t.Errorf("steps on the Node since the boot = %v, want some, and no Draining", steps)
		}
	})
}
