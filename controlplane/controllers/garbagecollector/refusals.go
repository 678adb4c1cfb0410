package garbagecollector

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Refusal is an object with an owner that it cannot have: one in another namespace.
type Refusal struct {
	*Object
	APIVersion string // of its type; empty if it is not known
	Why        string
}

// refusal is what was found, and whether it was reported.
type refusal struct {
	why      string
	reported bool
}

// refuse notes the first owner that an object cannot have. The caller holds mu.
func (g *graph) refuse(o *Object, owners []owner) {
	i := slices.IndexFunc(owners, func(own owner) bool { return own.refused })
	if i < 0 {
		delete(g.refusals, o.Key)
		return
	}
	why := fmt.Sprintf("owner %s with UID %s: %s", o.Owners[i], o.Owners[i].UID, owners[i].why)
	if g.refusals[o.Key].why != why {
		g.refusals[o.Key] = refusal{why: why}
	}
}

// takeRefusals returns those that were not reported yet.
func (g *graph) takeRefusals() []Refusal {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []Refusal
	for key, r := range g.refusals {
		o := g.objects[key].Object
		if r.reported || o == nil {
			continue
		}
		version := ""
		if k := g.kinds[key.Kind]; k != nil && k.GVK != (schema.GroupVersionKind{}) {
			version = k.GVK.GroupVersion().String()
		}
		list = append(list, Refusal{o, version, r.why})
		g.refusals[key] = refusal{r.why, true}
	}
	return list
}
