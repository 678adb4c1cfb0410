package reboot_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controlplanetest"
)

// TestAControlPlaneDoesNotSetThePaceOfWithdrawals restores a request on the Node that the host does not have, again and
// again. The host withdraws it once in each round, and logs it once.
func TestAControlPlaneDoesNotSetThePaceOfWithdrawals(t *testing.T) {
	const rounds, restores = 6, 50
	inMachine(t, func(m *machine) {
		withdrawn := 0
		restore := func(id string) {
			m.edit(func(n *corev1.Node) {
				if on, err := controlplane.RebootOf(n.Annotations); err == nil && on != nil && on.Step == controlplane.RebootDone {
					withdrawn++
				}
				n.Annotations = map[string]string{controlplane.AnnotationReboot: `{"id":"` + id + `","step":"Wanted"}`}
			})
			node, err := m.plane.Node(m.t.Context(), "n")
			if err != nil {
				m.t.Fatal(err)
			}
			m.Stored(node)
			synctest.Wait()
		}
		for range rounds {
			for range restores {
				restore("a")
			}
			m.passes(10 * time.Second)
		}
		if restore("b"); withdrawn == 0 || withdrawn > rounds {
			m.t.Errorf("the host withdrew %d times in %d rounds, want once in each", withdrawn, rounds)
		}
		m.passes(time.Minute)
		if n := m.log.Count("withdrew a request"); n != 2 {
			m.t.Errorf("the host logged %d withdrawals, want one of each request:\n%s", n, &m.log)
		}
		m.plane.Inject(controlplanetest.Annotate, controlplanetest.Fault{Err: errors.New("denied")})
		restore("c")
		m.passes(time.Minute)
		m.plane.Heal()
		m.passes(time.Minute)
		if failed, ended := m.log.Count("cannot withdraw"), m.log.Count("withdrew a request"); failed != 1 || ended != 3 {
			m.t.Errorf("the host logged %d failures and %d withdrawals, want one and three:\n%s", failed, ended, &m.log)
		}
	})
}
