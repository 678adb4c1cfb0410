package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/api/services/containers/v1"
	"github.com/containerd/containerd/api/services/content/v1"
	"github.com/containerd/containerd/api/services/leases/v1"
	"github.com/containerd/containerd/api/services/namespaces/v1"
	"golang.org/x/sync/errgroup"

	"hostler.io/hostler/runtime"
)

const (
	// labelKind is what containerd's CRI puts on all that it makes.
	labelKind = "io.cri-containerd.kind"
	// labelExpires is on the leases of work that is under way: they end with it,
	// or at this time if whoever did it died.
	labelExpires = "containerd.io/gc.expire"
)

var _ runtime.ImageUsers = (*Runtime)(nil)

// OtherImageUsers lists who uses images that containerd's CRI holds and is not in
// its lists: containers that share its namespace, such as those of
// `nerdctl --namespace k8s.io`; containers of other namespaces on the same image;
// pulls, imports and builds that are under way. It is runtime.ErrUnsupported
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

// arrivals are images that somebody is pulling, importing, unpacking or building.
// Whoever does that holds a lease with an end, to which containerd adds all that
// it touches, what was there before included. Leases without an end, such as those
// of sandboxes and of build caches, are no sign of work.
func (r *Runtime) arrivals(ctx context.Context) ([]runtime.ImageUser, error) {
	var resp *leases.ListResponse
	err := r.call(ctx, "containerd.Leases.List", "list leases", r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = leases.NewLeasesClient(r.conn).List(inNamespace(ctx, criNamespace), &leases.ListRequest{Filters: []string{present(labelExpires)}})
		return err
	})
	if err != nil {
		return nil, err
	}
	var users []runtime.ImageUser
	for _, lease := range resp.GetLeases() {
		ends, err := time.Parse(time.RFC3339, lease.GetLabels()[labelExpires])
		if err != nil || time.Now().After(ends) {
			continue
		}
		held, err := r.heldBy(ctx, lease)
		if err != nil {
			return nil, err
		}
		users = append(users, held...)
	}
	return users, nil
}

// heldBy lists the images that a lease is about.
func (r *Runtime) heldBy(ctx context.Context, lease *leases.Lease) ([]runtime.ImageUser, error) {
	var resp *leases.ListResourcesResponse
	err := r.call(ctx, "containerd.Leases.ListResources", named("list resources of lease", lease.GetID(), ""), r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = leases.NewLeasesClient(r.conn).ListResources(inNamespace(ctx, criNamespace), &leases.ListResourcesRequest{ID: lease.GetID()})
		return err
	})
	if errors.Is(err, errNotFound) {
		return nil, nil // it is done
	}
	if err != nil {
		return nil, err
	}
	began := fmt.Sprintf("began at %s, lease %s", lease.GetCreatedAt().AsTime().UTC().Format(time.RFC3339), lease.GetID())
	var users []runtime.ImageUser
	unpacksTo := ""
	for _, resource := range resp.GetResources() {
		// An image's ID is the digest of its configuration, which is content like
		// its manifest; layers are, too, and no image goes by theirs.
		if resource.GetType() == "content" {
			users = append(users, runtime.ImageUser{Image: resource.GetID(), By: "a pull or a build that " + began})
		}
		if snapshotter, found := strings.CutPrefix(resource.GetType(), "snapshots/"); found && strings.HasPrefix(resource.GetID(), "extract-") {
			unpacksTo = snapshotter
		}
	}
	if len(users) > 0 || unpacksTo == "" {
		return users, nil
	}
	// `ctr images import` unpacks under a lease of its own, which names layers
	// alone. It may be any image that is not unpacked yet.
	ids, err := r.notUnpacked(ctx, unpacksTo)
	for _, id := range ids {
		users = append(users, runtime.ImageUser{Image: id, By: "an unpack that " + began})
	}
	return users, err
}

// notUnpacked lists the IDs of images that have no snapshot. containerd notes that
// they have one as a label of their configuration, once it is whole.
func (r *Runtime) notUnpacked(ctx context.Context, snapshotter string) ([]string, error) {
	list, err := r.Images(ctx)
	if err != nil {
		return nil, err
	}
	unpacked := map[string]bool{}
	err = r.call(ctx, "containerd.Content.List", "list unpacked images", r.timeouts.Query, func(ctx context.Context) error {
		filter := present("containerd.io/gc.ref.snapshot." + snapshotter)
		stream, err := content.NewContentClient(r.conn).List(inNamespace(ctx, criNamespace), &content.ListContentRequest{Filters: []string{filter}})
		for err == nil {
			var resp *content.ListContentResponse
			if resp, err = stream.Recv(); err != nil {
				break
			}
			for _, info := range resp.GetInfo() {
				unpacked[info.GetDigest()] = info.GetLabels()["containerd.io/gc.ref.snapshot."+snapshotter] != ""
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, img := range list {
		if !unpacked[img.ID] {
			ids = append(ids, img.ID)
		}
	}
	return ids, nil
}
