package garbagecollector

import (
	"fmt"

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

// refuse notes whether an object has an owner that it cannot have. The caller holds mu.
func (g *graph) refuse(o *Object) {
	for _, ref := range o.Owners {
		why := g.misplaced(o, ref)
		if why == "" {
			continue
		}
		if g.refusals[o.Key].why != why {
			g.refusals[o.Key] = refusal{why: why}
		}
		return
	}
	delete(g.refusals, o.Key)
}

// misplaced says why a reference cannot lead to its owner; empty if it can. The caller holds mu.
func (g *graph) misplaced(o *Object, ref Owner) string {
	if ref.UID == "" {
		return ""
	}
	elsewhere := ""
	for _, found := range g.owners[ref.index()] {
		switch {
		case found.is(ref, o.Namespace):
			return ""
		case found.Type == ref.Type && found.Own == ref.Name:
			elsewhere = found.Namespace
		}
	}
	switch k := g.byType(ref.Type); {
	case elsewhere != "" && o.Namespace != "":
		return fmt.Sprintf("owner %s with UID %s is in namespace %s: an owner in another namespace counts as absent", ref, ref.UID, elsewhere)
	case elsewhere != "", o.Namespace == "" && k != nil && k.NameOf != nil:
		return fmt.Sprintf("owner %s with UID %s is in a namespace: an object without a namespace cannot have such an owner", ref, ref.UID)
	}
	return ""
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
