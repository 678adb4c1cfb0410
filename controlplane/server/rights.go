package server

import (
	"cmp"
	"errors"
	"fmt"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/eviction"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/controlplane/kubernetes"
)

// hintUnwritten is for an object that a controller cannot write.
func (s *Controllers) hintUnwritten(controller string, err error) string {
	if s.o.Store.Type() == kubernetes.Type && errors.Is(err, controlplane.ErrForbidden) {
		return hintRights(controller)
	}
	return "the server tries again"
}

// hintRights names the manifest with the rights of a controller on Kubernetes.
func hintRights(controller string) string {
	ofKubernetes := map[string]string{ // those that kube-controller-manager has, too
		lifecycle.Name:        "server-rbac-node-lifecycle.yaml",
		eviction.Name:         "server-rbac-node-lifecycle.yaml",
		garbagecollector.Name: "server-rbac-garbage-collector.yaml",
	}
	text := "if a right is missing, as a cluster administrator, `kubectl apply -f /usr/share/doc/hostler-server/" + cmp.Or(ofKubernetes[controller], "server-rbac.yaml") + "`"
	if ofKubernetes[controller] != "" {
		text += fmt.Sprintf("; if kube-controller-manager does this work, add -%s to `controllers`", controller)
	}
	return text
}
