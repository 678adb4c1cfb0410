package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
)

// Plan says which pods are stopped when, and with how much grace. `hostler shutdown plan` prints
// it, and a drain executes it.
type Plan struct {
	Phases []PlannedPhase `json:"phases"` // in execution order
	// Total is the sum of the configured phases. If it does not fit into Granted, the sum of the
	// phases' Grace is less.
	Total metav1.Duration `json:"total"`
	// Granted is the longest delay of the init system; zero if unknown.
	Granted Delay `json:"granted"`
	// Notes lists labels and annotations that are ignored.
	Notes []Note `json:"notes,omitempty"`
	// Message names runtimes that did not answer. Their pods are the last known ones.
	Message string `json:"message,omitempty"`
}

// PlannedPhase is one phase with its pods. A phase without pods is skipped.
type PlannedPhase struct {
	Name     string          `json:"name"`
	Priority int32           `json:"priority"`
	Grace    metav1.Duration `json:"grace"`
	Wanted   metav1.Duration `json:"wanted,omitzero"` // as configured, if logind grants less
	// Unused is the time of earlier phases without pods. The pods have it in addition to Grace.
	Unused metav1.Duration `json:"unused,omitzero"`
	Pods   []PlannedPod    `json:"pods"`
}

// PlannedPod is a running pod in its phase.
type PlannedPod struct {
	Runtime    string             `json:"runtime"`
	ID         string             `json:"id"`
	UID        string             `json:"uid,omitempty"` // the orchestrator's, if it differs from ID
	Namespace  string             `json:"namespace"`
	Name       string             `json:"name"`
	Priority   int32              `json:"priority"`
	Grace      metav1.Duration    `json:"grace"` // the longest of its containers
	Sandbox    bool               `json:"sandbox,omitempty"`
	Containers []PlannedContainer `json:"containers"`

	Pod runtime.Pod `json:"-"`
}

