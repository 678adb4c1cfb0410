package reboot

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
)

// mostPast is how many reboots are remembered.
const mostPast = 5

// Memory is what is on disk. It has a field for each key of its JSON.
type Memory struct {
	Request *Request `json:"request,omitempty"` // nil if none ever was
	Past    []Past   `json:"past"`              // the last first
	// Waived are the reasons for which no reboot is wanted in this boot, as a person has cancelled it.
	Waived []string `json:"waived,omitempty"`
	// WaivedBoot is that boot.
	WaivedBoot string `json:"waivedBoot,omitempty"`
}

// Request is a reboot that is wanted, under way or over.
type Request struct {
	ID     string                  `json:"id"`
	Step   controlplane.RebootStep `json:"step"`
	Since  time.Time               `json:"since"`  // of the step
	Wanted time.Time               `json:"wanted"` // since when
	Reason string                  `json:"reason"`
	By     string                  `json:"by,omitempty"` // a person; empty for a file or a check
	// Now waits neither for a slot nor for a window, as a person requested.
	Now bool `json:"now,omitempty"`
	// Boot is the one in which the reboot was requested. In any other the host has rebooted.
	Boot      string `json:"boot"`
	Cancelled string `json:"cancelled,omitempty"` // by whom
	// Message says what the host waits for.
	Message string `json:"message,omitempty"`
	// ByOther reports that something else than hostler has rebooted the host.
	ByOther bool    `json:"byOther,omitempty"`
	Attempt Attempt `json:"attempt,omitzero"`
}

// Attempt is what was done for a request, and how the last attempts went.
type Attempt struct {
	Failed  int       `json:"failed,omitempty"`  // attempts, one after the other
	Failure string    `json:"failure,omitempty"` // why the last one failed
	RetryAt time.Time `json:"retryAt,omitzero"`  // no attempt before
	Granted time.Time `json:"granted,omitzero"`  // when the host took its turn
	Drain   time.Time `json:"drain,omitzero"`    // start of the drain whose pods are to be started again
	Locked  bool      `json:"locked,omitempty"`  // a lock outside may have to be given back
}

// Past is a reboot that is over.
type Past struct {
	Reason string          `json:"reason"`
	At     time.Time       `json:"at"`   // its end
	Took   metav1.Duration `json:"took"` // from the slot to the end; zero if it had none
	// ByOther reports that something else than hostler has rebooted the host.
	ByOther bool `json:"byOther,omitempty"`
}

// active reports whether the reboot is not over.
func (r *Request) active() bool { return r != nil && r.Step != controlplane.RebootDone }

// running reports whether the host has its turn.
func (r *Request) running() bool {
	switch r.Step {
	case controlplane.RebootGranted, controlplane.RebootDraining, controlplane.RebootRebooting, controlplane.RebootVerifying:
		return true
	}
	return false
}

// published is the request as the Node has it.
func (r *Request) published(byServer bool) controlplane.RebootRequest {
	p := controlplane.RebootRequest{
		ID: r.ID, Step: r.Step, Since: metav1.NewTime(r.Since), Wanted: metav1.NewTime(r.Wanted), Reason: r.Reason, EmptiedByServer: byServer,
	}
	switch r.Step {
	case controlplane.RebootWanted, controlplane.RebootVerifying, controlplane.RebootDone:
		p.Message = r.Message // else it is what the server says
	}
	return p
}

// longest is how long the longest of the last reboots took.
func (m Memory) longest() time.Duration {
	var d time.Duration
	for _, p := range m.Past {
		d = max(d, p.Took.Duration)
	}
	return d
}

// over remembers a reboot that has happened.
func (m *Memory) over(r Request, now time.Time) {
	p := Past{Reason: r.Reason, At: now, ByOther: r.ByOther}
	if took := now.Sub(r.Attempt.Granted); !r.Attempt.Granted.IsZero() && took > 0 && took < mostTook {
		p.Took = metav1.Duration{Duration: took.Round(time.Second)}
	}
	m.Past = append([]Past{p}, m.Past[:min(len(m.Past), mostPast-1)]...)
}

// waive has hostler ignore these reasons in this boot.
func (m *Memory) waive(boot string, wanted []Finding) {
	m.WaivedBoot, m.Waived = boot, nil
	for _, f := range wanted {
		m.Waived = append(m.Waived, f.Source)
	}
}

// unwaived returns the reasons to reboot that no person has waived in this boot.
func (m *Memory) unwaived(boot string, wanted []Finding) []Finding {
	if m.WaivedBoot != boot {
		return wanted
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(f Finding) bool { return slices.Contains(m.Waived, f.Source) })
}
