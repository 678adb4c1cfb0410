package journal

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Restart is a container that a shutdown stopped and that its runtime can start again, with the
// result. It has a field for each key of its JSON.
type Restart struct {
	Runtime  string          `json:"runtime"`
	Pod      string          `json:"pod"` // its ID
	ID       string          `json:"id"`
	Name     string          `json:"name,omitempty"`
	Priority int32           `json:"priority"` // of the pod
	Grace    metav1.Duration `json:"grace"`    // of the pod
	AskedAt  time.Time       `json:"askedAt"`
	// StartedAt is when the run began that was to end, where its runtime reports it.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Restarting reports that it had ended then, and was about to be started.
	Restarting bool `json:"restarting,omitempty"`
	// ByUnit reports that its systemd unit was to start it again, perhaps as a new container.
	ByUnit bool `json:"byUnit,omitempty"`
	// HostLived reports that the host did not go down after all.
	HostLived bool `json:"hostLived,omitempty"`
	// Drained reports that a drain has stopped it whose cause ended, and not a shutdown.
	Drained bool `json:"drained,omitempty"`

	// Tries is how often a start was tried, and TriedAt the last time.
	Tries   int            `json:"tries,omitempty"`
	TriedAt time.Time      `json:"triedAt,omitzero"`
	Outcome RestartOutcome `json:"outcome,omitempty"`
	At      time.Time      `json:"at,omitzero"` // of the outcome
	// Reason says why it was not started; while it is pending, the error of the last attempt.
	Reason string `json:"reason,omitempty"`
}

// RestartOutcome is the result of a container that a shutdown stopped; empty while it is pending.
type RestartOutcome string

// The outcomes.
const (
	Restarted     RestartOutcome = "started" // by hostler
	RunsAnyway    RestartOutcome = "runs"    // another client has started it, or it never ended
	LeftStopped   RestartOutcome = "left"    // it is not hostler's to start, though its unit may be
	RestartFailed RestartOutcome = "failed"  // its runtime refused several times, or never reported the needed facts
)

// AwaitsRuntime is the Reason of a container whose runtime does not answer.
const AwaitsRuntime = "waits for its runtime to answer"

// StaysStopped says why nobody starts a container again, by the name of its runtime.Restart; empty if
// somebody may.
func StaysStopped(restart string, hostLived bool) string {
	switch {
	case restart == "never":
		return `its restart policy is "no"`
	case restart == "not-at-boot" && !hostLived:
		return "its restart policy does not start it after a boot"
	}
	return ""
}

// By names what stopped it.
func (r Restart) By() string {
	if r.Drained {
		return "drain"
	}
	return "shutdown"
}

// same reports whether two are of one container.
func (r Restart) same(o Restart) bool { return r.Runtime == o.Runtime && r.ID == o.ID }

// pendingRestarts returns the containers to start again after the drain in the file has ended: those
// with a stop signal, and those still pending from before. Other results are dropped.
func (f content) pendingRestarts(hostLived bool) *[]Restart {
	var list []Restart
	if f.Restarts != nil {
		for _, r := range *f.Restarts {
			if r.Outcome == "" {
				r.HostLived = r.HostLived && hostLived
				list = append(list, r)
			}
		}
	}
	if f.Record != nil {
		for _, p := range f.Record.Pods {
			list = addPending(list, p, hostLived)
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.SortFunc(list, func(a, b Restart) int { return cmp.Or(cmp.Compare(a.Runtime, b.Runtime), cmp.Compare(a.ID, b.ID)) })
	return &list
}

// addPending adds a pod's containers. A container that was pending and whose stop was requested again
// has been started by somebody meanwhile.
func addPending(list []Restart, p PodRecord, hostLived bool) []Restart {
	if p.Once {
		return list // nobody can start its containers again
	}
	for _, c := range p.Containers() {
		if !c.Restartable || c.RequestedAt.IsZero() {
			continue
		}
		r := Restart{
			Runtime: p.Runtime, Pod: p.ID, ID: c.ID, Name: c.Name, Priority: p.Priority, Grace: p.Grace,
			AskedAt: c.RequestedAt, StartedAt: c.StartedAt, Restarting: c.Restarting, ByUnit: c.ByUnit, HostLived: hostLived,
		}
		if reason := StaysStopped(c.NotRestarted, hostLived); reason != "" {
			r.Outcome, r.At, r.Reason = LeftStopped, time.Now(), reason
		}
		list = append(slices.DeleteFunc(list, r.same), r)
	}
	return list
}

// Restarts returns the containers that shutdowns stopped and that can be started again, with the
// results of the last shutdown. They must not be changed.
func (j *Journal) Restarts() []Restart {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file.Restarts == nil {
		return nil
	}
	return *j.file.Restarts
}

// NoteRestart records the state of a restart, and returns whether it was pending until now. A final
// result is not changed.
func (j *Journal) NoteRestart(now Restart) (pending bool) {
	j.changeRestarts(func(r *Restart) bool {
		if !r.same(now) || r.Outcome != "" {
			return false
		}
		pending = true
		changed := *r != now
		*r = now
		return changed
	})
	return pending
}

// WaiveRestarts ends pending restarts with the given reason, except those of spared priorities: a
// person wants these containers stopped.
func (j *Journal) WaiveRestarts(reason string, spared func(priority int32) bool) {
	j.changeRestarts(func(r *Restart) bool {
		changed := r.Outcome == "" && !spared(r.Priority)
		if changed {
			r.Outcome, r.At, r.Reason = LeftStopped, time.Now(), reason
		}
		return changed
	})
}

// changeRestarts applies a change to a copy of each restart: returned values are not changed.
func (j *Journal) changeRestarts(apply func(*Restart) bool) {
	j.change(true, func(f *content) bool {
		if f.Restarts == nil {
			return false
		}
		list, changed := slices.Clone(*f.Restarts), false
		for i := range list {
			changed = apply(&list[i]) || changed
		}
		if changed {
			f.Restarts = &list
		}
		return changed
	})
}
