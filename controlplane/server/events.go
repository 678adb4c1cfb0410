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

// OpenEvents opens what Events are published in: the store itself if it can, or where agents of etcd
// publish theirs. Nothing waits for Events, and nothing is decided by them, so they need no term.
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

// recordEvents records what controllers have done.
func (s *Server) recordEvents(evicter *eviction.Controller) {
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
func (s *Server) recordChange(c lifecycle.Change) {
	kind, reason := reasonOf(c)
	var steps []string
	for _, step := range c.Steps {
		steps = append(steps, fmt.Sprintf("%s: %s", step.Action, step.Reason))
	}
	s.events.Record(controlplane.NodeReference(c.Node), kind, reason, strings.Join(steps, "; "))
}

// reasonOf is the type and the reason of the Event of a change: that of Kubernetes' controller, where
// it has one.
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

// recordReboot records what has become of a Node that is to reboot.
func (s *Server) recordReboot(e reboots.Event) {
	s.events.Record(controlplane.NodeReference(e.Node), e.Type, e.Reason, e.Message)
}

// recordEviction records an eviction on the pod. On etcd, Events are about Nodes.
func (s *Server) recordEviction(e eviction.Eviction) {
	if e.Taint == nil { // its Node is gone
		return
	}
	about, message := controlplane.NodeReference(e.Node), fmt.Sprintf("pod %s evicted: %s", e.Pod, e.Reason)
	if namespace, name, found := strings.Cut(e.Pod, "/"); found && !s.o.Store.EndsLeases() {
		about = corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: name, UID: e.UID}
	}
	s.events.Record(about, corev1.EventTypeNormal, "TaintManagerEviction", message)
}
