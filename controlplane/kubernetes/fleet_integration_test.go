//go:build integration

package kubernetes_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/controlplane/store/storetest"
	"hostler.io/hostler/test/kube"
)

// kubectl runs kubectl as the administrator.
func kubectl(t *testing.T, cluster *kube.Cluster, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTheFleetKeepsItsPromises(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	kubectl(t, cluster, "create", "namespace", kubernetes.DefaultNamespace)
	kubectl(t, cluster, "create", "serviceaccount", "default") // kube-controller-manager creates it in a real cluster
	agents := open(t, cluster.AdminKubeconfig())
	put := func(ctx context.Context, kind store.Kind, o store.Object) error {
		if lease, ok := o.(*coordinationv1.Lease); ok {
			_, err := agents.RenewLease(ctx, lease)
			return err
		}
		if node, ok := o.(*corev1.Node); ok {
			_, err := agents.Register(ctx, node, controlplane.RegisterOptions{})
			return err
		}
		value, err := kind.Encode(o)
		if err != nil {
			return err
		}
		return cluster.Apply(ctx, string(value))
	}
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		t.Cleanup(func() {
			for _, all := range [][]string{{"pods", "--force"}, {"nodes"}, {"leases", "-n", controlplane.LeaseNamespace}, {"leases", "-n", kubernetes.DefaultNamespace}} {
				if _, err := cluster.Kubectl(context.Background(), append([]string{"delete", "--all"}, all...)...); err != nil {
					t.Error(err)
				}
			}
		})
		return storetest.Backend{
			Store: openFleet(t, cluster.AdminKubeconfig(), "fleet"),
			Another: func(t *testing.T) store.Store {
				return openFleet(t, cluster.AdminKubeconfig(), "fleet")
			},
			Put: put,
			PutUnreadable: func(ctx context.Context, kind store.Kind, name string) error {
				if _, err := agents.Node(ctx, name); errors.Is(err, controlplane.ErrNotFound) {
					if err := put(ctx, kind, newNode(name)); err != nil {
						return err
					}
				}
				huge := cluster.KubectlCommand(ctx, "replace", "--raw", "/api/v1/nodes/"+name+"/status", "-f", "-")
				huge.Stdin = strings.NewReader(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"` + name + `"},"status":{"images":[{}` + strings.Repeat(",{}", 340_000) + `]}}`)
				return huge.Run()
			},
		}
	})
}

func TestAnUpdateMakesARequestForEachPart(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	mustRegister(t, open(t, cluster.AdminKubeconfig()), newNode("n"), controlplane.RegisterOptions{})
	fleet := openFleet(t, cluster.AdminKubeconfig(), "fleet")
	made := 0
	for _, c := range []struct {
		what string
		edit func(*corev1.Node)
		want []string
	}{
		{"nothing", func(*corev1.Node) {}, []string{"get nodes n 200"}},
		{"spec", func(n *corev1.Node) { n.Spec.Unschedulable = true }, []string{"get nodes n 200", "patch nodes n 200"}},
		{
			"the status", func(n *corev1.Node) { n.Status.Conditions = conditions("Ready") },
			[]string{"get nodes n 200", "patch nodes/status n 200"},
		},
		{
			"both", func(n *corev1.Node) {
				n.Status.Conditions, n.Annotations = conditions("Ready", "Backup"), map[string]string{"example.com/a": "b"}
			},
			[]string{"get nodes n 200", "patch nodes/status n 200", "patch nodes n 200"},
		},
	} {
		o, err := fleet.Update(patient(t), store.Nodes, "n", store.Preconditions{}, func(o store.Object) error {
			c.edit(o.(*corev1.Node))
			return nil
		})
		if err != nil {
			t.Fatalf("Update() of %s = %v, want no error", c.what, err)
		}
		if stored := kubectl(t, cluster, "get", "node", "n", "-o", "jsonpath={.metadata.resourceVersion}"); stored != o.GetResourceVersion() {
			t.Errorf("version after an update of %s = %s, want %s as stored", c.what, o.GetResourceVersion(), stored)
		}
		requests, err := cluster.Requests()
		if err != nil {
			t.Fatal(err)
		}
		var own []string
		for _, r := range requests {
			if strings.HasPrefix(r.UserAgent, "hostler/fleet ") {
				own = append(own, r.String())
			}
		}
		if got := own[made:]; !slices.Equal(got, c.want) {
			t.Errorf("requests of an update of %s = %q, want %q", c.what, got, c.want)
		}
		made = len(own)
	}
}

func TestAFleetInTrouble(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	fleet := openFleet(t, cluster.AdminKubeconfig(), "fleet")
	if _, _, err := fleet.Elect(patient(t), "c", "x", time.Minute); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), "kubectl create namespace "+kubernetes.DefaultNamespace) {
		t.Errorf("Elect() without the namespace = %v, want the command that creates it", err)
	}
	if err := served(t, func() error { return fleet.Ping(t.Context()) }); err != nil {
		t.Errorf("Ping() = %v, want no error", err)
	}
	if err := cluster.Etcd.Pause(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := fleet.Ping(t.Context())
	took := time.Since(began)
	if resumed := cluster.Etcd.Continue(); resumed != nil {
		t.Fatal(resumed)
	}
	if !errors.Is(err, controlplane.ErrUnavailable) || took > patience/2 {
		t.Errorf("Ping() while etcd hangs = %v after %v, want it unavailable after 2 s", err, took)
	}
}

// Whoever may create pods in one namespace must not hide the pods of others, or stop their evictions.
func TestAnObjectThatIsTooLargeHidesNoOther(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{})
	kubectl(t, cluster, "create", "serviceaccount", "default")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for name, arguments := range map[string]int{"a": 0, "b": controlplane.MostValues, "c": 0} {
		pod := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"default"},"spec":{"containers":[{"name":"c","image":"x","args":[""%s]}]}}`, name, strings.Repeat(`,""`, arguments))
		create := cluster.KubectlCommand(ctx, "create", "--raw", "/api/v1/namespaces/default/pods", "-f", "-")
		create.Stdin = strings.NewReader(pod)
		if text, err := create.CombinedOutput(); err != nil {
			t.Fatalf("create %s: %v: %.300s", name, err, text)
		}
	}
	var calls []string
	seen := &reports{last: func(call string) {
		words := strings.Fields(call)
		calls = append(calls, strings.Join(words[:min(2, len(words))], " "))
		change := func(name string) { kubectl(t, cluster, "label", "pod", name, "x=y") }
		switch len(calls) {
		case 5: // all were listed
			change("b")
		case 6:
			change("a")
		case 7:
			cancel()
		}
	}}
	if err := openFleet(t, cluster.AdminKubeconfig(), "fleet").Follow(ctx, store.Pods(false), store.AllChanges, seen); !errors.Is(err, context.Canceled) {
		t.Errorf("Follow() = %v, want that its context has ended", err)
	}
	want := []string{"begin", "set default/a", "unreadable default/b", "set default/c", "synced", "unreadable default/b", "set default/a"}
	if !slices.Equal(calls, want) {
		t.Errorf("calls = %q, want %q", calls, want)
	}
}
