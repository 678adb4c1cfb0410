//go:build integration

package fleet_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"hostler.io/hostler/controlplane/server/answer"
	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// The objects of each policy.
const (
	owners    = 50
	perOwner  = 100
	collector = "system:serviceaccount:kube-system:generic-garbage-collector"
)

// BenchmarkGarbageOnKubernetes deletes owners of 5,000 ConfigMaps with each policy, in a cluster
// with the collector of kube-controller-manager, and in one with hostler server's.
func BenchmarkGarbageOnKubernetes(b *testing.B) {
	fmt.Println("collector                policy      seconds  requests  CPU s  RSS MB")
	for _, c := range []struct{ name, controllers string }{
		{"kube-controller-manager", "garbage-collector-controller,serviceaccount-controller,serviceaccount-token-controller"},
		{"hostler server", "serviceaccount-controller,serviceaccount-token-controller"},
	} {
		b.Run(c.name, func(b *testing.B) {
			cluster := kube.For(b, kube.Options{
				ControllerManager:      true,
				ControllerManagerFlags: []string{"--controllers=" + c.controllers, "--profiling=false"},
				EtcdFlags:              []string{quota},
			})
			config, err := clientcmd.BuildConfigFromFlags("", cluster.AdminKubeconfig())
			check(b, err)
			client, err := rest.HTTPClientFor(config)
			check(b, err)
			g := &garbage{b, cluster, client, config.Host}
			if c.name == "hostler server" {
				g.measure(c.name, g.serve(), []string{"hostler-server"})
			} else {
				g.measure(c.name, cluster.ControllerManager.PID(), []string{collector, "system:serviceaccount:kube-system:metadata-informers"})
			}
		})
	}
}

// serve starts a hostler server, and returns its PID.
func (g *garbage) serve() (pid int) {
	binary := filepath.Join(g.b.TempDir(), "hostler")
	check(g.b, lab.Build(g.b.Context(), "hostler.io/hostler", version, binary))
	check(g.b, g.cluster.ApplyFiles(g.b.Context(), "../../../packaging/kubernetes/server-rbac*.yaml"))
	file, err := g.cluster.Kubeconfig(kube.User{Name: "hostler-server"})
	check(g.b, err)
	r := startReplicaOf(g.b, binary, fmt.Sprintf("store: {type: kubernetes, kubernetes: {kubeconfig: %s}}\ncontrollers: [garbage-collector]", file))
	r.await("it leads", func(a answer.Status) bool {
		return slices.ContainsFunc(a.Controllers, func(c answer.Controller) bool { return c.Name == "garbage-collector" && c.State == answer.Leading })
	})
	return r.cmd.Process.Pid
}

// garbage is a cluster with objects to delete.
type garbage struct {
	b       *testing.B
	cluster *kube.Cluster
	client  *http.Client
	server  string
}

// measure prints the cost of a collector for each policy.
func (g *garbage) measure(name string, pid int, users []string) {
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		namespace := strings.ToLower(fmt.Sprintf("%s-%s", strings.ReplaceAll(name, " ", "-"), policy))
		g.create(namespace)
		time.Sleep(10 * time.Second) // the collector has seen them by then
		s := standing{b: g.b}
		begin, cpu := time.Now(), s.stat(pid).CPUTime()
		g.delete(namespace, policy)
		g.await(namespace, policy)
		took, stat := time.Since(begin), s.stat(pid)
		all, err := g.cluster.Requests()
		check(g.b, err)
		requests := 0
		for _, r := range all {
			if slices.Contains(users, r.User) && r.Time.After(begin) {
				requests++
			}
		}
		fmt.Printf("%-23s  %-10s  %7.1f  %8d  %5.1f  %6.1f\n", name, policy, took.Seconds(), requests, stat.CPUTime()-cpu, float64(stat.ResidentMemory())/1e6)
	}
}

// ask makes a request, and returns the answer.
func (g *garbage) ask(method, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(g.b.Context(), method, g.server+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := g.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s %s: %s: %s", method, path, response.Status, answer)
	}
	return answer, err
}

// configMap returns a ConfigMap, with an owner if that has a UID.
func configMap(name string, owner metav1.PartialObjectMetadata) map[string]any {
	metadata := map[string]any{"name": name}
	if owner.UID != "" {
		metadata["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": owner.Name, "uid": owner.UID, "blockOwnerDeletion": true}}
	}
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
}

func (g *garbage) create(namespace string) {
	g.b.Helper()
	_, err := g.ask(http.MethodPost, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}})
	check(g.b, err)
	all := errgroup.Group{}
	all.SetLimit(20)
	for i := range owners {
		all.Go(func() error {
			text, err := g.ask(http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps", configMap(fmt.Sprintf("owner-%d", i), metav1.PartialObjectMetadata{}))
			var owner metav1.PartialObjectMetadata
			if err == nil {
				err = json.Unmarshal(text, &owner)
			}
			for k := 0; k < perOwner && err == nil; k++ {
				_, err = g.ask(http.MethodPost, "/api/v1/namespaces/"+namespace+"/configmaps", configMap(fmt.Sprintf("dependent-%d-%d", i, k), owner))
			}
			return err
		})
	}
	check(g.b, all.Wait())
}

func (g *garbage) delete(namespace string, policy metav1.DeletionPropagation) {
	g.b.Helper()
	all := errgroup.Group{}
	all.SetLimit(20)
	for i := range owners {
		all.Go(func() error {
			_, err := g.ask(http.MethodDelete, fmt.Sprintf("/api/v1/namespaces/%s/configmaps/owner-%d", namespace, i), map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy})
			return err
		})
	}
	check(g.b, all.Wait())
}

// await waits until the owners are deleted, and their dependents or the references to them.
func (g *garbage) await(namespace string, policy metav1.DeletionPropagation) {
	g.b.Helper()
	left := ""
	for deadline := time.Now().Add(15 * time.Minute); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		text, err := g.ask(http.MethodGet, "/api/v1/namespaces/"+namespace+"/configmaps?resourceVersion=0", nil)
		check(g.b, err)
		var list metav1.PartialObjectMetadataList
		check(g.b, json.Unmarshal(text, &list))
		dependents, due := 0, 0
		for _, o := range list.Items {
			switch {
			case strings.HasPrefix(o.Name, "owner-"), len(o.OwnerReferences) > 0:
				due++
			case strings.HasPrefix(o.Name, "dependent-"):
				dependents++
			}
		}
		if due == 0 {
			if policy == metav1.DeletePropagationOrphan && dependents != owners*perOwner {
				g.b.Errorf("%d orphans are left, want %d", dependents, owners*perOwner)
			}
			return
		}
		left = fmt.Sprintf("%d objects are not done, such as %s", due, list.Items[0].Name)
	}
	g.b.Fatalf("%s after 15 minutes: %s", namespace, left)
}
