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

// RemoveContainer removes a container that does not run; Podman itself refuses others.
// Its volumes stay.
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
	// It gives no class for that.
	if running, _, asked := r.running(ctx, what, c.ID); asked == nil && running {
		return fmt.Errorf("%w: %w", runtime.ErrInUse, err)
	}
	return err
}

// RemovePod is runtime.ErrUnsupported: a pod is what somebody has made to start again.
func (r *Runtime) RemovePod(_ context.Context, p runtime.Pod) error {
	return fmt.Errorf("%s: %w: use podman pod rm", local.Named("remove pod", p.Name, p.ID), runtime.ErrUnsupported)
}

// RemoveImage removes the image with all its names. Podman refuses what a container uses,
// running or not, also one of another tool such as Buildah, and so does this, since names
// would be gone before Podman does.
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
	images := engine.Images{Conn: r.conn, Timeouts: r.timeouts, Spare: r.spareNames, Delete: r.deleteImage}
	return images.Remove(ctx, what, digestPrefix+strings.TrimPrefix(img.ID, digestPrefix))
}

// spareNames are all names of an image but one, with which Podman removes it by its ID. A
// digest by which it was pulled is such a name, and does not go with its repository's last
// tag; those that Podman makes up for each name are none.
func (r *Runtime) spareNames(ctx context.Context, what, id string) ([]string, error) {
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
	// Tags last: they can be given back.
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(strings.Count(b, "@"), strings.Count(a, "@"))
	})
	return names[:max(len(names)-1, 0)], nil
}

// Exit codes of podman-rmi(1), which Podman's API has as well.
const (
	exitNoImage = 1
	exitInUse   = 2
)

// deleteImage removes one name, or the image by its ID. It uses the API of Podman: the Docker API
// of Podman 4 ignores noprune, without which untagged parent images are removed, too.
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

// digestPrefix is what images' IDs begin with behind Docker's API.
const digestPrefix = "sha256:"

var _ runtime.ImageUsers = (*Runtime)(nil)

// OtherImageUsers lists what holds pods and units of pods together, and containers of
// other tools than Podman, such as builds in progress.
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
