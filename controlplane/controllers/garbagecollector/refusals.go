package garbagecollector

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Refusal is an object with an owner that it cannot have, which is in another namespace, or that owner.
type Refusal struct {
	*Object
	APIVersion string // of its type; empty if it is not known
	Why        string
}

// refusal is what was found, and whether it was reported.
type refusal struct {
	why      string
	owner    *Object // nil if it is not known
	because  string  // why, without the owner
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
		g.refusals[o.Key] = refusal{why: why, owner: owners[i].elsewhere, because: owners[i].why}
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
		list = append(list, Refusal{o, g.versionOf(o), r.why})
		if r.owner != nil {
			list = append(list, Refusal{r.owner, g.versionOf(r.owner), fmt.Sprintf("%s refers to this owner: %s", o, r.because)})
		}
		r.reported = true
		g.refusals[key] = r
	}
	return list
}

// versionOf is the apiVersion of the type of an object; empty if it is not known. The caller holds mu.
func (g *graph) versionOf(o *Object) string {
	if k := g.kinds[o.Kind]; k != nil && k.GVK != (schema.GroupVersionKind{}) {
		return k.GVK.GroupVersion().String()
	}
	return ""
}
