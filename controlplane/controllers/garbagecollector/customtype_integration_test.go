//go:build integration

package garbagecollector_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/test/kube"
)

// custom is a cluster with a collector whose objects are in the namespace n.
type custom struct {
	*testing.T
	ctx     context.Context // ends a wait
	cluster *kube.Cluster
	fleet   *kubernetes.Fleet // of an administrator
	create  creator
	*replica
}

// put creates an object with owners.
func (c *custom) put(kind kubeKind, name string, finalizers []string, owners ...*metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	c.Helper()
	o := kubePlace{}.object(nil, kind.Kind, "n/"+name)
	o.Finalizers = finalizers
	block := true
	for _, owner := range owners {
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &block})
	}
	if err := c.create(c.ctx, kind.Kind, "n/"+name, o); err != nil {
		c.Fatal(err)
	}
	return o
}

// delete requests the deletion of an object.
func (c *custom) delete(kind kubeKind, name string, policy metav1.DeletionPropagation) {
	c.Helper()
	if err := c.fleet.Delete(c.ctx, kind.Kind, "n/"+name, store.Preconditions{}, policy); err != nil {
		c.Fatal(err)
	}
}

// until waits for something.
func (c *custom) until(what string, done func() bool) {
	c.Helper()
	for !done() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-c.ctx.Done():
			c.Fatalf("%s: not in time; report = %+v", what, c.Report())
		}
	}
}

// gone waits until ConfigMaps are deleted.
func (c *custom) gone(names ...string) {
	c.Helper()
	for _, name := range names {
		c.until(name+" is deleted", func() bool {
			_, err := c.fleet.Get(c.ctx, configMaps.Kind, "n/"+name)
			return errors.Is(err, controlplane.ErrNotFound)
		})
	}
}

// owners waits until an object has these owners.
func (c *custom) owners(name string, want ...string) {
	c.Helper()
	c.until(name+" has the owners "+strings.Join(want, ", "), func() bool {
		o, err := c.fleet.Get(c.ctx, configMaps.Kind, "n/"+name)
		if err != nil {
			c.Fatal(err)
		}
		var names []string
		for _, ref := range o.GetOwnerReferences() {
			names = append(names, ref.Name)
		}
		return slices.Equal(names, want)
	})
}

// follows reports whether Parts are followed, and checks that each known kind has one follower.
func (c *custom) follows() bool {
	c.Helper()
	var stacks strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 2); err != nil {
		c.Fatal(err)
	}
	kinds := c.Report().Kinds
	if got := strings.Count(stacks.String(), "(*kindsRun).follow("); got != len(kinds) {
		c.Errorf("%d kinds are followed, want the %d that are known", got, len(kinds))
	}
	_, known := kinds[parts.Name]
	return known
}

// requests counts those of the server about Parts.
func (c *custom) requests() (count int) {
	c.Helper()
	all, err := c.cluster.Requests()
	if err != nil {
		c.Fatal(err)
	}
	for _, r := range all {
		if r.User == "hostler-server" && r.Resource == "parts" {
			count++
		}
	}
	return count
}

// TestACustomTypeIsDeletedWithItsObjects deletes a CustomResourceDefinition whose objects own ConfigMaps and are
// owned by them, and creates it again with objects of the same names. The API server deletes the objects before the
// type, and waits for those that have finalizers.
func TestACustomTypeIsDeletedWithItsObjects(t *testing.T) {
	cluster, create, server := kubeCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	c := &custom{t, ctx, cluster, kubeFleet(t, cluster.AdminKubeconfig()), create, collect(t, kubeFleet(t, server), "a")}
	owner := c.put(configMaps, "owner", nil)
	part := c.put(parts, "part", nil, owner)
	slow := c.put(parts, "slow", nil, owner)
	c.put(configMaps, "dependent", nil, part)
	c.put(configMaps, "kept", nil, part, owner)
	c.put(configMaps, "waits", []string{held}, slow)
	c.delete(parts, "slow", foreground)

	if _, err := cluster.Kubectl(ctx, "delete", "crd", "parts.example.com", "--wait=false"); err != nil {
		t.Fatal(err)
	}
	c.gone("dependent")
	c.owners("kept", "owner")
	if _, err := c.fleet.Get(ctx, parts.Kind, "n/slow"); err != nil {
		t.Errorf("Get() of an object that waits for its dependent = %v, want no error", err)
	}
	if _, err := c.fleet.Update(ctx, configMaps.Kind, "n/waits", store.Preconditions{}, func(o store.Object) error {
		o.SetFinalizers(nil)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	c.gone("waits")
	if _, err := cluster.Kubectl(ctx, "wait", "--for=delete", "crd/parts.example.com", "--timeout=5m"); err != nil {
		t.Fatal(err)
	}
	c.until("the type is forgotten", func() bool { _, known := c.Report().Kinds[parts.Name]; return !known })
	if c.follows() {
		t.Error("Parts are followed, want them forgotten")
	}

	before := c.requests()
	for _, policy := range []metav1.DeletionPropagation{foreground, orphan} {
		other := c.put(configMaps, "other", nil)
		c.put(configMaps, "of-other", nil, other)
		c.delete(configMaps, "other", policy)
		c.gone("other")
	}
	c.owners("of-other")
	c.put(configMaps, "late", nil, part)
	c.until("late is not decided", func() bool {
		return slices.ContainsFunc(c.Report().Facts, func(f garbagecollector.Fact) bool { return f.Undecided != "" })
	})
	if after := c.requests(); after != before {
		t.Errorf("%d requests about Parts after their type was deleted, want none", after-before)
	}
	if failing := c.Report().Failing; len(failing) > 0 {
		t.Errorf("failing = %v, want none", failing)
	}

	kubeParts(t, cluster)
	c.gone("late") // its owner has another UID than the new object of that name
	again := c.put(parts, "part", nil, owner)
	c.put(configMaps, "again", nil, again)
	c.put(configMaps, "later", nil, part)
	c.gone("later")
	c.owners("again", "part")
	c.delete(configMaps, "owner", background)
	c.gone("kept", "again")
	if !c.follows() {
		t.Errorf("kinds = %v, want Parts among them", slices.Sorted(maps.Keys(c.Report().Kinds)))
	}

	// The API server removes the type at once if no object waits, before all dependents are deleted.
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint("of-", i))
		c.put(configMaps, names[i], nil, c.put(parts, fmt.Sprint(i), nil))
	}
	c.put(configMaps, "last", nil, part)
	c.gone("last") // so that the others were seen
	if _, err := cluster.Kubectl(ctx, "delete", "crd", "parts.example.com"); err != nil {
		t.Fatal(err)
	}
	c.gone(names...)
}
