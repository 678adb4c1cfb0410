package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	"hostler.io/hostler/controlplane"
)

// pageOfNodes is how many Nodes, or Leases, are in memory at a time.
const pageOfNodes = 100

// Fleet calls each for all Nodes with their Leases, if the node has the right to list them. Objects
// that are too large are left out, and ErrIncomplete names them at the end.
func (c *Client) Fleet(ctx context.Context, each controlplane.Member) error {
	if ctx.Err() != nil {
		return fmt.Errorf("list nodes: %w", context.Cause(ctx))
	}
	defer c.others.Reconnect() // lists are rare: keep no connection open
	var skipped controlplane.Skipped
	tooLarge := func(o *metav1.PartialObjectMetadata, most string) {
		skipped.Add(fmt.Errorf("%q has more than %s", o.Name, most))
	}
	nodes := func(ctx context.Context, page string) ([]corev1.Node, string, error) {
		list, err := c.nodes(ctx, page, tooLarge)
		for i := range list.Items { // a list does not set the kind of its items
			list.Items[i].Kind, list.Items[i].APIVersion = "Node", "v1"
		}
		return list.Items, list.Continue, err
	}
	leases := func(ctx context.Context, page string) ([]coordinationv1.Lease, string, error) {
		list, err := c.leasesFrom(ctx, page, tooLarge)
		for i := range list.Items {
			list.Items[i].Kind, list.Items[i].APIVersion = "Lease", coordinationv1.SchemeGroupVersion.String()
		}
		return list.Items, list.Continue, err
	}
	if err := controlplane.JoinFleet(ctx, nodes, leases, each); err != nil {
		return err
	}
	return skipped.Err()
}

// nodes reads the page of all Nodes that begins at the token.
func (c *Client) nodes(ctx context.Context, from string, tooLarge func(o *metav1.PartialObjectMetadata, most string)) (*corev1.NodeList, error) {
	page := &corev1.NodeList{}
	err := c.page(ctx, "list nodes", c.core, from, pageOfNodes, page, tooLarge, func(r rest.Interface) *rest.Request { return r.Get().Resource("nodes") })
	return page, err
}

// leasesFrom reads the page of all Nodes' Leases that begins at the token.
func (c *Client) leasesFrom(ctx context.Context, from string, tooLarge func(o *metav1.PartialObjectMetadata, most string)) (*coordinationv1.LeaseList, error) {
	page := &coordinationv1.LeaseList{}
	err := c.page(ctx, "list leases", c.others, from, pageOfNodes, page, tooLarge, func(r rest.Interface) *rest.Request {
		return r.Get().Namespace(controlplane.LeaseNamespace).Resource("leases")
	})
	return page, err
}

// list is any list of the API.
type list interface {
	runtime.Object
	metav1.ListInterface
}

// page reads a page of at most that many objects, which begins at the token from. If the objects
// are too large, it reads a smaller page. If a single object is too large, the page is empty, and
// tooLarge is called with the object's metadata and the limit.
func (c *Client) page(ctx context.Context, operation string, to *apiGroup, from string, most int, into list, tooLarge func(o *metav1.PartialObjectMetadata, most string), read func(rest.Interface) *rest.Request) error {
	for ; ; most /= 10 {
		err := c.pageOf(ctx, operation, to, from, most, into, read)
		size, large := errors.AsType[*sizeError](err)
		if !large {
			return err
		}
		if most > 1 {
			continue
		}
		names := &identities{}
		if c.pageOf(ctx, operation, to, from, most, names, func(r rest.Interface) *rest.Request {
			return read(r).SetHeader("Accept", partialMetadata)
		}) != nil || len(names.Items) != 1 {
			return err
		}
		into.SetContinue(names.Continue)
		into.SetResourceVersion(names.ResourceVersion)
		tooLarge(&names.Items[0], size.most)
		return nil
	}
}

// partialMetadata requests only the metadata of objects.
const partialMetadata = protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

// pageOf reads a page of at most that many objects.
func (c *Client) pageOf(ctx context.Context, operation string, to *apiGroup, from string, most int, into list, read func(rest.Interface) *rest.Request) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	err := c.ask(ctx, operation, to, func(r rest.Interface) *rest.Request {
		request := read(r).Param("limit", strconv.Itoa(most))
		if from != "" {
			request = request.Param("continue", from)
		}
		return request
	}, into)
	if err == nil && into.GetResourceVersion() == "" { // client-go decodes other objects as an empty list
		err = fmt.Errorf("%s: %w: %s returned something else: check for a proxy in between", operation, controlplane.ErrUnavailable, c.Endpoint())
	}
	return err
}

// eachMetadata calls each with the metadata of all objects that read lists, page by page, until each returns an
// error.
func (c *Client) eachMetadata(ctx context.Context, operation string, to *apiGroup, most int, read func(rest.Interface) *rest.Request, each func(*metav1.PartialObjectMetadata) error) error {
	for from := ""; ; {
		page := &metav1.PartialObjectMetadataList{}
		if err := c.pageOf(ctx, operation, to, from, most, page, read); err != nil {
			return err
		}
		for i := range page.Items {
			if err := each(&page.Items[i]); err != nil {
				return err
			}
		}
		if from = page.Continue; from == "" {
			return nil
		}
	}
}
