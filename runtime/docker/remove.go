package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
)

// RemoveImage removes the image with all its names. Docker refuses what a container
// uses, running or not, and so does this. It also refuses to remove by its ID an image
// with several names, unless it is forced, and that would take one that a stopped
// container uses: names but the last are removed one by one, and given back if the
// image itself then does not go.
func (r *Runtime) RemoveImage(ctx context.Context, img runtime.Image) error {
	what := named("remove image", img.Names()[0], "")
	if img.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	names, err := r.names(ctx, what, img.ID)
	if err != nil {
		return gone(err)
	}
	if err := r.checkUnused(ctx, what, img.ID); err != nil {
		return err
	}
	spare := spareNames(names)
	removed := make([]string, 0, len(spare))
	for _, name := range spare {
		if err = gone(r.removeByName(ctx, what, name)); err != nil {
			break
		}
		removed = append(removed, name)
	}
	if err == nil {
		err = gone(r.removeByName(ctx, what, img.ID))
	}
	if err != nil {
		return errors.Join(err, r.giveBack(ctx, what, img.ID, removed))
	}
	return nil
}

// names are those of the image as of now.
func (r *Runtime) names(ctx context.Context, what, id string) ([]string, error) {
	resp, err := engine.Get(ctx, r.conn, "ImageInspect", what, r.timeouts.Query, func(ctx context.Context, c *client.Client) (client.ImageInspectResult, error) {
		return c.ImageInspect(ctx, id)
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Concat(resp.RepoTags, resp.RepoDigests), isNoName), nil
}

// checkUnused looks for containers, since names would be gone before Docker does.
func (r *Runtime) checkUnused(ctx context.Context, what, id string) error {
	list, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for i := range list {
		if list[i].ImageID == id {
			return fmt.Errorf("%s: %w: %s uses it, which is %s", what, runtime.ErrInUse, named("container", name(&list[i]), ""), list[i].State)
		}
	}
	return nil
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

// removeByName removes one name, or by its ID the image. Untagged images that only this
// one is made of go with it.
func (r *Runtime) removeByName(ctx context.Context, what, name string) error {
	return r.conn.Call(ctx, "ImageRemove", what, r.timeouts.Remove, func(ctx context.Context, c *client.Client) error {
		_, err := c.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: true})
		return err
	})
}

// giveBack tags the image as it was. Digests cannot be given back: they come again with
// the next pull.
func (r *Runtime) giveBack(ctx context.Context, what, id string, names []string) error {
	var errs []error
	for _, name := range names {
		if strings.Contains(name, "@") {
			continue
		}
		// Also where time is up: it was us who took the name.
		err := r.conn.Call(context.WithoutCancel(ctx), "ImageTag", what+": give its name "+name+" back", r.timeouts.Query, func(ctx context.Context, c *client.Client) error {
			_, err := c.ImageTag(ctx, client.ImageTagOptions{Source: id, Target: name})
			return err
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
