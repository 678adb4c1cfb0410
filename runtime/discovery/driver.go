package discovery

import (
	"context"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/docker"
)

// criDockerd is the name of the candidate that drives a Docker.
const criDockerd = "cri-dockerd"

// driver is cri-dockerd. It has its own pods, but lists the images of its Docker. If that Docker is
// in the set, driver lists no images: Docker knows shared sizes and users. Otherwise each image
// would be listed twice, and images that users build in that Docker would be removed without a
// request.
type driver struct {
	*cri.Runtime
	hasDocker func() bool // whether a Docker is in the set
}

var (
	_ runtime.Runtime       = driver{}
	_ runtime.ImageDetailer = driver{}
)

// Info names the runtime cri-dockerd if its Docker is in the set, because cri-dockerd reports the
// name of Docker.
func (d driver) Info(ctx context.Context) (runtime.Info, error) {
	info, err := d.Runtime.Info(ctx)
	if err == nil && d.hasDocker() {
		info.Name, info.Imageless = criDockerd, true
	}
	return info, err
}

// Images returns no images if Docker lists them.
func (d driver) Images(ctx context.Context) ([]runtime.Image, error) {
	if d.hasDocker() {
		return nil, nil
	}
	return d.Runtime.Images(ctx)
}

// DetailedImages returns no images if Docker lists them.
func (d driver) DetailedImages(ctx context.Context) ([]runtime.Image, error) {
	if d.hasDocker() {
		return nil, nil
	}
	return d.Runtime.DetailedImages(ctx)
}

// ImageFilesystems returns none if Docker reports them.
func (d driver) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	if d.hasDocker() {
		return nil, nil
	}
	return d.Runtime.ImageFilesystems(ctx)
}

// hasDocker reports whether a Docker is in the set.
func (r *Runtimes) hasDocker() bool { return r.has(docker.Type) }
