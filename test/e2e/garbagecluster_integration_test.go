//go:build integration

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/test/kube"
)

// configMap returns a ConfigMap with an owner, such as "ConfigMap v1 owner UID"; without one if
// that is empty.
func configMap(name, owner string, more ...string) string {
	metadata := fmt.Sprintf("name: %s, namespace: default", name)
	if f := strings.Fields(owner); len(f) == 4 {
		metadata += fmt.Sprintf(", ownerReferences: [{kind: %s, apiVersion: %s, name: %s, uid: %s, blockOwnerDeletion: true}]", f[0], f[1], f[2], f[3])
	}
	if len(more) > 0 {
		metadata += ", " + strings.Join(more, ", ")
	}
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {%s}\n", metadata)
}

// widgets returns a type with those versions, of which the last one is stored. With two versions it
// has a conversion webhook that nobody serves.
func widgets(versions ...string) string {
	text := `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
`
	for i, v := range versions {
		text += fmt.Sprintf("  - {name: %s, served: true, storage: %v, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}\n", v, i == len(versions)-1)
	}
	if len(versions) > 1 {
		text += "  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: \"https://127.0.0.1:1/\"}}}\n"
	}
	return text
}

// owner returns the owner reference of an object for configMap.
func (c cluster) owner(kind, apiVersion, name string) string {
	c.t.Helper()
	return fmt.Sprintf("%s %s %s %s", kind, apiVersion, name, c.kubectl("get", strings.ToLower(kind), name, "-o", "jsonpath={.metadata.uid}"))
}

// configMaps waits until the test's ConfigMaps are exactly those.
func (c cluster) configMaps(want ...string) {
	c.t.Helper()
	last := ""
	defer func() {
		if c.t.Failed() {
			c.t.Logf("ConfigMaps were last %s", last)
		}
	}()
	eventually(c.t, fmt.Sprintf("there are the ConfigMaps %v", want), func() bool {
		var names []string
		var list corev1.ConfigMapList
		c.read("/api/v1/namespaces/default/configmaps", &list)
		for _, m := range list.Items {
			if m.Name != "kube-root-ca.crt" {
				names = append(names, m.Name)
			}
		}
		last = strings.Join(names, " ")
		return slices.Equal(names, want)
	})
}

