package discovery

import (
	"context"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/cri"
	"hostler.io/hostler/runtime/docker"
)

// criDockerd is the candidate that drives a Docker.
const criDockerd = "cri-dockerd"

// driver is cri-dockerd. It has its own pods, but the images of its Docker. While that Docker is
// managed too, images are left to it, because it knows shared sizes and users. Otherwise each image
// would be listed twice, and images that users build in that Docker would be removed without a
// request.
type driver struct {
	*cri.Runtime
	hasDocker func() bool // a Docker is looked after, too
}

var (
	_ runtime.Runtime       = driver{}
	_ runtime.ImageDetailer = driver{}
)

// Info names it cri-dockerd if its Docker is managed, too: its own name is that of Docker.
func (d driver) Info(ctx context.Context) (runtime.Info, error) {
	info, err := d.Runtime.Info(ctx)
	if err == nil && d.hasDocker() {
		info.Name, info.Imageless = criDockerd, true
	}
	return info, err
}

// Images are its Docker's to list.
func (d driver) Images(ctx context.Context) ([]runtime.Image, error) {
	if d.hasDocker() {
		return nil, nil
	}
	return d.Runtime.Images(ctx)
}

// DetailedImages are, too.
func (d driver) DetailedImages(ctx context.Context) ([]runtime.Image, error) {
	if d.hasDocker() {
		return nil, nil
	}
	return d.Runtime.DetailedImages(ctx)
}

// ImageFilesystems are its Docker's to tell.
func (d driver) ImageFilesystems(ctx context.Context) ([]runtime.Filesystem, error) {
	if d.hasDocker() {
		return nil, nil
	}
	return d.Runtime.ImageFilesystems(ctx)
}

// hasDocker reports whether a Docker is in the set.
func (r *Runtimes) hasDocker() bool { return r.has(docker.Type) }