// PlannedContainer is a running container. Grace is the smallest of its own grace period, its
// unit's and its phase's.
type PlannedContainer struct {
	Runtime string          `json:"runtime"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Grace   metav1.Duration `json:"grace"`
	// Wanted is the grace period that it requests, and Limit names what gives it less. Both are
	// empty if it gets what it requests.
	Wanted metav1.Duration `json:"wanted,omitzero"`
	Limit  string          `json:"limit,omitempty"`
	// After names the containers that need this one. It is sent the stop signal after they have
	// stopped.
	After []string `json:"after,omitempty"`
	// AfterUnits names the systemd units that are ordered after its unit. It is sent the stop
	// signal after they have stopped.
	AfterUnits []string `json:"afterUnits,omitempty"`
	// Unit is the systemd unit that is stopped to stop it; empty without one.
	Unit string `json:"unit,omitempty"`
	// Restart says what starts it again after the boot, if its runtime reports it.
	Restart runtime.Restart `json:"restart,omitzero"`

	Container runtime.Container `json:"-"`
	Own       time.Duration     `json:"-"` // its own grace period, without the limits of its unit and its phase
	Cut       string            `json:"-"` // what makes Grace shorter than Own; unlike Limit, it is also set if Own is a default
	Requested bool              `json:"-"` // Own is not a default
	Waits     []string          `json:"-"` // IDs of After
	Reserve   time.Duration     `json:"-"` // part of the phase that is left for the containers that stop after it
}

// New sorts the pods with running containers into phases, and shortens the phases to what the init
// system grants (zero if unknown). It keeps Margin for the end, or a quarter if little is granted.
// phases must be from Periods.Phases; without any, the plan is empty.
func New(phases []PhaseSpec, pods []runtime.Pod, rules Rules, granted time.Duration) Plan {
	plan := Plan{
		Phases:  make([]PlannedPhase, 0, len(phases)),
		Total:   metav1.Duration{Duration: Total(phases)},
		Granted: Delay{granted},
	}
	for i, p := range Fit(phases, granted) {
		phase := PlannedPhase{Name: p.Name, Priority: p.Priority, Grace: metav1.Duration{Duration: p.Grace}, Pods: []PlannedPod{}}
		if wanted := phases[i].Grace; wanted > p.Grace {
			phase.Wanted.Duration = wanted
		}
		plan.Phases = append(plan.Phases, phase)
	}
	if len(phases) == 0 {
		return plan
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(p runtime.Pod) bool { return !Runs(p) })
	priorities := make([]int32, len(pods))
	for i, pod := range pods {
		priority, notes := Priority(pod, rules)
		for j := range notes {
			notes[j].Effect = fmt.Sprintf("the priority is %d", priority)
		}
		priorities[i], plan.Notes = priority, append(plan.Notes, notes...)
	}
	raise(pods, priorities)
	plan.passOn(func(phase int) bool {
		return slices.ContainsFunc(priorities, func(p int32) bool { return phaseOf(phases, p) == phase })
	})
	for i, pod := range pods {
		phase := &plan.Phases[phaseOf(phases, priorities[i])]
		planned, notes := planPod(pod, priorities[i], phase.available())
		plan.Notes = append(plan.Notes, notes...)
		phase.Pods = append(phase.Pods, planned)
	}
	plan.Notes = withoutRepeats(plan.Notes)
	for _, phase := range plan.Phases {
		orderPods(phase.Pods, phase.available())
		for i := range phase.Pods {
			pod := &phase.Pods[i]
			pod.Grace.Duration = pod.longest()
			for j := range pod.Containers {
				pod.Containers[j].nameLimit(phase)
			}
		}
		slices.SortFunc(phase.Pods, func(a, b PlannedPod) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
				cmp.Compare(a.Runtime, b.Runtime), cmp.Compare(a.ID, b.ID))
		})
	}
	for i := range plan.Notes {
		plan.explain(&plan.Notes[i])
	}
	return plan
}

// passOn adds the time of phases without pods to the next phase that has pods.
func (p *Plan) passOn(hasPods func(phase int) bool) {
	var unused time.Duration
	for i := range p.Phases {
		if !hasPods(i) {
			unused += p.Phases[i].Grace.Duration
			continue
		}
		p.Phases[i].Unused.Duration, unused = unused, 0
	}
}

// available returns the time of the pods of the phase.
func (p PlannedPhase) available() time.Duration { return p.Grace.Duration + p.Unused.Duration }

// explain adds the effective grace period to a note about one.
func (p *Plan) explain(n *Note) {
	if n.Effect != "" {
		return
	}
	for _, phase := range p.Phases {
		for _, pod := range phase.Pods {
			if pod.Runtime != n.Runtime || pod.Namespace != n.Namespace || pod.Name != n.Pod {
				continue
			}
			grace := pod.Grace.Duration
			for _, c := range pod.Containers {
				if c.Name == n.Container {
					grace = c.Grace.Duration
				}
			}
			n.Effect = "the grace period is " + grace.String()
		}
	}
}

func planPod(pod runtime.Pod, priority int32, atMost time.Duration) (PlannedPod, []Note) {
	planned := PlannedPod{
		Sandbox: pod.Sandbox,
		Runtime: pod.Runtime, ID: pod.ID, Namespace: pod.Namespace, Name: pod.Name, Priority: priority, Pod: pod,
	}
	if pod.UID != pod.ID {
		planned.UID = pod.UID
	}
	var all []Note
	for _, c := range pod.Containers {
		if !Alive(c) {
			continue
		}
		own, requested, notes := Grace(pod, c)
		for _, n := range notes {
			// The same note on the pod is found once for each of its containers.
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
		ends := PlannedContainer{Runtime: c.Runtime, ID: c.ID, Name: c.Name, AfterUnits: c.StopsAfter, Unit: c.Unit, Restart: c.Restart, Container: c, Own: own, Requested: requested}
		ends.Grace.Duration = min(ends.Given(), atMost)
		planned.Containers = append(planned.Containers, ends)
	}
	return planned, all
}

// nameLimit sets why a container gets less grace than it requests.
func (c *PlannedContainer) nameLimit(phase PlannedPhase) {
	given := c.Given()
	switch {
	case c.Grace.Duration >= c.Own || c.Own == unknownGrace:
		return
	case given <= c.Grace.Duration:
		c.Cut = "unit " + c.Unit
	case c.Grace.Duration < min(given, phase.available()):
		c.Cut = "the containers that stop after it"
	case phase.Wanted.Duration > 0:
		c.Cut = "logind's delay"
	default:
		c.Cut = "phase " + phase.Name
	}
	if c.Requested {
		c.Limit, c.Wanted.Duration = c.Cut, c.Own
	}
}

// longest returns the longest grace period of the pod's containers.
func (p PlannedPod) longest() (grace time.Duration) {
	for _, c := range p.Containers {
		grace = max(grace, c.Grace.Duration)
	}
	return grace
}

// Given returns the container's own grace period, limited by its unit's.
func (c PlannedContainer) Given() time.Duration {
	if unit := c.Container.UnitGrace; unit != nil {
		return min(c.Own, *unit)
	}
	return c.Own
}

// WithoutCritical removes the critical pods from a plan, because a manual drain does not stop them.
// It also returns the removed pods.
func WithoutCritical(p Plan) (Plan, []PlannedPod) {
	critical := []PlannedPod{}
	p.Phases = slices.Clone(p.Phases)
	for i := range p.Phases {
		pods := []PlannedPod{}
		for _, pod := range p.Phases[i].Pods {
			if pod.Priority >= CriticalPriority {
				critical = append(critical, pod)
			} else {
				pods = append(pods, pod)
			}
		}
		p.Phases[i].Pods = pods
	}
	return p, critical
}

// Pods returns the pods of all phases.
func (p Plan) Pods() (all []PlannedPod) {
	for _, phase := range p.Phases {
		all = append(all, phase.Pods...)
	}
	return all
}

// Bound returns the longest time of the plan, without kills. A phase ends when its slowest
// container ends, and at the latest when the time of all phases so far is over. For containers that
// stop one after another, the sum of their grace periods counts.
func (p Plan) Bound() time.Duration {
	var bound, latest time.Duration
	for _, phase := range p.Phases {
		latest += phase.Grace.Duration
		var longest time.Duration
		for _, pod := range phase.Pods {
			for _, c := range pod.Containers {
				longest = max(longest, min(c.Own, latest)+c.Reserve) // avoids an overflow
			}
		}
		bound = min(bound+longest, latest)
	}
	return bound
}

// Runs reports whether the pod has a container to stop.
func Runs(p runtime.Pod) bool {
	return slices.ContainsFunc(p.Containers, Alive)
}

// Alive reports whether a container must be stopped. In an unknown state, it may run: a shim may be
// slow to answer a restarted containerd.
func Alive(c runtime.Container) bool {
	return c.State == runtime.Running || c.State == runtime.Unknown
}
