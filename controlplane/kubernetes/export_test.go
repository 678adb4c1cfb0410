package kubernetes

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// StatusPatch returns the patch that sets wanted in stored, and the resulting status. before is
// what the client has written earlier.
func StatusPatch(stored *corev1.Node, before, wanted corev1.NodeStatus) (patch []byte, merged corev1.NodeStatus, err error) {
	merged = controlplane.Written{}.With(before).Merge(stored.Status, wanted)
	patch, err = statusPatch(stored, merged)
	return patch, merged, err
}

// CountsAsAbsent reports whether an owner that was absent some time ago counts as absent without another read.
func CountsAsAbsent(ago time.Duration) bool {
	s := readCache{others: map[reference]time.Time{}}
	owner := reference{kind: "nodes", name: "n", uid: "u"}
	s.record(owner, time.Now().Add(-ago))
	return s.recently(owner)
}

// WithPluginTime sets another pluginTime.
func WithPluginTime(o Options, limit time.Duration) Options {
	o.pluginTime = limit
	return o
}

// Watches runs watches of Nodes that report these changes. read reads the version of Nodes. It reports whether a list has to
// follow.
func Watches(ctx context.Context, to store.Follower, read func(context.Context) (string, error), watches ...<-chan watch.Event) (again bool, err error) {
	p := &progress{to: to, read: read, answers: make(chan proof, 1)}
	p.list("1", time.Now())
	for _, changes := range watches {
		w := &watching{following: following{kind: store.Nodes, to: to}, version: p.reached, progress: p}
		if again, err = w.run(ctx, changes); again || err != nil {
			break
		}
	}
	return again, err
}
