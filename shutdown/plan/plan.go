package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/runtime"
)

// Plan is who would be stopped when, and with how much time. It is what
// `hostler shutdown plan` prints and what a drain carries out.
type Plan struct {
	Phases []PlannedPhase `json:"phases"` // in the order in which they run
	// Total is what the configured phases request. Where it does not fit into
	// what is granted, the phases' own graces are shorter in sum.
	Total metav1.Duration `json:"total"`
	// Granted is the longest delay of the init system; zero if it is not known.
	Granted Delay `json:"granted"`
	// Notes lists labels and annotations that were passed over.
	Notes []Note `json:"notes,omitempty"`
	// Message says which runtime could not be asked, and shows as last seen.
	Message string `json:"message,omitempty"`
}

// PlannedPhase is one phase with its pods. One without pods is skipped.
type PlannedPhase struct {
	Name     string          `json:"name"`
	Priority int32           `json:"priority"`
	Grace    metav1.Duration `json:"grace"`
	Wanted   metav1.Duration `json:"wanted,omitzero"` // as configured, if logind grants less
	// Unused is the time of phases before it that have no pods. Its pods have it in addition to Grace.
	Unused metav1.Duration `json:"unused,omitzero"`
	Pods   []PlannedPod    `json:"pods"`
}

// PlannedPod is a pod that runs, in its phase.
type PlannedPod struct {
	Runtime    string             `json:"runtime"`
	ID         string             `json:"id"`
	UID        string             `json:"uid,omitempty"` // the orchestrator's, where it differs from ID
	Namespace  string             `json:"namespace"`
	Name       string             `json:"name"`
	Priority   int32              `json:"priority"`
	Grace      metav1.Duration    `json:"grace"` // the longest of its containers'
	Containers []PlannedContainer `json:"containers"`

	Pod runtime.Pod `json:"-"`
}

// PlannedContainer is a running container. Grace is the smallest of its own, its
// unit's and its phase's.
type PlannedContainer struct {
	Runtime string          `json:"runtime"`
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Grace   metav1.Duration `json:"grace"`
	// Wanted is the grace that it requests, and Limit names what gives it less; both are empty
	// where it has as much as it requests.
	Wanted metav1.Duration `json:"wanted,omitzero"`
	Limit  string          `json:"limit,omitempty"`
	// After names the containers that need this one: it is sent the stop signal once
	// they have.
	After []string `json:"after,omitempty"`
	// AfterUnits names systemd units that systemd orders after the container's: it is asked to
	// end once they have stopped.
	AfterUnits []string `json:"afterUnits,omitempty"`
	// Unit is the systemd unit by whose stop it is stopped, if it is of any.
	Unit string `json:"unit,omitempty"`
	// Restart is who starts it again after the boot, where its runtime reports it.
	Restart runtime.Restart `json:"restart,omitzero"`

	Container runtime.Container `json:"-"`
	Own       time.Duration     `json:"-"` // its own grace, regardless of its unit's and the phase's
	Cut       string            `json:"-"` // what makes Grace shorter than Own; like Limit, but also of a default
	Requested bool              `json:"-"` // Own is no default
	Waits     []string          `json:"-"` // After, by IDs
	Rest      time.Duration     `json:"-"` // what of the phase is kept for those that end after it
}

// New sorts the pods that have running containers into phases and fits
// those into what the init system grants (zero if that is not known), keeping
// Margin, or a quarter of little, for the end. phases are as Periods.Phases
// returns them; without any the plan is empty.
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

// passOn gives the time of phases without pods to the next phase that has some.
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

// available is how long the pods of the phase have.
func (p PlannedPhase) available() time.Duration { return p.Grace.Duration + p.Unused.Duration }

// explain says which grace period applies, if the note is about one.
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
			// A fault on the pod is found once for each of its containers.
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

// nameLimit says why a container of the phase has less than it requests, if it has.
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

// longest is the longest grace of the pod's containers.
func (p PlannedPod) longest() (grace time.Duration) {
	for _, c := range p.Containers {
		grace = max(grace, c.Grace.Duration)
	}
	return grace
}

// Given is what a container has of its own grace: no more than its unit gives.
func (c PlannedContainer) Given() time.Duration {
	if unit := c.Container.UnitGrace; unit != nil {
		return min(c.Own, *unit)
	}
	return c.Own
}

// WithoutCritical takes the critical pods out of a plan: an operator's drain leaves them
// alone. It returns them beside what is left.
func WithoutCritical(p Plan) (Plan, []PlannedPod) {
	spared := []PlannedPod{}
	p.Phases = slices.Clone(p.Phases)
	for i := range p.Phases {
		pods := []PlannedPod{}
		for _, pod := range p.Phases[i].Pods {
			if pod.Priority >= CriticalPriority {
				spared = append(spared, pod)
			} else {
				pods = append(pods, pod)
			}
		}
		p.Phases[i].Pods = pods
	}
	return p, spared
}

// Bound is how long the plan takes at the most, except kills: each phase ends
// with the longest of the containers' own graces, and at the latest when the
// graces of the phases up to it are over. Containers that end one after another need
// the sum of theirs.
func (p Plan) Bound() time.Duration {
	var bound, latest time.Duration
	for _, phase := range p.Phases {
		latest += phase.Grace.Duration
		var longest time.Duration
		for _, pod := range phase.Pods {
			for _, c := range pod.Containers {
				longest = max(longest, c.Own+c.Rest)
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

// Alive reports whether a container is to be stopped. One that its runtime has lost track of
// may live, as where a shim is slow to answer a containerd that has just been started.
func Alive(c runtime.Container) bool {
	return c.State == runtime.Running || c.State == runtime.Unknown
}
