package podman

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"hostler.io/hostler/internal/sanitize"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
	"hostler.io/hostler/runtime/local"
)

// RemoveContainer removes a container that does not run; Podman refuses others. Its volumes stay.
func (r *Runtime) RemoveContainer(ctx context.Context, c runtime.Container) error {
	what := local.Named("remove container", c.Name, c.ID)
	if c.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	defer r.changes.note()
	request := engine.Request{Verb: http.MethodDelete, Path: api + "/containers/" + c.ID}
	err := engine.Gone(r.conn.Ask(ctx, "RemoveContainer", what, r.timeouts.Remove, request, nil))
	if err == nil {
		return nil
	}
	// Podman's error has no class for this.
	if running, _, asked := r.running(ctx, what, c.ID); asked == nil && running {
		return fmt.Errorf("%w: %w", runtime.ErrInUse, err)
	}
	return err
}

// RemovePod returns runtime.ErrUnsupported: a stopped pod can be started again.
func (r *Runtime) RemovePod(_ context.Context, p runtime.Pod) error {
	return fmt.Errorf("%s: %w: use podman pod rm", local.Named("remove pod", p.Name, p.ID), runtime.ErrUnsupported)
}

// RemoveImage removes the image with all its names. Like Podman, it refuses an image that a
// container uses, running or not, even a container of another tool such as Buildah. Podman's own
// check comes after names were removed.
func (r *Runtime) RemoveImage(ctx context.Context, img runtime.Image) error {
	what := local.Named("remove image", img.Names()[0], "")
	if img.ID == "" {
		return fmt.Errorf("%s: no ID given", what)
	}
	list, err := r.list(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	for i := range list {
		if c := &list[i]; c.ImageID == img.ID {
			return fmt.Errorf("%s: %w: used by %s, which is %s", what, runtime.ErrInUse, local.Named("container", c.name(), ""), c.State)
		}
	}
	defer r.changes.note()
	images := engine.Images{Conn: r.conn, Timeouts: r.timeouts, ExtraNames: r.extraNames, Delete: r.deleteImage}
	return images.Remove(ctx, what, digestPrefix+strings.TrimPrefix(img.ID, digestPrefix))
}

// extraNames returns all names of an image except one, with which Podman removes the image by its
// ID. A digest by which the image was pulled is a name, and stays when its repository's last tag is
// removed. Digests that Podman adds for each name do not count.
func (r *Runtime) extraNames(ctx context.Context, what, id string) ([]string, error) {
	list, err := r.listImages(ctx, what)
	if err != nil {
		return nil, err
	}
	var names []string
	for i := range list {
		if list[i].ID == strings.TrimPrefix(id, digestPrefix) {
			names = engine.Named(list[i].Names)
		}
	}
	// Tags last, because only tags can be restored.
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(strings.Count(b, "@"), strings.Count(a, "@"))
	})
	return names[:max(len(names)-1, 0)], nil
}

// Exit codes of podman-rmi(1), which Podman's API also uses.
const (
	exitNoImage = 1
	exitInUse   = 2
)

// deleteImage removes one name, or the image by its ID. It uses Podman's own API, because the
// Docker API of Podman 4 ignores noprune: it would also remove untagged parent images.
func (r *Runtime) deleteImage(ctx context.Context, what, name string) error {
	var answer struct {
		ExitCode int
		Errors   []string
	}
	request := engine.Request{Verb: http.MethodDelete, Path: api + "/images/remove", Query: url.Values{"images": {name}, "noprune": {"true"}}}
	err := r.conn.Ask(ctx, "RemoveImages", what, r.timeouts.Remove, request, &answer)
	if err != nil || len(answer.Errors) == 0 {
		return err
	}
	text := strings.Join(answer.Errors, "; ")
	switch answer.ExitCode {
	case exitNoImage:
		return fmt.Errorf("%s: %w: %s", what, engine.ErrNotFound, text)
	case exitInUse:
		return fmt.Errorf("%s: %w: %s", what, runtime.ErrInUse, text)
	}
	return fmt.Errorf("%s: %s", what, text)
}

// digestPrefix begins the IDs of images in Docker's API.
const digestPrefix = "sha256:"

var _ runtime.ImageUsers = (*Runtime)(nil)

// OtherImageUsers lists infra containers, service containers, and containers of other tools than
// Podman, such as builds in progress.
func (r *Runtime) OtherImageUsers(ctx context.Context) ([]runtime.ImageUser, error) {
	if err := r.check(ctx, "list users of images"); err != nil {
		return nil, err
	}
	return r.answers.others.get(ctx, &r.changes, func(ctx context.Context) ([]runtime.ImageUser, error) {
		list, err := r.list(ctx)
		if err != nil {
			return nil, err
		}
		_, own := split(list)
		known := r.facts.complete(ctx, r, own)
		var users []runtime.ImageUser
		for i := range list {
			if c := &list[i]; (c.IsInfra || c.external() || known[c.ID].service) && c.ImageID != "" {
				users = append(users, runtime.ImageUser{Image: c.ImageID, By: "container " + c.name()})
			}
		}
		return sanitize.Clean(users), nil
	})
}
