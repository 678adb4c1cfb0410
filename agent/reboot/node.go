package reboot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/internal/bounded"
)

// node is this host's Node on the control plane. Only Run's goroutine uses it.
type node struct {
	client  controlplane.Client
	name    string
	machine controlplane.Identity

	stored *corev1.Node // the last known Node; nil if it is not known
	at     time.Time    // when it was received, or last read in vain
	gone   string       // why this host has no Node on the control plane; empty if it has one, or that is not known
	err    error        // error of the last read
	ready  time.Time    // since when the Node is Ready in this boot, by the monotonic clock; zero if it is not
	seen   chan *corev1.Node
	stop   context.CancelFunc // stops the watch; nil if no watch runs
}

// follow starts a watch of the Node if a reboot is requested, and otherwise stops it.
func (n *node) follow(ctx context.Context, wanted bool) {
	watcher, able := n.client.(controlplane.NodeWatcher)
	switch {
	case !wanted && n.stop != nil:
		n.stop()
		n.stop = nil
	case wanted && able && n.stop == nil:
		ctx, n.stop = context.WithCancel(ctx)
		stored := make(chan *corev1.Node)
		go pace(ctx, stored, n.seen)
		go func() {
			for ctx.Err() == nil {
				_ = watcher.WatchNode(ctx, n.name, stored) // the next write reports the error
				_ = bounded.Sleep(ctx, interval)
			}
		}()
	}
}

// watchInterval is the shortest time between two Nodes of the watch, because the control plane sets its pace.
const watchInterval = time.Second

// pace forwards Nodes until ctx ends. A Node replaces those before that were not sent yet.
func pace(ctx context.Context, from <-chan *corev1.Node, to chan<- *corev1.Node) {
	var newest *corev1.Node
	var due <-chan time.Time // nil if a Node may be sent
	for sent := true; ; {
		var out chan<- *corev1.Node
		if !sent && due == nil {
			out = to
		}
		select {
		case newest = <-from:
			sent = false
		case <-due:
			due = nil
		case out <- newest:
			sent, due = true, time.After(watchInterval)
		case <-ctx.Done():
			return
		}
	}
}

// take records the stored Node; nil if there is none.
func (n *node) take(stored *corev1.Node, boot string) {
	n.gone, n.at = "", time.Now()
	if stored == nil {
		n.gone = noNode
	} else if other := controlplane.ReporterOf(stored); other.Differs(n.machine) {
		stored, n.gone = nil, fmt.Sprintf("the Node belongs to another machine (%s)", other)
	}
	n.stored = stored
	switch why := notReady(stored, boot); {
	case why != "":
		n.ready = time.Time{}
	case n.ready.IsZero():
		n.ready = time.Now()
	}
}

// noNode is why a host without a Node waits.
const noNode = "the host has no Node on the control plane"

// forget drops what is known of the Node. The next round reads it.
func (n *node) forget() { n.stored, n.gone, n.ready = nil, "", time.Time{} }

// notReady says why a Node does not count as Ready in this boot; empty if it does.
func notReady(n *corev1.Node, boot string) string {
	if n == nil {
		return noNode
	}
	if n.Status.NodeInfo.BootID != boot {
		return "the Node's status is from before the reboot"
	}
	switch ready := controlplane.ConditionOf(n, corev1.NodeReady); {
	case ready == nil:
		return "the Node has no condition Ready"
	case ready.Status != corev1.ConditionTrue:
		return fmt.Sprintf("the Node is not Ready: %s (%s)", ready.Message, ready.Reason)
	}
	return ""
}

// notReady is the function notReady for the stored Node. It also reports that the control plane does not
// answer, or refuses this host.
func (n *node) notReady(boot string) string {
	if n.stored == nil && n.err != nil && !errors.Is(n.err, controlplane.ErrNotFound) {
		if controlplane.Refused(n.err) {
			return fmt.Sprintf("the control plane refuses this host: %v", n.err)
		}
		return fmt.Sprintf("the control plane does not answer: %v", n.err)
	}
	return notReady(n.stored, boot)
}

// watchPause is how long a watch may report nothing until the Node is read again: it may be open and stuck.
const watchPause = 5 * time.Minute

// read reads the Node if no watch runs, if the watch has reported nothing for long, or if the Node is not known, such as after
// a failure. With live, it does so even if a watch runs, which may be late.
func (n *node) read(ctx context.Context, boot string, live bool) {
	if n.stop != nil && n.stored != nil && time.Since(n.at) < watchPause && !live {
		n.err = nil
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	n.at = time.Now()
	stored, err := n.client.Node(ctx, n.name)
	if n.err = err; err == nil || errors.Is(err, controlplane.ErrNotFound) {
		n.take(stored, boot)
	}
}

// announce writes a request on the Node. It returns why the request is not there. That is empty if it is, or
// if this control plane cannot store annotations.
func (n *node) announce(ctx context.Context, r controlplane.RebootRequest, boot string) string {
	annotator, able := n.client.(controlplane.Annotator)
	if !able {
		return ""
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	if n.stored == nil {
		return cmp.Or(n.gone, noNode)
	}
	if n.stored.Annotations[controlplane.AnnotationReboot] == string(text) {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	stored, err := annotator.Annotate(ctx, n.name, n.stored.UID, controlplane.AnnotationReboot, string(text))
	if err != nil {
		if errors.Is(err, controlplane.ErrNotFound) || errors.Is(err, controlplane.ErrConflict) {
			n.forget()
		}
		return fmt.Sprintf("cannot write step %s on the Node: %v", r.Step, err)
	}
	n.take(stored, boot)
	if stored.Annotations[controlplane.AnnotationReboot] != string(text) { // such as because of a webhook
		return fmt.Sprintf("the control plane has not kept step %s on the Node", r.Step)
	}
	return ""
}
