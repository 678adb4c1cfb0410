package cri

import (
	"context"
	"fmt"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// ImageFilesystems returns the filesystems of the runtime's images. containerd reports the folder
// of its snapshotter and calls it a mount point. This method returns the mount that contains that
// folder, or will contain it once it exists.
func (r *Runtime) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	const what = "list image filesystems"
	var resp *criapi.ImageFsInfoResponse
	err := r.call(ctx, "ImageFsInfo", what, r.timeouts.Query, func(ctx context.Context) (err error) {
		resp, err = r.image.ImageFsInfo(ctx, &criapi.ImageFsInfoRequest{})
		return err
	})
	if err != nil {
		return nil, err
	}
	var folders []string
	for _, usage := range resp.GetImageFilesystems() {
		folders = append(folders, usage.GetFsId().GetMountpoint())
	}
	list, err := local.Filesystems(r.procRoot, r.name, folders)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return list, nil
}
