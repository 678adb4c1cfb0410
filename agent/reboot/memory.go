package reboot

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
)

// mostPast is how many past reboots are kept.
const mostPast = 5

// Memory is the persisted state. It has a field for each key of its JSON.
type Memory struct {
	Request *Request `json:"request,omitempty"` // nil before the first request
	Past    []Past   `json:"past"`              // newest first
	// Waived lists the files and checks that are ignored in one boot, because a person cancelled the reboot.
	Waived []string `json:"waived,omitempty"`
	// WaivedBoot is the boot ID of that boot.
	WaivedBoot string `json:"waivedBoot,omitempty"`
}

// Request is a reboot that is requested, in progress or over.
type Request struct {
	ID     string                  `json:"id"`
	Step   controlplane.RebootStep `json:"step"`
	Since  time.Time               `json:"since"`  // start of the step
	Wanted time.Time               `json:"wanted"` // time of the request
	Reason string                  `json:"reason"`
	By     string                  `json:"by,omitempty"` // user who requested the reboot; empty for a file or a check
	// Now means to wait neither for a slot nor for a window, as a person requested.
	Now bool `json:"now,omitempty"`
	// Boot is the boot ID at the request. With another boot ID, the host has rebooted.
	Boot      string `json:"boot"`
	Cancelled string `json:"cancelled,omitempty"` // user who cancelled the reboot
	// Message says what the host waits for.
	Message string `json:"message,omitempty"`
	// ByOther reports that something else than hostler has rebooted the host.
	ByOther bool    `json:"byOther,omitempty"`
	Attempt Attempt `json:"attempt,omitzero"`
}

// Attempt is the state of the current attempt, and the result of the last ones.
type Attempt struct {
	Failed  int       `json:"failed,omitempty"`  // number of failed attempts in a row
	Failure string    `json:"failure,omitempty"` // error of the last failed attempt
	RetryAt time.Time `json:"retryAt,omitzero"`  // earliest time of the next attempt
	Granted time.Time `json:"granted,omitzero"`  // when the host got its turn
	Down    time.Time `json:"down,omitzero"`     // start of the last step before the boot, by the clock before the boot
	Drain   time.Time `json:"drain,omitzero"`    // start of the drain; its containers must be started again
	Locked  bool      `json:"locked,omitempty"`  // the lock may be held, and must be released
	Lock    LockID    `json:"lock,omitzero"`     // that lock; zero if an earlier version has stored it
}

// LockID identifies the slot that a lock gives. It is stored, because the slot must be given back there even
// if the configuration has changed since.
type LockID struct {
	FleetLock string `json:"fleetLock,omitempty"` // URL of the lock server; empty for `hostler server`
	Group     string `json:"group,omitempty"`
	Host      string `json:"host,omitempty"` // name of this host there
	// PasswordFile has the password that the lock server requires; empty for none. It does not identify the slot.
	PasswordFile string `json:"passwordFile,omitempty"`
}

// same reports whether both identify the same slot. The password may have been moved to another file.
func (l LockID) same(other LockID) bool {
	l.PasswordFile = other.PasswordFile
	return l == other
}

// String names the lock for people.
func (l LockID) String() string {
	if l.FleetLock == "" {
		return "group " + l.Group + " of hostler server"
	}
	return "group " + l.Group + " of " + l.FleetLock
}

// Past is a reboot that is over.
type Past struct {
	Reason string          `json:"reason"`
	At     time.Time       `json:"at"`   // end of the reboot
	Took   metav1.Duration `json:"took"` // time from the slot to the end; zero without a slot
	// ByOther reports that something else than hostler has rebooted the host.
	ByOther bool `json:"byOther,omitempty"`
}

// active reports whether there is a reboot that is not over.
func (r *Request) active() bool { return r != nil && r.Step != controlplane.RebootDone }

// running reports whether the host has its turn.
func (r *Request) running() bool { return r.Step.Running() }

// published is the request in the format of the Node's annotation.
func (r *Request) published(byServer bool) controlplane.RebootRequest {
	p := controlplane.RebootRequest{
		ID: r.ID, Step: r.Step, Since: metav1.NewTime(r.Since), Wanted: metav1.NewTime(r.Wanted), Reason: r.Reason, EmptiedByServer: byServer,
	}
	switch r.Step {
	case controlplane.RebootWanted, controlplane.RebootVerifying, controlplane.RebootDone:
		p.Message = r.Message // at the other steps, the message comes from the server
	}
	return p
}

// longest is the duration of the longest of the past reboots.
func (m Memory) longest() time.Duration {
	var d time.Duration
	for _, p := range m.Past {
		d = max(d, p.Took.Duration)
	}
	return d
}

// took returns how long the host has had its turn. If the clock was set while the host was down, the time of the boot
// is not known, and does not count: a wrong time would keep the host out of its windows.
func (r Request) took(now time.Time) time.Duration {
	a := r.Attempt
	if r.Step != controlplane.RebootVerifying || a.Down.IsZero() {
		return now.Sub(a.Granted)
	}
	down := r.Since.Round(0).Sub(a.Down)
	if down < 0 || down > mostDown {
		down = 0
	}
	return a.Down.Sub(a.Granted) + down + now.Sub(r.Since)
}

// over records a finished reboot. r is its state in the last step.
func (m *Memory) over(r Request, now time.Time) {
	p := Past{Reason: r.Reason, At: now, ByOther: r.ByOther}
	if took := r.took(now); !r.Attempt.Granted.IsZero() && took > 0 && took < mostTook {
		p.Took = metav1.Duration{Duration: took.Round(time.Second)}
	}
	m.Past = append([]Past{p}, m.Past[:min(len(m.Past), mostPast-1)]...)
}

// Sources that stand for others until these are known.
const (
	all       = "reboot.sentinels, reboot.checks" // all files and checks
	allChecks = "reboot.checks"
)

// waive ignores the files and checks that request a reboot in this boot, and those whose result is not known.
func (m *Memory) waive(boot string, f found) {
	m.WaivedBoot, m.Waived = boot, nil
	m.waiveAlso(f)
}

// waiveAlso ignores more files and checks. It reports whether that has changed anything.
func (m *Memory) waiveAlso(f found) (changed bool) {
	before := m.Waived
	m.Waived = slices.DeleteFunc(slices.Clone(before), func(source string) bool { return source == all || source == allChecks })
	for _, f := range slices.Concat(f.wanted, f.undecided) {
		if !slices.Contains(m.Waived, f.Source) {
			m.Waived = append(m.Waived, f.Source)
		}
	}
	return !slices.Equal(before, m.Waived)
}

// waives reports whether a file or check is ignored in this boot.
func (m *Memory) waives(boot, source string) bool {
	return m.WaivedBoot == boot && slices.Contains(m.Waived, source)
}

// unwaived returns the reasons to reboot that no person has waived in this boot, and the others.
func (m *Memory) unwaived(boot string, all []Finding) (wanted, ignored []Finding) {
	for _, f := range all {
		if m.waives(boot, f.Source) {
			ignored = append(ignored, f)
		} else {
			wanted = append(wanted, f)
		}
	}
	return wanted, ignored
}
