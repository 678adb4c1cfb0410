package survey

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// InUse is what a runtime reports as in use.
type InUse struct {
	containers gc.Users
	others     users
}

// QueryInUse queries again, right before removals, what containers and other users use. Some
// runtimes remove an image even if it is in use.
func QueryInUse(ctx context.Context, rt Runtime) (InUse, error) {
	pods, err := runtime.Within(ctx, Timeout, rt.Pods)
	if err != nil {
		return InUse{}, fmt.Errorf("list images in use: %w", err)
	}
	others, err := otherUsers(ctx, rt)
	if err != nil {
		return InUse{}, fmt.Errorf("list images in use: %w", err)
	}
	return InUse{gc.UsersOf(pods), others}, nil
}

// By returns a user of the image with these references; empty if there is none.
func (u InUse) By(runtimeName string, refs []string) string {
	if c, _ := u.containers.First(runtimeName, refs); c != nil {
		return "container " + c.Name
	}
	if by := u.others.of(refs); len(by) > 0 {
		return by[0]
	}
	return ""
}

// users are the users of images that no list of pods contains. The key is the image in normal form:
// a name, an ID, or a digest without its name.
type users map[string][]string

// otherUsers queries these users; empty if the runtime does not report them.
func otherUsers(ctx context.Context, rt Runtime) (users, error) {
	lister, able := rt.(runtime.ImageUsers)
	if !able {
		return nil, nil
	}
	list, err := runtime.Within(ctx, Timeout, lister.OtherImageUsers)
	if errors.Is(err, runtime.ErrUnsupported) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	u := make(users, len(list))
	for _, user := range list {
		ref := gc.NormalReference(user.Image)
		u[ref] = append(u[ref], user.By)
	}
	return u, nil
}

// of returns the users of the image with these references.
func (u users) of(refs []string) []string {
	var by []string
	for _, ref := range refs {
		by = append(by, u[ref]...)
		if _, digest, found := strings.Cut(ref, "@sha256:"); found {
			by = append(by, u[digest]...)
		}
	}
	slices.Sort(by) // one user may have several references
	return slices.Compact(by)
}
