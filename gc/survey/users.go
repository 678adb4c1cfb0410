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

// QueryInUse asks again, in the call just before removals, what is in use: the
// containers, and who else may use images, because not every runtime refuses by
// itself to remove what they use.
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

// By names somebody who uses the image of a runtime that refs lead to; empty if
// nobody does.
func (u InUse) By(runtimeName string, refs []string) string {
	if c, _ := u.containers.First(runtimeName, refs); c != nil {
		return "container " + c.Name
	}
	if by := u.others.of(refs); len(by) > 0 {
		return by[0]
	}
	return ""
}

// users are those whom no list of pods shows, by the image they use, in normal
// form: a name, an ID, or a digest without the name that it goes with.
type users map[string][]string

// otherUsers asks a runtime for them; it returns none if the runtime does not know them.
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
