package cri

import (
	"context"
	"fmt"

	"github.com/containerd/containerd/api/services/containers/v1"
	"google.golang.org/grpc/metadata"

	"hostler.io/hostler/runtime"
)

// labelKind is what containerd's CRI puts on all that it makes.
const labelKind = "io.cri-containerd.kind"

var _ runtime.ImageUsers = (*Runtime)(nil)

// OtherImageUsers lists the containers that share containerd's images with CRI
// and that CRI does not list, such as those of `nerdctl --namespace k8s.io`. It
// is runtime.ErrUnsupported where the socket is not containerd's.
func (r *Runtime) OtherImageUsers(ctx context.Context) ([]runtime.ImageUser, error) {
	// Records hold whole specs: those of CRI's own would be too much to ask for.
	filter := fmt.Sprintf("labels.%q!=container,labels.%q!=sandbox", labelKind, labelKind)
	client := containers.NewContainersClient(r.conn)
	var resp *containers.ListContainersResponse
	err := r.call(ctx, "containerd.List", "list containers past CRI", r.timeouts.Query, func(ctx context.Context) (err error) {
		ctx = metadata.AppendToOutgoingContext(ctx, "containerd-namespace", criNamespace)
		resp, err = client.List(ctx, &containers.ListContainersRequest{Filters: []string{filter}})
		return err
	})
	if err != nil {
		return nil, err
	}
	var users []runtime.ImageUser
	for _, c := range resp.GetContainers() {
		if kind := c.GetLabels()[labelKind]; kind != "" || c.GetImage() == "" {
			continue
		}
		users = append(users, runtime.ImageUser{Image: c.GetImage(), By: "container " + c.GetID() + ", which is not CRI's"})
	}
	return users, nil
}
