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
	// slips is by how many letters a name may be wrong to be taken for another.
	slips = 2
	// suggestions are how many names are told at the most.
	suggestions = 3
)

// missing is the error for a name that no Node has, with those that are most like it.
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
	case err != nil: // nobody knows which there are
		e.Hint = fmt.Sprintf("check the name; `hostler nodes %s` shows this host", r.node)
	}
	return e
}

// likeness is how much a name is like the one that is looked for.
type likeness struct {
	name     string
	distance int // 0 for one that begins or goes on as that does; more than slips for no likeness
}

// liken holds the two against each other, and their first labels: people type the short
// names of hosts.
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
