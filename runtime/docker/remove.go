package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// RemoveImage removes the image with all its names. Docker refuses what a container
// uses, running or not, and so does this. It also refuses to remove by its ID an image
// with several names, unless it is forced, and that would take one that a stopped
// container uses: names but the last are removed one by one, and given back if the
// image itself then does not go.
func (r *Runtime) RemoveImage(ctx context.Context, img runtime.Image) error {
	what := local.Named("remove image", img.Names()[0], "")
	if img.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	if err := r.checkUnused(ctx, what, img.ID); err != nil {
		return err
	}
	now, err := r.look(ctx, what, img.ID)
	if err != nil {
		return gone(err)
	}
	var removed []string
	for _, name := range spareNames(slices.DeleteFunc(slices.Concat(now.RepoTags, now.RepoDigests), isNoName)) {
		var did bool
		if did, err = r.untag(ctx, what, img.ID, name); err != nil {
			break
		}
		if did {
			removed = append(removed, name)
		}
	}
	if err == nil {
		err = gone(r.removeByName(ctx, what, img.ID))
	}
	if err != nil {
		return errors.Join(err, r.giveBack(ctx, what, img.ID, removed))
	}
	return nil
}

// look asks for the image that a name or an ID leads to now.
func (r *Runtime) look(ctx context.Context, what, name string) (client.ImageInspectResult, error) {
	return engine.Get(ctx, r.conn, "ImageInspect", what, r.timeouts.Query, func(ctx context.Context, c *client.Client) (client.ImageInspectResult, error) {
		return c.ImageInspect(ctx, name)
	})
}

// untag removes a name if it still leads to the image, and tells whether it did: a pull
// or a build may have moved it to another one since.
func (r *Runtime) untag(ctx context.Context, what, id, name string) (did bool, err error) {
	led, err := r.look(ctx, what, name)
	if err == nil && led.ID == id {
		err = r.removeByName(ctx, what, name)
		did = err == nil
	}
	return did, gone(err)
}

// checkUnused looks for containers, since names would be gone before Docker does, which
// also does not mind those that mount an image removed by its ID.
func (r *Runtime) checkUnused(ctx context.Context, what, id string) error {
	list, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for i := range list {
		uses := list[i].ImageID == id
		for _, mounted := range mountedImages(&list[i]) {
			led, err := r.look(ctx, what, mounted)
			if gone(err) != nil {
				return err
			}
			uses = uses || err == nil && led.ID == id
		}
		if uses {
			return fmt.Errorf("%s: %w: %s uses it, which is %s", what, runtime.ErrInUse, local.Named("container", name(&list[i]), ""), list[i].State)
		}
	}
	return nil
}

// mountedImages are those that a container mounts (docker run --mount type=image), by
// the names that it was given.
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

// OtherImageUsers lists the containers that mount images, and those of cri-dockerd, which
// Pods leaves to its own list.
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
	return users, nil
}

// spareNames are those to remove before the image goes by its ID, which it does once
// all that it has are one tag, and digests of that tag's repository. Docker removes a
// repository's digests with its last tag.
func spareNames(names []string) []string {
	var last string
	for _, name := range names {
		if !strings.Contains(name, "@") {
			last = name
		}
	}
	if last == "" && len(names) > 0 {
		last = names[len(names)-1]
	}
	var spare []string
	for _, name := range names {
		if tag := !strings.Contains(name, "@"); name != last && (tag || repository(name) != repository(last)) {
			spare = append(spare, name)
		}
	}
	return spare
}

// repository is a name without its tag or digest.
func repository(name string) string {
	name, _, digested := strings.Cut(name, "@")
	if colon := strings.LastIndexByte(name, ':'); !digested && colon > strings.LastIndexByte(name, '/') {
		return name[:colon]
	}
	return name
}

// removeByName removes one name, or by its ID the image. Untagged images that this one is
// made of stay: they are listed then, and are judged for themselves.
func (r *Runtime) removeByName(ctx context.Context, what, name string) error {
	return r.conn.Call(ctx, "ImageRemove", what, r.timeouts.Remove, func(ctx context.Context, c *client.Client) error {
		_, err := c.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: false})
		return err
	})
}

// giveBack tags the image as it was, but for names that lead to another one by now.
// Digests cannot be given back: they come again with the next pull.
func (r *Runtime) giveBack(ctx context.Context, what, id string, names []string) error {
	ctx = context.WithoutCancel(ctx) // also where time is up: it was us who took them
	var errs []error
	for _, name := range names {
		if strings.Contains(name, "@") {
			continue
		}
		what := what + ": give its name " + name + " back"
		if _, err := r.look(ctx, what, name); !errors.Is(err, engine.ErrNotFound) {
			errs = append(errs, err) // none where somebody else has taken it
			continue
		}
		errs = append(errs, r.conn.Call(ctx, "ImageTag", what, r.timeouts.Query, func(ctx context.Context, c *client.Client) error {
			_, err := c.ImageTag(ctx, client.ImageTagOptions{Source: id, Target: name})
			return err
		}))
	}
	return errors.Join(errs...)
}
