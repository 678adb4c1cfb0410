package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// TestObjectsOfManyEntriesAreNotRead has objects with the most entries, and with one more.
func TestObjectsOfManyEntriesAreNotRead(t *testing.T) {
	for name, c := range map[string]struct {
		kind  store.Kind
		build func(n int) store.Object
	}{
		"owners": {store.Nodes, func(n int) store.Object {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{OwnerReferences: slices.Repeat([]metav1.OwnerReference{{Kind: "k", Name: "n", UID: "u"}}, n)}}
		}},
		"finalizers": {store.Nodes, func(n int) store.Object {
			return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Finalizers: slices.Repeat([]string{"a/b"}, n)}}
		}},
		"taints": {store.Nodes, func(n int) store.Object {
			return &corev1.Node{Spec: corev1.NodeSpec{Taints: slices.Repeat([]corev1.Taint{{Key: "a", Effect: "NoExecute"}}, n)}}
		}},
		"conditions of a Node": {store.Nodes, func(n int) store.Object {
			return &corev1.Node{Status: corev1.NodeStatus{Conditions: slices.Repeat([]corev1.NodeCondition{{Type: "a"}}, n)}}
		}},
		"tolerations": {store.Pods(true), func(n int) store.Object {
			return &corev1.Pod{Spec: corev1.PodSpec{Tolerations: slices.Repeat([]corev1.Toleration{{}}, n)}}
		}},
		"conditions of a pod": {store.Pods(true), func(n int) store.Object {
			return &corev1.Pod{Status: corev1.PodStatus{Conditions: slices.Repeat([]corev1.PodCondition{{Type: "a"}}, n)}}
		}},
		"bytes of a taint's value": {store.Nodes, func(n int) store.Object {
			return &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Value: strings.Repeat("x", 317-controlplane.MostEntries+n), Effect: "NoExecute"}}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{controlplane.MostEntries, controlplane.MostEntries + 1} {
				o, stored := c.build(n), "n"
				o.SetName("n")
				if pod, is := o.(*corev1.Pod); is {
					pod.Namespace, pod.Spec.NodeName = "a", "h"
					stored = "h/a/n"
				}
				value, err := json.Marshal(o)
				if err != nil {
					t.Fatal(err)
				}
				left := controlplane.MostValues
				_, err = c.kind.Decode(stored, value, "1", &left)
				if n > controlplane.MostEntries != errors.Is(err, store.ErrUnreadable) || n <= controlplane.MostEntries && err != nil {
					t.Errorf("Decode() of %d = %v", n, err)
				}
			}
		})
	}
}

