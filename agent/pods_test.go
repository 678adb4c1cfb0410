package agent

import (
	"errors"
	"slices"
	"testing"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/internal/loop"
	"hostler.io/hostler/runtime"
)

// keepsPods reports whether an agent has a loop for pod objects.
func keepsPods(a *Agent) bool {
	return slices.ContainsFunc(a.loops, func(l *loop.Loop) bool { return l.Name() == "pod-objects" })
}

func TestObjectsOfPodsAreKeptOrRemovedWhereTheyMayBe(t *testing.T) {
	onEtcd := func(c *config.Config) {
		c.ControlPlane.Type, c.ControlPlane.Etcd.Endpoints = "etcd", []string{"http://127.0.0.1:1"}
	}
	r := newRig(t)
	for _, step := range []struct {
		what string
		set  func(*config.Config)
		want bool
		then func(*Agent)
	}{
		{"an embedded control plane", func(*config.Config) {}, false, nil},
		{"etcd", onEtcd, false, nil},
		{"the key", func(c *config.Config) { c.Status.Pods = true }, true, func(a *Agent) { a.podsWritten(true) }},
		{"the key off, with objects left", func(c *config.Config) { c.Status.Pods = false }, true, nil},
		{"another name", func(c *config.Config) { c.Node.Name = "another" }, false, nil},
		{"the name again", func(c *config.Config) { c.Node.Name = nodeName }, true, func(a *Agent) { a.podsWritten(false) }},
		{"the objects removed", func(*config.Config) {}, false, nil},
	} {
		step.set(&r.cfg)
		a := r.build(t)
		if got := keepsPods(a); got != step.want || (a.removePods() != nil) != step.want {
			t.Errorf("with %s: there is a loop: %t, want %t", step.what, got, step.want)
		}
		if step.then != nil {
			step.then(a)
		}
		if err := errors.Join(a.kept.flush(), a.close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestARuntimeThatCannotSayReportsNoNetwork(t *testing.T) {
	a := newRig(t).build(t)
	if _, err := a.podNetwork(t.Context(), runtime.Pod{Runtime: "docker"}); !errors.Is(err, runtime.ErrUnsupported) {
		t.Errorf("podNetwork() = %v, want %v", err, runtime.ErrUnsupported)
	}
	if got := a.podsNode(); got.Name != nodeName || len(got.IPs) > 0 {
		t.Errorf("podsNode() before the first check = %+v, want the name alone", got)
	}
}
