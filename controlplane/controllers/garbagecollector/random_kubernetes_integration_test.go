//go:build integration

package garbagecollector_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/controllers/garbagecollector"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/store"
	"hostler.io/hostler/test/kube"
)

// registry is what the keys of kube-apiserver begin with.
const registry = "/registry"

// partType has parts, of which the API server knows no more than that they have a namespace.
const partType = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: parts.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Part, plural: parts}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// TestRandomOperationsOnKubernetesAreCollectedByTheRules has people change objects at random on a
// kube-apiserver without kube-controller-manager, while collectors and the API server are killed. What the
// collectors see is late at times, each kind by itself, and some of them cannot list parts at times. The
// model judges each write of a collector in the order of etcd's revisions, exactly but for two windows,
// where the API server cannot compare another object in a write:
//
//   - A dependent was created, or got its reference, after the last change of its owner, and before the
//     collector removed the owner's finalizer: see model.until. It is deleted or orphaned later.
//   - A person has changed how the deletion of an owner is carried out after the collector has read the
//     owner, and before its write to a dependent: see model.excuses.
func TestRandomOperationsOnKubernetesAreCollectedByTheRules(t *testing.T) {
	operations := operations(1000, 20_000)
	cluster, create, server := kubeCluster(t, "--storage-media-type=application/json")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + cluster.EtcdSocket()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	o := newObserver(client, registry, kubePlace{}.rules(), func(key string) string {
		folder, name := path.Split(key)
		for _, k := range kubeKinds {
			if strings.HasPrefix(folder, k.key) && strings.HasPrefix(name, kubeName) {
				return k.Folder() + strings.TrimPrefix(key, k.key)
			}
		}
		return ""
	})
	defer o.start(t)()
	crowd := &people{
		store: kubeFleet(t, cluster.AdminKubeconfig()), place: kubePlace{}, names: 4, claims: o.model.claims,
		create: create,
	}
	kubeFirst(t, crowd)
	done := crowd.work(t, operations)
	start := func(name string) running {
		p := &kubeProcess{Fleet: kubeFleet(t, server), quiet: done, fails: rand.IntN(3) == 0}
		return running{collect(t, p, name), p.kill}
	}
	depose := trouble{"leaders deposed", func() error {
		_, err := cluster.Kubectl(t.Context(), "delete", "lease", "-n", kubernetes.DefaultNamespace, "--ignore-not-found", "hostler-"+garbagecollector.Name)
		return err
	}}
	killServer := trouble{"kills of the API server", func() error {
		return errors.Join(cluster.APIServer.Kill(), cluster.APIServer.Start(), cluster.Ready(t.Context()))
	}}
	pause, troubles := time.Second, []trouble{depose, killLeader, depose}
	if operations >= 10_000 {
		pause, troubles = 6*time.Second, []trouble{killLeader, depose, depose, killLeader, depose, killServer}
	}
	counts := disturb(t, 2, start, pause, troubles, done)
	t.Logf("%d operations were stored, and there were %v", crowd.made.Load(), counts)
	o.settle(t, crowd)
}

// creator stores an object.
type creator func(ctx context.Context, kind store.Kind, name string, o *metav1.PartialObjectMetadata) error

// kubeCluster starts a cluster with the namespaces n and m, and with Parts. server is the kubeconfig with the rights
// of a server.
func kubeCluster(t *testing.T, flags ...string) (cluster *kube.Cluster, create creator, server string) {
	t.Helper()
	cluster = kube.For(t, kube.Options{APIServerFlags: flags})
	if err := errors.Join(
		cluster.ApplyFiles(t.Context(), "../../../packaging/kubernetes/server-rbac*.yaml"),
		cluster.Apply(t.Context(), namespace("n")+"---\n"+namespace("m")),
	); err != nil {
		t.Fatal(err)
	}
	kubeParts(t, cluster)
	config, err := clientcmd.BuildConfigFromFlags("", cluster.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	admin, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	if server, err = cluster.Kubeconfig(kube.User{Name: "hostler-server"}); err != nil {
		t.Fatal(err)
	}
	return cluster, kubeCreate(admin, config.Host), server
}

// kubeParts registers the type of Parts.
func kubeParts(t *testing.T, cluster *kube.Cluster) {
	t.Helper()
	if err := cluster.Apply(t.Context(), partType); err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Kubectl(t.Context(), "wait", "--for=condition=established", "crd/parts.example.com", "--timeout=5m"); err != nil {
		t.Fatal(err)
	}
}

func namespace(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %q}\n", name)
}

