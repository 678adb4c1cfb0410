package engine

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/moby/moby/client"

	"hostler.io/hostler/runtime/local"
)

// Images removes images from a daemon.
type Images struct {
	Conn     *Conn
	Timeouts local.Timeouts
	// ExtraNames returns the names to remove before the image is removed by its ID. Delete removes
	// a name or, by its ID, the image. If nil, both do what Docker needs.
	ExtraNames func(ctx context.Context, what, id string) ([]string, error)
	Delete     func(ctx context.Context, what, name string) error
}

// Remove removes an image with all its names. Without force, daemons refuse to remove an image with
// several names by its ID. With force, they would remove an image that a stopped container uses. So
// Remove removes all names but the last one by one, and restores them if the image itself cannot be
// removed. The caller has checked that nothing uses the image.
func (i Images) Remove(ctx context.Context, what, id string) error {
	before, err := i.Inspect(ctx, what, id)
	if err != nil {
		return Gone(err)
	}
	names, err := i.extraNames(ctx, what, id)
	if err != nil {
		return Gone(err)
	}
	var removed []string
	for _, name := range names {
		var did bool
		if did, err = i.untag(ctx, what, id, name); err != nil {
			break
		}
		if did {
			removed = append(removed, name)
		}
	}
	if err == nil {
		last := slices.DeleteFunc(Named(before.RepoTags), func(name string) bool { return slices.Contains(names, name) })
		var lost []string
		lost, err = i.removeLast(ctx, what, id, last)
		removed = append(removed, lost...)
	}
	if err != nil {
		return errors.Join(err, i.restoreNames(ctx, what, id, removed))
	}
	return nil
}

// removeLast removes the image by its ID, with its remaining names. On a full disk, daemons may
// remove only the names and return an error; then removeLast tries again without names. lost are
// the names that an image which still exists has lost.
func (i Images) removeLast(ctx context.Context, what, id string, names []string) (lost []string, err error) {
	err = Gone(i.removeByName(ctx, what, id))
	if err == nil {
		return nil, nil
	}
	left, check := i.Inspect(context.WithoutCancel(ctx), what, id)
	if errors.Is(check, ErrNotFound) {
		return nil, nil
	}
	if check != nil {
		return nil, err
	}
	if lost = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(left.RepoTags, name) }); len(lost) > 0 && len(Named(left.RepoTags)) == 0 {
		err = Gone(i.removeByName(ctx, what, id))
	}
	return lost, err
}

func (i Images) extraNames(ctx context.Context, what, id string) ([]string, error) {
	if i.ExtraNames != nil {
		return i.ExtraNames(ctx, what, id)
	}
	now, err := i.Inspect(ctx, what, id)
	return extraNamesOf(Named(slices.Concat(now.RepoTags, now.RepoDigests))), err
}

// Inspect requests the image that a name or an ID refers to now.
func (i Images) Inspect(ctx context.Context, what, name string) (client.ImageInspectResult, error) {
	return Get(ctx, i.Conn, "ImageInspect", what, i.Timeouts.Query, func(ctx context.Context, c *client.Client) (client.ImageInspectResult, error) {
		return c.ImageInspect(ctx, name)
	})
}

// untag removes a name if it still belongs to the image, because a pull or build may have moved it.
// It returns whether it removed the name. It ignores an error if the name is gone: a daemon on a
// full disk removes names, but cannot save that.
func (i Images) untag(ctx context.Context, what, id, name string) (did bool, err error) {
	led, err := i.Inspect(ctx, what, name)
	if err != nil || led.ID != id {
		return false, Gone(err)
	}
	if err = i.removeByName(ctx, what, name); err == nil {
		return true, nil
	}
	if _, check := i.Inspect(ctx, what, name); errors.Is(check, ErrNotFound) {
		return true, nil
	}
	return false, Gone(err)
}

// Named returns the valid references of an image: older Dockers list "<none>:<none>" for an image
// without a name.
func Named(references []string) []string {
	return slices.DeleteFunc(slices.Clone(references), func(ref string) bool { return ref == "" || strings.Contains(ref, "<none>") })
}

// extraNamesOf returns the names to remove before the image is removed by its ID. That works if the
// image has only one tag, and digests of that tag's repository. Docker removes a repository's
// digests with its last tag.
func extraNamesOf(names []string) []string {
	var last string
	for _, name := range names {
		if !strings.Contains(name, "@") {
			last = name
		}
	}
	if last == "" && len(names) > 0 {
		last = names[len(names)-1]
	}
	var extraNames []string
	for _, name := range names {
		if tag := !strings.Contains(name, "@"); name != last && (tag || repository(name) != repository(last)) {
			extraNames = append(extraNames, name)
		}
	}
	return extraNames
}

// repository returns a name without its tag or digest.
func repository(name string) string {
	name, _, digested := strings.Cut(name, "@")
	if colon := strings.LastIndexByte(name, ':'); !digested && colon > strings.LastIndexByte(name, '/') {
		return name[:colon]
	}
	return name
}

// removeByName removes one name or, by its ID, the image. Untagged parent images stay: they are
// listed then, and are judged separately.
func (i Images) removeByName(ctx context.Context, what, name string) error {
	if i.Delete != nil {
		return i.Delete(ctx, what, name)
	}
	return i.Conn.Call(ctx, "ImageRemove", what, i.Timeouts.Remove, func(ctx context.Context, c *client.Client) error {
		_, err := c.ImageRemove(ctx, name, client.ImageRemoveOptions{PruneChildren: false})
		return err
	})
}

// restoreNames adds removed tags again, unless they belong to another image now. Digests cannot be
// restored: the next pull adds them.
func (i Images) restoreNames(ctx context.Context, what, id string, names []string) error {
	ctx = context.WithoutCancel(ctx) // even after a timeout, because hostler removed the names
	var errs []error
	for _, name := range names {
		if strings.Contains(name, "@") {
			continue
		}
		what := what + ": restore its name " + name
		if _, err := i.Inspect(ctx, what, name); !errors.Is(err, ErrNotFound) {
			errs = append(errs, err) // nil if the name exists; another client may have taken it
			continue
		}
		err := i.Conn.Call(ctx, "ImageTag", what, i.Timeouts.Query, func(ctx context.Context, c *client.Client) error {
			_, err := c.ImageTag(ctx, client.ImageTagOptions{Source: id, Target: name})
			return err
		})
		if now, check := i.Inspect(ctx, what, name); check == nil && now.ID == id {
			continue // it exists, whether or not the daemon could save it
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
