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
	Pod      string          `json:"pod"` // ID of the pod
	ID       string          `json:"id"`
	Name     string          `json:"name,omitempty"`
	Priority int32           `json:"priority"` // of the pod
	Grace    metav1.Duration `json:"grace"`    // of the pod
	AskedAt  time.Time       `json:"askedAt"`
	// StartedAt is when the stopped run began, if its runtime reports it.
	StartedAt time.Time `json:"startedAt,omitzero"`
	// Restarting reports that the container had exited, and was about to be started.
	Restarting bool `json:"restarting,omitempty"`
	// ByUnit reports that its systemd unit starts it again, possibly as a new container.
	ByUnit bool `json:"byUnit,omitempty"`
	// HostLived reports that the host did not shut down.
	HostLived bool `json:"hostLived,omitempty"`
	// Drained reports that an undone drain, and not a shutdown, stopped it.
	Drained bool `json:"drained,omitempty"`

	// Tries is the number of attempts to start it. TriedAt is the time of the last one.
	Tries   int            `json:"tries,omitempty"`
	TriedAt time.Time      `json:"triedAt,omitzero"`
	Outcome RestartOutcome `json:"outcome,omitempty"`
	At      time.Time      `json:"at,omitzero"` // of the outcome
	// Reason says why it was not started. While the restart is pending, it is the error of the last
	// attempt.
	Reason string `json:"reason,omitempty"`
}

// RestartOutcome is the result of a restart; empty while it is pending.
type RestartOutcome string

// The outcomes.
const (
	Restarted     RestartOutcome = "started" // by hostler
	RunsAnyway    RestartOutcome = "runs"    // another program has started it, or it never ended
	LeftStopped   RestartOutcome = "left"    // hostler does not start it, but its unit may
	RestartFailed RestartOutcome = "failed"  // its runtime rejected several attempts, or did not report the needed facts
)

// AwaitsRuntime is the Reason of a container whose runtime does not answer.
const AwaitsRuntime = "waits for its runtime to answer"

// StaysStopped returns why nothing starts a container again, by the name of its runtime.Restart;
// empty if something may.
func StaysStopped(restart string, hostLived bool) string {
	switch {
	case restart == "never":
		return `its restart policy is "no"`
	case restart == "not-at-boot" && !hostLived:
		return "its restart policy does not start it after a boot"
	}
	return ""
}

// By returns what stopped the container.
func (r Restart) By() string {
	if r.Drained {
		return "drain"
	}
	return "shutdown"
}

// same reports whether both are for the same container.
func (r Restart) same(o Restart) bool { return r.Runtime == o.Runtime && r.ID == o.ID }

// pendingRestarts returns the containers to start after the drain in the file has ended: those with
// a stop signal, and those that were already pending. Restarts with an outcome are dropped.
func (f content) pendingRestarts(hostLived bool, more ...Restart) *[]Restart {
	list := slices.Clone(more)
	if f.Restarts != nil {
		for _, r := range *f.Restarts {
			if r.Outcome == "" {
				r.HostLived = r.HostLived && hostLived
				list = merged(list, []Restart{r})
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

// addPending adds a pod's containers. It replaces an earlier entry of a container, because the
// container must have been started since.
func addPending(list []Restart, p PodRecord, hostLived bool) []Restart {
	if p.Once {
		return list // its containers cannot be started again
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
// results since the last shutdown. They must not be modified.
func (j *Journal) Restarts() []Restart {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file.Restarts == nil {
		return nil
	}
	return *j.file.Restarts
}

// NoteRestart stores the state of a restart, and returns whether it was still pending. A restart
// with an outcome is not changed, unless it failed and has another outcome now.
func (j *Journal) NoteRestart(now Restart) (pending bool) {
	j.changeRestarts(func(r *Restart) bool {
		isFixed := r.Outcome == RestartFailed && now.Outcome != ""
		if !r.same(now) || r.Outcome != "" && !isFixed {
			return false
		}
		pending = r.Outcome == ""
		changed := *r != now
		*r = now
		return changed
	})
	return pending
}

// WaiveRestarts ends pending restarts with the given reason, because a drain wants the containers
// stopped. It does not change those for whose priority skip returns true.
func (j *Journal) WaiveRestarts(reason string, skip func(priority int32) bool) {
	j.changeRestarts(func(r *Restart) bool {
		changed := r.Outcome == "" && !skip(r.Priority)
		if changed {
			r.Outcome, r.At, r.Reason = LeftStopped, time.Now(), reason
		}
		return changed
	})
}

// changeRestarts applies a change to a copy of each restart, because returned values must not be
// modified.
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