func kubeFleet(t testing.TB, kubeconfig string) *kubernetes.Fleet {
	t.Helper()
	f, err := kubernetes.NewFleet(kubernetes.Options{Kubeconfig: kubeconfig, Version: "1.2.3", Log: slogDiscard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// kubeProcess is a store as one process has it that can be killed. The watch of each kind of people's objects is
// late at times, by itself.
type kubeProcess struct {
	*kubernetes.Fleet
	fails  bool            // it cannot list parts at times
	quiet  <-chan struct{} // closed when nothing fails any more
	killed atomic.Bool
}

// Follow implements store.Store.
func (p *kubeProcess) Follow(ctx context.Context, kind store.Kind, scope store.Scope, to store.Follower) error {
	if !slices.ContainsFunc(kubeKinds, func(k kubeKind) bool { return k.Name == kind.Name }) {
		return p.Fleet.Follow(ctx, kind, scope, to)
	}
	tracker, _ := to.(store.Tracker)
	to = &late{Tracker: tracker, Rand: rand.New(rand.NewPCG(rand.Uint64(), 0))}
	select {
	case <-p.quiet:
		return p.Fleet.Follow(ctx, kind, scope, to)
	default:
	}
	if p.fails && kind.Name == parts.Name {
		if rand.IntN(2) == 0 {
			return controlplane.ErrUnavailable
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, time.Duration(rand.IntN(4000))*time.Millisecond, controlplane.ErrUnavailable)
		defer cancel()
	}
	return p.Fleet.Follow(ctx, kind, scope, to)
}

// kill cuts all connections.
func (p *kubeProcess) kill() {
	p.killed.Store(true)
	_ = p.Close()
}

// Resign implements store.Elector: a process that was killed does not resign.
func (p *kubeProcess) Resign(ctx context.Context, term store.Term) error {
	if p.killed.Load() {
		return controlplane.ErrUnavailable
	}
	return p.Fleet.Resign(ctx, term)
}

// kubeKind is a kind of objects that people change.
type kubeKind struct {
	store.Kind
	key, url string // where its objects are, in etcd and on the API server
}

// kubeName is what names of people's objects begin with.
const kubeName = "of-people-"

var (
	configMaps   = kubeKind{namespaced("configmaps", schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}), "configmaps/", "/api/v1/namespaces/%s/configmaps"}
	parts        = kubeKind{namespaced("parts.example.com", schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Part"}), "example.com/parts/", "/apis/example.com/v1/namespaces/%s/parts"}
	clusterRoles = kubeKind{store.Kind{
		Name: "clusterroles.rbac.authorization.k8s.io", GVK: schema.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"},
	}.Metadata(), "clusterroles/", "/apis/rbac.authorization.k8s.io/v1/clusterroles"}
	kubeKinds = []kubeKind{configMaps, parts, clusterRoles}
)

func namespaced(name string, gvk schema.GroupVersionKind) store.Kind {
	return store.Kind{Name: name, GVK: gvk, NameOf: func(o store.Object) string { return o.GetNamespace() + "/" + o.GetName() }}.Metadata()
}

// kubePlace has ConfigMaps and custom objects in two namespaces, and ClusterRoles, which have none.
type kubePlace struct{}

func (kubePlace) rules() rules {
	return rules{server: true, namespaced: []schema.GroupKind{configMaps.GVK.GroupKind(), parts.GVK.GroupKind()}, unlisted: parts.GVK.GroupKind()}
}

func (kubePlace) target(p *person) (store.Kind, string) {
	switch n := p.IntN(20); {
	case n < 4:
		return parts.Kind, fmt.Sprintf("%c/%s%c", "nm"[p.IntN(2)], kubeName, 'a'+p.IntN(4*p.names))
	case n < 10:
		return configMaps.Kind, fmt.Sprintf("n/%s%c", kubeName, 'a'+p.IntN(5*p.names))
	case n < 14:
		return configMaps.Kind, fmt.Sprintf("m/%s%c", kubeName, 'a'+p.IntN(3*p.names))
	}
	return clusterRoles.Kind, fmt.Sprintf("%s%c", kubeName, 'a'+p.IntN(6*p.names))
}

func (kubePlace) object(_ *person, kind store.Kind, name string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(kind.GVK)
	o.Namespace, o.Name = path.Split(name)
	o.Namespace = strings.TrimSuffix(o.Namespace, "/")
	return o
}

func (kubePlace) at(of string) (store.Kind, string) {
	i := slices.IndexFunc(kubeKinds, func(k kubeKind) bool { return strings.HasPrefix(of, k.Folder()) })
	return kubeKinds[i].Kind, strings.TrimPrefix(of, kubeKinds[i].Folder())
}

// kubeFirst creates dependents of each type in each kind. A collector checks no kind for dependents that it has
// not seen yet, of which it knows no dependents of such owners.
func kubeFirst(t *testing.T, crowd *people) {
	var refs []metav1.OwnerReference
	for _, name := range []string{"owner", "dependent"} {
		for _, k := range slices.Backward(kubeKinds) { // ClusterRoles first
			o := kubePlace{}.object(nil, k.Kind, name)
			if k.NameOf != nil {
				o.Namespace = "n"
			}
			if name == "dependent" {
				o.OwnerReferences = refs
				if k.NameOf == nil {
					o.OwnerReferences = refs[:1]
				}
			}
			if err := crowd.create(t.Context(), k.Kind, name, o); err != nil {
				t.Fatal(err)
			}
			if name == "owner" {
				refs = append(refs, metav1.OwnerReference{APIVersion: o.APIVersion, Kind: o.Kind, Name: name, UID: o.UID})
			}
		}
	}
}

// kubeCreate posts objects. The API server gives them their UIDs.
func kubeCreate(client *http.Client, host string) creator {
	return func(ctx context.Context, kind store.Kind, _ string, o *metav1.PartialObjectMetadata) error {
		url := kubeKinds[slices.IndexFunc(kubeKinds, func(k kubeKind) bool { return k.Name == kind.Name })].url
		if o.Namespace != "" {
			url = fmt.Sprintf(url, o.Namespace)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, host+url, bytes.NewBufferString(text(o)))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		answer, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusCreated {
			return fmt.Errorf("create %s/%s: %s: %s", kind.Name, o.Name, response.Status, answer)
		}
		return json.Unmarshal(answer, o)
	}
}
