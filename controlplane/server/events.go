package server

import (
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/controllers/reboots"
	"hostler.io/hostler/controlplane/etcd"
	"hostler.io/hostler/controlplane/objects"
	"hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/controlplane/store"
)

// Events publishes Events.
type Events interface {
	controlplane.Publisher
	io.Closer
}

// OpenEvents opens the destination of Events: the store if it can publish them, or else the place
// in etcd where agents publish theirs. Events need no term: nothing waits for them, and no decision
// depends on them.
func OpenEvents(c config.Store, s store.Store, version string) (Events, error) {
	if events, ok := s.(Events); ok {
		return events, nil
	}
	own, err := etcd.New(etcd.OptionsOf(c.Etcd, "store.etcd", version))
	if err != nil {
		return nil, err
	}
	return objects.New(own, objects.Options{}), nil
}

// recordEvents makes the controllers record their changes as Events.
func (s *Controllers) recordEvents(evicter *eviction.Controller) {
	if s.o.Events == nil {
		return
	}
	s.events = controlplane.NewRecorder(s.o.Events, s.candidate, nil, nil, s.o.Log)
	s.nodes.OnDone = s.recordChange
	evicter.OnDone = s.recordEviction
	s.garbage.OnRefused = s.recordRefusal
	s.reboots.OnEvent = s.recordReboot
}

// recordChange records a change of a Node.
func (s *Controllers) recordChange(c lifecycle.Change) {
	kind, reason := reasonOf(c)
	var steps []string
	for _, step := range c.Steps {
		steps = append(steps, fmt.Sprintf("%s: %s", step.Action, step.Reason))
	}
	s.events.Record(controlplane.NodeReference(c.Node), kind, reason, strings.Join(steps, "; "))
}

// reasonOf returns the type and the reason of a change's Event. They are those of Kubernetes'
// controller if it has such an Event.
func reasonOf(c lifecycle.Change) (kind, reason string) {
	switch {
	case c.Unknown:
		return corev1.EventTypeWarning, "NodeNotReady"
	case c.NoExecute():
		return corev1.EventTypeWarning, "NodeTainted"
	case len(c.Add) > 0:
		return corev1.EventTypeNormal, "NodeTainted"
	}
	return corev1.EventTypeNormal, "NodeUntainted"
}

// recordReboot records the progress of a reboot on the Node.
func (s *Controllers) recordReboot(e reboots.Event) {
	s.events.Record(controlplane.NodeReference(e.Node), e.Type, e.Reason, e.Message)
}

// recordEviction records an eviction on the pod, or on etcd, where Events are about Nodes, on the
// Node.
func (s *Controllers) recordEviction(e eviction.Eviction) {
	if e.Taint == nil { // its Node does not exist any more
		return
	}
	node, message := controlplane.NodeReference(e.Node), fmt.Sprintf("pod %s evicted: %s", e.Pod, e.Reason)
	about := node
	if namespace, name, found := strings.Cut(e.Pod, "/"); found && !s.o.Store.EndsLeases() {
		about = corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: name, UID: e.UID}
	}
	s.events.RecordFor(node, about, corev1.EventTypeNormal, "TaintManagerEviction", message)
}
