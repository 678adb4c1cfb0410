package plan

import (
	"cmp"
	"slices"

	"hostler.io/hostler/runtime"
)

// Order has, by name of a systemd unit, the running services that systemd stops before it.
type Order map[string][]string

// Holder is the systemd unit of a container: its own, or its runtime's service.
func Holder(c runtime.Container) string { return cmp.Or(c.Unit, runtimeService(c.Runtime)) }

func runtimeService(name string) string { return name + ".service" }

// Holders returns the names of the units of running containers.
func Holders(pods []runtime.Pod) (names []string) {
	for _, p := range pods {
		for _, c := range p.Containers {
			if Alive(c) {
				names = append(names, Holder(c))
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Apply returns the pods with the StopsAfter of their containers set from the order. Services of
// runtimes are omitted. For containers without their own unit, units of other containers are
// omitted, too: each is ordered after its runtime.
func (o Order) Apply(pods []runtime.Pod) []runtime.Pod {
	if len(o) == 0 {
		return pods
	}
	units, services := map[string]bool{}, map[string]bool{}
	for _, p := range pods {
		services[runtimeService(p.Runtime)] = true
		for _, c := range p.Containers {
			units[c.Unit] = true
		}
	}
	pods = slices.Clone(pods)
	for i := range pods {
		p := &pods[i]
		p.Containers = slices.Clone(p.Containers)
		for j := range p.Containers {
			c := &p.Containers[j]
			c.StopsAfter = nil
			for _, name := range o[Holder(*c)] {
				if !services[name] && name != c.Unit && (c.Unit != "" || !units[name]) {
					c.StopsAfter = append(c.StopsAfter, name)
				}
			}
		}
	}
	return pods
}
