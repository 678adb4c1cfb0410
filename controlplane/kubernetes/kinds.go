package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// aggregated requests all resources of the server in one answer, as Kubernetes 1.30 and later
// support.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// Kinds returns the kinds whose objects can have owners, metadata only, each with the version that
// the server prefers. Events are left out: they expire, and there are many. stale reports whether a
// kind that is not returned may still exist, because the server that has it does not answer.
func (f *Fleet) Kinds(ctx context.Context) (kinds []store.Kind, stale func(store.Kind) bool, err error) {
	ctx, cancel := controlplane.Bound(ctx, callTimeout)
	defer cancel()
	outdated := map[string]bool{} // by group
	for _, root := range []string{"/api", "/apis"} {
		list, err := f.discover(ctx, root)
		if err != nil {
			return nil, nil, err
		}
		for _, group := range list.Items {
			for _, version := range group.Versions {
				outdated[group.Name] = outdated[group.Name] || version.Freshness == apidiscoveryv2.DiscoveryFreshnessStale
				for _, resource := range version.Resources {
					if k, ok := kindOf(schema.GroupVersion{Group: group.Name, Version: version.Version}, resource); ok {
						kinds = append(kinds, k)
					}
				}
			}
		}
	}
	return kinds, func(k store.Kind) bool { return outdated[k.GVK.Group] }, nil
}

// discover reads the resources of the server.
func (f *Fleet) discover(ctx context.Context, root string) (*apidiscoveryv2.APIGroupDiscoveryList, error) {
	operation := "discover " + root
	result, err := f.all.do(ctx, func(r rest.Interface) *rest.Request {
		return r.Get().AbsPath(root).SetHeader("Accept", aggregated)
	})
	if err != nil {
		return nil, f.client.fault(ctx, operation, err)
	}
	list, text := &apidiscoveryv2.APIGroupDiscoveryList{}, []byte(nil)
	if text, err = result.Raw(); err == nil {
		if values, _ := controlplane.CountValues(text); values > controlplane.MostValues {
			return nil, f.client.fault(ctx, operation, &sizeError{server: "the server", most: fmt.Sprintf("%d values", controlplane.MostValues)})
		}
		err = json.Unmarshal(text, list)
	}
	if err == nil && list.Kind != "APIGroupDiscoveryList" {
		err = errors.New("the server does not list its resources in one answer: it needs Kubernetes 1.30")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", operation, controlplane.ErrUnavailable, err)
	}
	return list, nil
}

// kindOf returns the kind of a resource; false if it cannot be listed, watched and deleted.
func kindOf(version schema.GroupVersion, resource apidiscoveryv2.APIResourceDiscovery) (store.Kind, bool) {
	for _, verb := range []string{"delete", "get", "list", "watch"} {
		if !slices.Contains(resource.Verbs, verb) {
			return store.Kind{}, false
		}
	}
	if resource.ResponseKind == nil || resource.Resource == "events" && (version.Group == "" || version.Group == "events.k8s.io") {
		return store.Kind{}, false
	}
	k := store.Kind{
		Name: schema.GroupResource{Group: version.Group, Resource: resource.Resource}.String(),
		GVK:  version.WithKind(resource.ResponseKind.Kind), New: func() store.Object { return &metav1.PartialObjectMetadata{} },
	}
	if resource.Scope == apidiscoveryv2.ScopeNamespace {
		k.NameOf = func(o store.Object) string { return o.GetNamespace() + "/" + o.GetName() }
	}
	return k, true
}

// metadataOnly reports whether only the metadata of a kind's objects is read.
func metadataOnly(kind store.Kind) bool {
	_, is := kind.New().(*metav1.PartialObjectMetadata)
	return is
}

// of sets the resource of a request to a kind.
func of(kind store.Kind, r *rest.Request, answer string) *rest.Request {
	root := []string{"/apis", kind.GVK.Group, kind.GVK.Version}
	if kind.GVK.Group == "" {
		root = []string{"/api", kind.GVK.Version}
	}
	resource, _, _ := strings.Cut(kind.Name, ".")
	r = r.AbsPath(root...).NamespaceIfScoped(kind.Namespace, kind.Namespace != "").Resource(resource)
	if metadataOnly(kind) {
		const format = ";as=%s;g=meta.k8s.io;v=v1"
		r = r.SetHeader("Accept", fmt.Sprintf(protobuf+format+",application/json"+format, answer, answer))
	}
	return r
}

// at sets the object of a request, by its stored name.
func at(kind store.Kind, r *rest.Request, name string) *rest.Request {
	r = of(kind, r, "PartialObjectMetadata")
	if kind.NameOf == nil {
		return r.Name(name)
	}
	namespace, own, _ := strings.Cut(name, "/")
	return r.Namespace(namespace).Name(own)
}