// TestGarbageIsCollectedInACluster runs no kube-controller-manager.
func TestGarbageIsCollectedInACluster(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	s := startServer(t, c.served("controllers: [garbage-collector]"))
	eventually(t, "the server leads", func() bool { return strings.Contains(onOneLine(s.prints("status")), "garbage-collector Leading") })
	apply := func(texts ...string) {
		t.Helper()
		check(t, c.Apply(within(t), strings.Join(texts, "")))
	}

	apply(configMap("a", ""))
	owner := c.owner("ConfigMap", "v1", "a")
	apply(configMap("b", owner), configMap("gone", "ConfigMap v1 a 00000000-0000-4000-8000-000000000000"))
	c.configMaps("a", "b")
	c.kubectl("delete", "configmap", "a")
	c.configMaps()

	// In a foreground deletion, the owner waits for dependents with finalizers.
	apply(configMap("a", ""))
	apply(configMap("b", c.owner("ConfigMap", "v1", "a"), "finalizers: [example.com/f]"))
	c.kubectl("delete", "configmap", "a", "--cascade=foreground", "--wait=false")
	eventually(t, "b is being deleted", func() bool {
		return c.kubectl("get", "configmap", "b", "-o", "jsonpath={.metadata.deletionTimestamp}") != ""
	})
	c.configMaps("a", "b")
	c.kubectl("patch", "configmap", "b", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	c.configMaps()

	// Orphans stay, without the reference.
	apply(configMap("a", ""))
	apply(configMap("b", c.owner("ConfigMap", "v1", "a")))
	c.kubectl("delete", "configmap", "a", "--cascade=orphan")
	c.configMaps("b")
	if owners := c.kubectl("get", "configmap", "b", "-o", "jsonpath={.metadata.ownerReferences}"); owners != "" {
		t.Errorf("owners of an orphan = %s, want none", owners)
	}
	c.kubectl("delete", "configmap", "b")

	// A type that is registered later is included.
	apply(widgets("v1"))
	eventually(t, "the type is served", func() bool { return c.Apply(within(t), widget("v1", "w1")) == nil })
	apply(configMap("b", c.owner("Widget", "example.com/v1", "w1")), configMap("c", "Widget example.com/v1 w1 00000000-0000-4000-8000-000000000001"))
	c.configMaps("b")
	c.kubectl("delete", "widget", "w1")
	c.configMaps()

	// So are its own dependents, which have no strategic merge patch.
	apply(widget("v1", "w3"))
	_, uid, _ := strings.Cut(c.owner("Widget", "example.com/v1", "w3"), " w3 ")
	apply(strings.Replace(widget("v1", "w4"), "namespace: default", "namespace: default, ownerReferences: [{kind: Widget, apiVersion: example.com/v1, name: w3, uid: "+uid+"}]", 1))
	c.kubectl("delete", "widget", "w3", "--cascade=orphan")
	if owners := c.kubectl("get", "widget", "w4", "-o", "jsonpath={.metadata.ownerReferences}"); owners != "" {
		t.Errorf("owners of an orphan of a custom type = %s, want none", owners)
	}
	c.kubectl("delete", "widget", "w4")

	// A type whose conversion fails is read in the stored version.
	apply(widget("v1", "w1"), widgets("v2", "v1"))
	eventually(t, "another version is served", func() bool {
		_, err := c.Kubectl(within(t), "get", "widgets.v2.example.com")
		return err != nil && strings.Contains(err.Error(), "webhook")
	})
	owner = "Widget example.com/v1 w1 " + c.kubectl("get", "widgets.v1.example.com", "w1", "-o", "jsonpath={.metadata.uid}")
	apply(configMap("b", owner), configMap("c", "Widget example.com/v2 w1 00000000-0000-4000-8000-000000000002"))
	c.configMaps("b")

	// If it cannot be read in any version, the dependents of its objects stay. All others are deleted.
	apply(widgets("v1", "v2"))
	eventually(t, "v2 is stored", func() bool { return c.Apply(within(t), widget("v2", "w2")) == nil })
	s.says("widgets.example.com this kind cannot be listed")
	apply(configMap("d", "Widget example.com/v1 w9 00000000-0000-4000-8000-000000000003"), brokenAPI)
	apply(configMap("a", ""))
	apply(configMap("e", c.owner("ConfigMap", "v1", "a")))
	c.kubectl("delete", "configmap", "a", "--cascade=foreground")
	c.configMaps("b", "d")
	s.says("configmaps/default/d owner widgets/w9: widgets.example.com cannot be listed")

	// An orphan deletion waits for what may be a dependent: in other namespaces, there is none.
	apply("---\napiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n")
	elsewhere := func(text string) string { return strings.ReplaceAll(text, "namespace: default", "namespace: other") }
	apply(elsewhere(configMap("a", "")), configMap("a", ""))
	uid = c.kubectl("get", "configmap", "a", "-n", "other", "-o", "jsonpath={.metadata.uid}")
	apply(elsewhere(configMap("b", "ConfigMap v1 a "+uid)))
	c.kubectl("delete", "configmap", "a", "-n", "other", "--cascade=orphan")
	if owners := c.kubectl("get", "configmap", "b", "-n", "other", "-o", "jsonpath={.metadata.ownerReferences}"); owners != "" {
		t.Errorf("owners of an orphan in another namespace = %s, want none", owners)
	}
	c.kubectl("delete", "configmap", "a", "--cascade=orphan", "--wait=false")
	s.says("list widgets.example.com in namespace default:")
	c.configMaps("a", "b", "d")
	c.unrefused(serverUser)
}

// says waits until the status of the server contains these words.
func (s *server) says(words string) {
	s.t.Helper()
	last := ""
	defer func() {
		if s.t.Failed() {
			s.t.Logf("hostler fleet status was last\n%s", last)
		}
	}()
	eventually(s.t, "the status has "+words, func() bool {
		last = s.prints("status")
		return strings.Contains(onOneLine(last), words)
	})
}

func widget(version, name string) string {
	return fmt.Sprintf("---\napiVersion: example.com/%s\nkind: Widget\nmetadata: {name: %s, namespace: default}\n", version, name)
}

// brokenAPI is an aggregated API that nobody serves.
const brokenAPI = `---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.broken.example.com}
spec: {group: broken.example.com, version: v1, groupPriorityMinimum: 100, versionPriority: 100, insecureSkipTLSVerify: true, service: {namespace: default, name: none}}
`
