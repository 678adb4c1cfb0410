package collect

import (
	"context"
	"errors"
	"slices"
	"strings"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/runtime"
)

// users are those whom no list of pods shows, by the image they use, in normal
// form: a name, an ID, or a digest without the name that it goes with.
type users map[string][]string

// otherUsers asks a runtime for them: none where it cannot tell.
func otherUsers(ctx context.Context, rt Runtime) (users, error) {
	teller, able := rt.(runtime.ImageUsers)
	if !able {
		return nil, nil
	}
	list, err := within(ctx, lookTimeout, teller.OtherImageUsers)
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
