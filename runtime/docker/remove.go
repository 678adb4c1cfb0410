package docker

import (
	"context"
	"fmt"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// RemoveImage removes the image with all its names. Like Docker, it refuses to remove an image that
// a container uses, running or not.
func (r *Runtime) RemoveImage(ctx context.Context, img runtime.Image) error {
	what := local.Named("remove image", img.Names()[0], "")
	if img.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	if err := r.checkUnused(ctx, what, img.ID); err != nil {
		return err
	}
	return r.images().Remove(ctx, what, img.ID)
}

func (r *Runtime) images() engine.Images { return engine.Images{Conn: r.conn, Timeouts: r.timeouts} }

// checkUnused searches for containers that use the image. Docker's own check comes after names were
// removed, and ignores containers that mount the image.
func (r *Runtime) checkUnused(ctx context.Context, what, id string) error {
	list, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for i := range list {
		uses := list[i].ImageID == id
		for _, mounted := range mountedImages(&list[i]) {
			resolved, err := r.images().Inspect(ctx, what, mounted)
			if engine.Gone(err) != nil {
				return err
			}
			uses = uses || err == nil && resolved.ID == id
		}
		if uses {
			return fmt.Errorf("%s: %w: used by %s, which is %s", what, runtime.ErrInUse, local.Named("container", name(&list[i]), ""), list[i].State)
		}
	}
	return nil
}

// mountedImages returns the images that a container mounts (docker run --mount type=image), by the
// names in its configuration.
func mountedImages(c *container.Summary) []string {
	var names []string
	for _, m := range c.Mounts {
		if m.Type == mount.TypeImage && m.Name != "" {
			names = append(names, m.Name)
		}
	}
	return names
}

var _ runtime.ImageUsers = (*Runtime)(nil)

// OtherImageUsers lists the containers that mount images, and the containers of cri-dockerd, which
// Pods omits.
func (r *Runtime) OtherImageUsers(ctx context.Context) ([]runtime.ImageUser, error) {
	list, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	var users []runtime.ImageUser
	for i := range list {
		images := mountedImages(&list[i])
		if ofCRI(list[i]) {
			images = append(images, list[i].ImageID)
		}
		for _, image := range images {
			users = append(users, runtime.ImageUser{Image: image, By: "container " + name(&list[i])})
		}
	}
	return sanitize.Clean(users), nil
}
