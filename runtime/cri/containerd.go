package cri

import (
	"context"
	"fmt"
	"strconv"

	"github.com/containerd/containerd/api/services/images/v1"
	"google.golang.org/grpc/metadata"

	"hostler.io/hostler/runtime"
)

// inNamespace sends calls to one of containerd's namespaces.
func inNamespace(ctx context.Context, namespace string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "containerd-namespace", namespace)
}

// mayBeContainerd tells whether containerd's own services are worth asking: they
// are on CRI's socket, and nobody else has them.
func (r *Runtime) mayBeContainerd() bool {
	a, known := r.fresh()
	return !known || a.name == "containerd"
}

// records lists containerd's own records of images, one for each name, that one
// of the filters matches. It is runtime.ErrUnsupported where the socket is not
// containerd's.
func (r *Runtime) records(ctx context.Context, namespace string, filters ...string) ([]*images.Image, error) {
	const what = "list image records"
	if !r.mayBeContainerd() {
		return nil, fmt.Errorf("%s: %w: the runtime is not containerd", what, runtime.ErrUnsupported)
	}
	var resp *images.ListImagesResponse
	err := r.call(ctx, "containerd.Images.List", what, r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = images.NewImagesClient(r.conn).List(inNamespace(ctx, namespace), &images.ListImagesRequest{Filters: filters})
		return err
	})
	return resp.GetImages(), err
}

// equals is a filter of containerd's that matches one value of a field.
func equals(field, value string) string { return field + "==" + strconv.Quote(value) }

// present is a filter of containerd's that matches whatever has the label.
func present(label string) string { return fmt.Sprintf("labels.%q", label) }
