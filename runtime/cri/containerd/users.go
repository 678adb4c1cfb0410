package containerd

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"golang.org/x/sync/errgroup"

	"hostler.io/hostler/runtime"
)

// labelKind is a label that containerd's CRI sets on everything that it creates.
const labelKind = "io.cri-containerd.kind"

// ImageUsers lists users of CRI images that are not in the lists of CRI. They are other containers
// in the same namespace, such as those of `nerdctl --namespace k8s.io`, and containers of other
// namespaces with the same image. They are also pulls, imports and builds in progress, and
// containers that are being created, which CRI lists only afterwards.
func (s *Services) ImageUsers(ctx context.Context) ([]runtime.ImageUser, error) {
	var users [3][]runtime.ImageUser
	group, ctx := errgroup.WithContext(ctx)
	for i, ask := range [...]func(context.Context) ([]runtime.ImageUser, error){s.peers, s.otherNamespaces, s.imagesInProgress} {
		group.Go(func() (err error) {
			users[i], err = ask(ctx)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(users[:]...), nil
}

// peers lists containers in CRI's namespace that CRI did not create. Their image is found through
// their snapshot, because the image name may point to another image by now.
func (s *Services) peers(ctx context.Context) ([]runtime.ImageUser, error) {
	// Records contain whole container specs, so the filter excludes CRI's own containers.
	list, err := s.containersIn(ctx, CRINamespace, fmt.Sprintf("image,labels.%q!=container,labels.%q!=sandbox", labelKind, labelKind))
	if err != nil {
		return nil, err
	}
	var users []runtime.ImageUser
	for _, c := range list {
		if kind := c.GetLabels()[labelKind]; kind != "" || c.GetImage() == "" {
			continue
		}
		images, err := s.below(ctx, c.GetSnapshotter(), c.GetSnapshotKey())
		if err != nil {
			return nil, err
		}
		if len(images) == 0 {
			images = []string{c.GetImage()}
		}
		for _, image := range images {
			users = append(users, runtime.ImageUser{Image: image, By: "container " + c.GetID() + ", not managed by CRI"})
		}
	}
	return users, nil
}

// otherNamespaces lists containers in other namespaces whose image CRI also has, even under another
// name.
func (s *Services) otherNamespaces(ctx context.Context) ([]runtime.ImageUser, error) {
	by := map[string]string{} // digest of an image to its user
	err := s.eachNamespace(ctx, CRINamespace, func(name string) error { return s.otherNamespace(ctx, name, by) })
	if err != nil {
		return nil, err
	}
	if len(by) == 0 {
		return nil, nil
	}
	filters := make([]string, 0, len(by))
	for digest := range by {
		filters = append(filters, Equals("target.digest", digest))
	}
	records, err := s.Records(ctx, filters...)
	if err != nil {
		return nil, err
	}
	var users []runtime.ImageUser
	for _, record := range records {
		if who := by[record.GetTarget().GetDigest()]; who != "" {
			users = append(users, runtime.ImageUser{Image: record.GetName(), By: who})
		}
	}
	return users, nil
}

// eachNamespace calls visit for all namespaces except one.
func (s *Services) eachNamespace(ctx context.Context, but string, visit func(name string) error) error {
	var resp *namespaces.ListNamespacesResponse
	err := s.Call(ctx, "containerd.Namespaces.List", "list containerd's namespaces", func(ctx context.Context) (err error) {
		resp, err = namespaces.NewNamespacesClient(s.Conn).List(ctx, &namespaces.ListNamespacesRequest{})
		return err
	})
	if err != nil {
		return err
	}
	for _, ns := range resp.GetNamespaces() {
		if ns.GetName() == but {
			continue
		}
		if err := visit(ns.GetName()); err != nil {
			return err
		}
	}
	return nil
}

// otherNamespace adds the containers of one namespace, by the digest of their image.
func (s *Services) otherNamespace(ctx context.Context, namespace string, by map[string]string) error {
	// Docker's containers have no image name here, unless containerd stores Docker's images.
	list, err := s.containersIn(ctx, namespace, "image")
	if err != nil || len(list) == 0 {
		return err
	}
	users := map[string]string{} // name of an image to a container
	var filters []string
	for _, c := range list {
		if name := c.GetImage(); name != "" && users[name] == "" {
			users[name] = c.GetID()
			filters = append(filters, Equals("name", name))
		}
	}
	if len(filters) == 0 {
		return nil
	}
	records, err := s.records(ctx, namespace, filters...)
	if err != nil {
		return err
	}
	for _, record := range records {
		if id := users[record.GetName()]; id != "" {
			by[record.GetTarget().GetDigest()] = "container " + id + " in containerd's namespace " + namespace
		}
	}
	return nil
}

func (s *Services) containersIn(ctx context.Context, namespace, filter string) ([]*containers.Container, error) {
	var resp *containers.ListContainersResponse
	err := s.Call(ctx, "containerd.Containers.List", "list containers of containerd", func(ctx context.Context) (err error) {
		resp, err = containers.NewContainersClient(s.Conn).List(inNamespace(ctx, namespace), &containers.ListContainersRequest{Filters: []string{filter}})
		return err
	})
	return resp.GetContainers(), err
}