// TestWhatNobodyCouldDeleteIsNotRead has names and UIDs that calls do not accept, or that cannot be shown.
func TestWhatNobodyCouldDeleteIsNotRead(t *testing.T) {
	pods := store.Pods(true)
	for _, c := range []struct {
		kind      store.Kind
		name, uid string
		readable  bool
	}{
		{store.Nodes, "n", "6f3e1a0e-1111-4222-8333-abcdefabcdef", true},
		{store.Nodes, "n", "", true},
		{store.Nodes, "n", "nodes/n", true},
		{store.Nodes, "n", "a\u0007", false},
		{store.Nodes, "n", "a b", false},
		{store.Nodes, "n", strings.Repeat("u", 64), true},
		{store.Nodes, "n", strings.Repeat("u", 65), false},
		{store.Nodes.Metadata(), "n", strings.Repeat("u", 65), false},
		{store.Nodes, "a%b", "u", false},
		{store.Nodes, "A_b", "u", false},
		{store.Leases, "a%b", "u", false},
		{pods, "h/shop/p", "compose:" + strings.Repeat("u", 309), true},
		{pods, "h/shop/p", strings.Repeat("u", 318), false},
		{pods, "h/shop/p", "a+b=@", true},
		{pods, "h/shop/a%b", "u", false},
		{pods, "h/shop/..", "u", false},
		{pods, "h/shop/" + strings.Repeat("a", 254), "u", false},
		{pods, "h/shop/A_b", "u", true},
		{store.Below("things"), "shop/a%b", "u", false},
		{store.Below("things"), "a%b", "u", false},
		{store.Below("things"), "a", "u", true},
	} {
		parts := strings.Split(c.name, "/")
		namespace := ""
		if len(parts) > 1 {
			namespace = parts[len(parts)-2]
		}
		value := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q,"uid":"%s"},"spec":{"nodeName":%q}}`, parts[len(parts)-1], namespace, c.uid, parts[0])
		if c.kind.GVK.Empty() {
			value = `{"apiVersion":"v1","kind":"Thing",` + value[1:]
		}
		left := controlplane.MostValues
		if _, err := c.kind.Decode(c.name, []byte(value), "1", &left); c.readable && err != nil || !c.readable && !errors.Is(err, store.ErrUnreadable) {
			t.Errorf("Decode() of %s %q with UID %q = %v", c.kind.Name, c.name, c.uid, err)
		}
	}
}

// TestTimesThatCannotBeWrittenAreNotRead has times that are in range only in their own zone.
func TestTimesThatCannotBeWrittenAreNotRead(t *testing.T) {
	for text, kind := range map[string]store.Kind{
		`"metadata":{"name":"n","creationTimestamp":%q}`:                                                                 store.Nodes,
		`"metadata":{"name":"n","deletionTimestamp":%q}`:                                                                 store.Nodes.Metadata(),
		`"metadata":{"name":"n"},"spec":{"taints":[{"key":"a","timeAdded":%q}]}`:                                         store.Nodes,
		`"metadata":{"name":"n"},"status":{"conditions":[{"lastTransitionTime":%q}]}`:                                    store.Nodes,
		`"metadata":{"name":"n"},"status":{"conditions":[{"lastHeartbeatTime":%q}]}`:                                     store.Nodes,
		`"metadata":{"name":"n","namespace":"n"},"spec":{"nodeName":"n"},"status":{"conditions":[{"lastProbeTime":%q}]}`: store.Pods(true),
		`"metadata":{"name":"n"},"spec":{"renewTime":%q}`:                                                                store.Leases,
	} {
		name := "n"
		if kind.Name == store.Pods(true).Name {
			name = "n/n/n"
		}
		for at, readable := range map[string]bool{
			"2026-01-01T00:00:00.000000Z": true, "9999-12-31T23:59:59.000000Z": true,
			"9999-12-31T23:59:59.000000-01:00": false, "0000-01-01T00:00:00.000000+01:00": false,
		} {
			left := controlplane.MostValues
			_, err := kind.Decode(name, []byte("{"+fmt.Sprintf(text, at)+"}"), "1", &left)
			if readable && err != nil || !readable && !errors.Is(err, store.ErrUnreadable) {
				t.Errorf("Decode() of %s with %s = %v", text, at, err)
			}
		}
	}
}

// TestLargeObjectsOfHostsAreNotRead has objects of hosts, and of people.
func TestLargeObjectsOfHostsAreNotRead(t *testing.T) {
	large := strings.Repeat("<", 1<<20)
	for name, c := range map[string]struct {
		kind           store.Kind
		stored, object string
		readable       bool
	}{
		"Node":              {store.Nodes, "n", `{"metadata":{"name":"n","annotations":{"a":%q}}}`, false},
		"Node that grows":   {store.Nodes, "n", `{"metadata":{"name":"n","annotations":{"a":"` + strings.Repeat("\u2028", 200<<10) + `"}}}`, false},
		"no UTF-8":          {store.Nodes, "n", `{"metadata":{"name":"n","annotations":{"a":"` + "\xff" + `"}}}`, false},
		"a Node that fits":  {store.Nodes, "n", `{"metadata":{"name":"n","annotations":{"a":"` + strings.Repeat("<", 1000<<10) + `"}}}`, true},
		"its metadata":      {store.Nodes.Metadata(), "n", `{"metadata":{"name":"n","annotations":{"a":%q}}}`, false},
		"Lease":             {store.Leases, "n", `{"metadata":{"name":"n","annotations":{"a":%q}}}`, false},
		"pod":               {store.Objects, "pods/h/s/n", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","namespace":"s","annotations":{"a":%q}}}`, false},
		"many containers":   {store.Pods(true), "h/s/n", `{"metadata":{"name":"n","namespace":"s"},"spec":{"nodeName":"h","containers":[` + strings.Repeat("{},", 5000) + `{}]}}`, false},
		"many in metadata":  {store.Objects, "pods/h/s/n", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"n","namespace":"s"},"spec":{"containers":[` + strings.Repeat("{},", 5000) + `{}]}}`, false},
		"many images":       {store.Nodes, "n", `{"metadata":{"name":"n"},"status":{"images":[` + strings.Repeat("{},", 70000) + `{}]}}`, false},
		"all images":        {store.Nodes, "n", `{"metadata":{"name":"n"},"status":{"images":[` + strings.Repeat(`{"names":["a","b"],"sizeBytes":1},`, 5000) + `{}]}}`, true},
		"people's values":   {store.Objects, "things/n", `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"n"},"spec":{"a":[` + strings.Repeat("{},", 70000) + `{}]}}`, true},
		"an object of ours": {store.Objects, "things/n", `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"n","annotations":{"a":%q}}}`, true},
	} {
		left := controlplane.MostValues
		if _, err := c.kind.Decode(c.stored, []byte(strings.ReplaceAll(c.object, "%q", `"`+large+`"`)), "1", &left); c.readable != (err == nil) || err != nil && !errors.Is(err, store.ErrUnreadable) {
			t.Errorf("%s: Decode() = %v", name, err)
		}
	}
}
