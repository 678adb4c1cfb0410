package cri

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"golang.org/x/sync/errgroup"

	"hostler.io/hostler/runtime"
)

// labelKind is what containerd's CRI puts on all that it makes.
const labelKind = "io.cri-containerd.kind"

var _ runtime.ImageUsers = (*Runtime)(nil)

// OtherImageUsers lists who uses images that containerd's CRI holds and is not in
// its lists: containers that share its namespace, such as those of
// `nerdctl --namespace k8s.io`; containers of other namespaces on the same image;
// pulls, imports and builds that are under way; containers that are being made,
// which CRI lists only once they are. It is runtime.ErrUnsupported
// where the socket is not containerd's.
func (r *Runtime) OtherImageUsers(ctx context.Context) ([]runtime.ImageUser, error) {
	if !r.mayBeContainerd() {
		return nil, fmt.Errorf("list users of images: %w: the runtime is not containerd", runtime.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	var users [3][]runtime.ImageUser
	group, ctx := errgroup.WithContext(ctx)
	for i, ask := range [...]func(context.Context) ([]runtime.ImageUser, error){r.neighbours, r.foreigners, r.arrivals} {
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

// neighbours are containers in CRI's namespace that CRI did not make.
func (r *Runtime) neighbours(ctx context.Context) ([]runtime.ImageUser, error) {
	// Records hold whole specs: those of CRI's own would be too much to ask for.
	list, err := r.containersIn(ctx, criNamespace, fmt.Sprintf("image,labels.%q!=container,labels.%q!=sandbox", labelKind, labelKind))
	if err != nil {
		return nil, err
	}
	var users []runtime.ImageUser
	for _, c := range list {
		if kind := c.GetLabels()[labelKind]; kind != "" || c.GetImage() == "" {
			continue
		}
		users = append(users, runtime.ImageUser{Image: c.GetImage(), By: "container " + c.GetID() + ", which is not CRI's"})
	}
	return users, nil
}

// foreigners are containers in other namespaces whose image CRI holds as well, be
// it by another name.
func (r *Runtime) foreigners(ctx context.Context) ([]runtime.ImageUser, error) {
	var resp *namespaces.ListNamespacesResponse
	err := r.call(ctx, "containerd.Namespaces.List", "list containerd's namespaces", r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = namespaces.NewNamespacesClient(r.conn).List(ctx, &namespaces.ListNamespacesRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	by := map[string]string{} // digest of an image to who uses it
	for _, ns := range resp.GetNamespaces() {
		if ns.GetName() == criNamespace {
			continue
		}
		if err := r.foreignersIn(ctx, ns.GetName(), by); err != nil {
			return nil, err
		}
	}
	if len(by) == 0 {
		return nil, nil
	}
	filters := make([]string, 0, len(by))
	for digest := range by {
		filters = append(filters, equals("target.digest", digest))
	}
	records, err := r.records(ctx, criNamespace, filters...)
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

// foreignersIn adds the containers of one namespace by the digest of their image.
func (r *Runtime) foreignersIn(ctx context.Context, namespace string, by map[string]string) error {
	// Docker's containers name no image here, unless its images are containerd's.
	list, err := r.containersIn(ctx, namespace, "image")
	if err != nil || len(list) == 0 {
		return err
	}
	users := map[string]string{} // name of an image to a container
	var filters []string
	for _, c := range list {
		if name := c.GetImage(); name != "" && users[name] == "" {
			users[name] = c.GetID()
			filters = append(filters, equals("name", name))
		}
	}
	if len(filters) == 0 {
		return nil
	}
	records, err := r.records(ctx, namespace, filters...)
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

func (r *Runtime) containersIn(ctx context.Context, namespace, filter string) ([]*containers.Container, error) {
	var resp *containers.ListContainersResponse
	err := r.call(ctx, "containerd.Containers.List", "list containers past CRI", r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = containers.NewContainersClient(r.conn).List(inNamespace(ctx, namespace), &containers.ListContainersRequest{Filters: []string{filter}})
		return err
	})
	return resp.GetContainers(), err
}
