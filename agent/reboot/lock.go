package reboot

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/sanitize"
)

// Alone is the Lock of a host that does not wait for other hosts.
type Alone struct{}

// Turn implements Lock.
func (Alone) Turn(context.Context, *Request, *corev1.Node) Turn { return Turn{Granted: true} }

// OnNode implements Lock.
func (Alone) OnNode() bool { return true }

// Release implements Lock.
func (Alone) Release(context.Context, *Request) error { return nil }

// lock returns the lock of an attempt, which may be of an earlier configuration.
func (c *Controller) lock(a Attempt) (Lock, error) {
	if !c.formerly(a) || c.o.Change.Open == nil {
		return c.o.Lock, nil
	}
	return c.o.Change.Open(a.Lock)
}

// formerly reports whether an attempt has a lock of an earlier configuration.
func (c *Controller) formerly(a Attempt) bool {
	return a.Locked && a.Lock != LockID{} && !a.Lock.same(c.o.Change.ID)
}

// answerTime is how long servers may take to answer, for example after their leader stopped.
const answerTime = time.Minute

// Server is the Lock that uses `hostler server`: it writes its answer to a request on the Node.
type Server struct{}

// Turn implements Lock.
func (Server) Turn(_ context.Context, r *Request, node *corev1.Node) Turn {
	if node == nil {
		return Turn{Message: "the host has no Node on the control plane"}
	}
	slot, err := controlplane.RebootSlotOf(node.Annotations)
	switch {
	case err != nil:
		return Turn{Message: fmt.Sprintf("cannot read the server's answer: %v", err)}
	case slot == nil || slot.ID != r.ID:
		message := "no `hostler server` with the controller reboots has answered"
		if time.Since(r.Since) < answerTime {
			message = "no server has answered yet"
		}
		return Turn{Lost: true, Unanswered: true, Message: message}
	}
	granted := slot.Granted != nil
	return Turn{Granted: granted, Lost: !granted, Message: sanitize.Text(slot.Message, sanitize.MaxText), Emptied: slot.Emptied, Failed: slot.Failed}
}

// OnNode implements Lock.
func (Server) OnNode() bool { return true }

// Release implements Lock. Servers notice on the Node that the request has ended.
func (Server) Release(context.Context, *Request) error { return nil }
