package fleet

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"

	"hostler.io/hostler/internal/hint"
)

const (
	// slips is the maximum number of wrong letters in a similar name.
	slips = 2
	// suggestions is the maximum number of suggested names.
	suggestions = 3
)

// missing returns the error that no Node has this name, with suggestions.
func (r *Reader) missing(ctx context.Context, name string) error {
	e := &hint.Error{
		Message: fmt.Sprintf("there is no node %s on control plane %s at %s", name, r.client.Type(), r.client.Endpoint()),
		Hint:    "`hostler nodes` lists those that there are",
		Status:  http.StatusNotFound,
	}
	var near []likeness
	err := r.walk(ctx, func(m Member) error {
		if l := liken(name, m.Node.Name); l.distance <= slips {
			near = append(near, l)
			slices.SortStableFunc(near, func(a, b likeness) int { return cmp.Compare(a.distance, b.distance) })
			near = near[:min(len(near), suggestions)]
		}
		return nil
	})
	var names []string
	for _, l := range near {
		names = append(names, l.name)
	}
	switch {
	case len(names) > 0:
		e.Hint = "did you mean " + strings.Join(names, " or ") + "?"
	case err != nil: // the other names are unknown
		e.Hint = fmt.Sprintf("check the name; `hostler nodes %s` shows this host", r.node)
	}
	return e
}

// likeness says how similar a name is to the requested one.
type likeness struct {
	name     string
	distance int // 0 if the name contains the requested one; more than slips if they are not similar
}

// liken compares the requested name with a name and with its first label, because users type the
// short names of hosts.
func liken(wanted, name string) likeness {
	if wanted == "" {
		return likeness{name, slips + 1}
	}
	if strings.Contains(name, wanted) {
		return likeness{name, 0}
	}
	short, _, _ := strings.Cut(name, ".")
	return likeness{name, min(levenshtein.ComputeDistance(wanted, name), levenshtein.ComputeDistance(wanted, short))}
}
