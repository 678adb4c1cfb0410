package cri

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/api/services/images/v1"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri/containerd"
)

// containerd returns containerd's own services, which are on the same socket as CRI.
func (r *Runtime) containerd() *containerd.Services {
	return &containerd.Services{
		Conn: r.conn, Images: r.Images,
		Call: func(ctx context.Context, method, what string, rpc func(context.Context) error) error {
			return r.call(ctx, method, what, r.timeouts.Query, rpc)
		},
	}
}

// mayBeContainerd reports whether it makes sense to call containerd's own services: no other
// runtime has them.
func (r *Runtime) mayBeContainerd() bool {
	a, known := r.fresh()
	return !known || a.name == "containerd"
}

// records lists containerd's own records of images. It returns runtime.ErrUnsupported if the socket
// is not containerd's.
func (r *Runtime) records(ctx context.Context, filters ...string) ([]*images.Image, error) {
	if !r.mayBeContainerd() {
		return nil, fmt.Errorf("list image records: %w: the runtime is not containerd", runtime.ErrUnsupported)
	}
	return r.containerd().Records(ctx, filters...)
}

var _ runtime.ImageUsers = (*Runtime)(nil)

// OtherImageUsers lists users of CRI's images that are not in the lists of CRI. It returns
// runtime.ErrUnsupported if the socket is not containerd's.
func (r *Runtime) OtherImageUsers(ctx context.Context) ([]runtime.ImageUser, error) {
	if !r.mayBeContainerd() {
		return nil, fmt.Errorf("list users of images: %w: the runtime is not containerd", runtime.ErrUnsupported)
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	list, err := r.containerd().ImageUsers(ctx)
	return sanitize.Clean(list), err
}
