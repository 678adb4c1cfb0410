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

// InUse is what a runtime answered to the question what is in use.
type InUse struct {
	containers gc.Users
	others     users
}

// QueryInUse checks again, right before removals, what is in use: by containers and by other users.
// Not every runtime refuses to remove an image in use.
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

// users are the users of images that no list of pods shows, by the image in normal form: a name, an
// ID, or a digest without its name.
type users map[string][]string

// otherUsers queries a runtime for them; empty if the runtime does not report them.
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

// of returns who uses the image that refs lead to.
func (u users) of(refs []string) []string {
	var by []string
	for _, ref := range refs {
		by = append(by, u[ref]...)
		if _, digest, found := strings.Cut(ref, "@sha256:"); found {
			by = append(by, u[digest]...)
		}
	}
	slices.Sort(by) // one user may come by several names
	return slices.Compact(by)
}
