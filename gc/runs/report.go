package runs

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/gc"
	"hostler.io/hostler/gc/survey"
)

// Report is what a run did: what `hostler gc run` prints, with a field for each key of
// its JSON.
type Report struct {
	StartedAt time.Time       `json:"startedAt"`
	Duration  metav1.Duration `json:"duration"`
	Trigger   string          `json:"trigger"` // what started the run, such as "interval"

	// Asked, estimated and measured bytes and inodes side by side. Freed is the growth of
	// the available space from the run's start to its end, and 0 if others
	// wrote more than the run freed.
	RequestedBytes  uint64 `json:"requestedBytes"`
	EstimatedBytes  uint64 `json:"estimatedBytes"` // what no other image holds, where that is known; else whole sizes
	FreedBytes      uint64 `json:"freedBytes"`
	RequestedInodes uint64 `json:"requestedInodes"`
	EstimatedInodes uint64 `json:"estimatedInodes"` // where no runtime reports them, by the filesystem's average
	FreedInodes     uint64 `json:"freedInodes"`

	// Filesystems are those that these figures are of, each as a mount point with
	// its device in parentheses if that is known.
	Filesystems []string `json:"filesystems,omitempty"`

	// Candidates is how many images nothing protected when the run began, and
	// OldestCandidate since when the one of them that was unused longest is; zero
	// if there was none.
	Candidates      int       `json:"candidates"`
	OldestCandidate time.Time `json:"oldestCandidate,omitzero"`

	Removed []Removal         `json:"removed"`
	Kept    map[gc.Reason]int `json:"kept"` // how many stayed, by reason
	Errors  []string          `json:"errors"`
	// Holders and Folders say what holds the space on filesystems that are short of
	// it at the end: images by what protects them, and the largest folders of the
	// filesystem, whatever they hold.
	Holders []Holder    `json:"holders,omitempty"`
	Folders []gc.Folder `json:"folders,omitempty"`
	// Short names filesystems whose usage the run was to lower to a threshold or target, and could
	// not: `hostler gc run` exits with 1.
	Short []string `json:"short,omitempty"`
	// Warnings say why the run did not reach its goal.
	Warnings []string `json:"warnings,omitempty"`
	// Ended says why the run ended.
	Ended string `json:"ended"`

	// LongestWindow is the longest time from asking whether an image is in use
	// to the end of its removal: what began to use it in between was missed.
	LongestWindow metav1.Duration `json:"longestWindow"`

	trouble    map[string]string // kind of trouble to its text, for the log
	runtimes   []string          // the runtimes that there were when the run began
	unanswered bool              // a runtime could not be asked
	err        error             // the first one
}

// Kinds of objects in a Removal and a Progress.
const (
	KindImage     = "image"
	KindContainer = "container"
	KindPod       = "pod" // its dead sandbox
	KindLog       = "log" // a pod's log folder, or a link to a log
)

// Holder is images of one filesystem that stay for one reason.
type Holder struct {
	Filesystem string    `json:"filesystem"`
	Reason     gc.Reason `json:"reason"`
	Images     int       `json:"images"`
	SizeBytes  uint64    `json:"sizeBytes"` // as the runtime reports it, layers that they share several times
	// By reports the first of them what holds them, such as a container or a
	// pattern; empty where the reason says it all.
	By []string `json:"by,omitempty"`
}

// Removal is one object that a run removed.
type Removal struct {
	Kind      string    `json:"kind"`
	ID        string    `json:"id"`
	Names     []string  `json:"names"`         // an image's references, a container's name, a log's path
	Pod       string    `json:"pod,omitempty"` // namespace/name of a container's pod
	Runtime   string    `json:"runtime"`
	Reason    gc.Reason `json:"reason"`
	SizeBytes uint64    `json:"sizeBytes"` // as the runtime reports it: an estimate
}

// Progress is one step of a run, as it happens.
type Progress struct {
	// Waiting reports that the run waits for one that is in progress, and nothing else.
	Waiting bool

	Removal
	Action gc.Action // gc.Keep if it turned out to be in use, or if Err is set
	Err    error
	Done   int // objects dealt with so far, this one included
	Total  int // objects in the plan; a later plan of the same run may add more
}

// Summary is a run in the short form of `hostler status`.
type Summary struct {
	StartedAt      time.Time       `json:"startedAt"`
	Duration       metav1.Duration `json:"duration"`
	RequestedBytes uint64          `json:"requestedBytes"`
	FreedBytes     uint64          `json:"freedBytes"`
	Removed        int             `json:"removed"`
	// RemovedKinds counts them by kind: a run of images may have removed containers
	// that held some.
	RemovedKinds map[string]int `json:"removedKinds,omitempty"`
	Errors       []string       `json:"errors"`
	Warnings     []string       `json:"warnings,omitempty"` // what kept the run from its goal
}

// NewReport begins the report of a run that something started.
func NewReport(trigger string) *Report {
	return &Report{
		StartedAt: time.Now(), Trigger: trigger,
		Removed: []Removal{}, Errors: []string{}, Kept: make(map[gc.Reason]int), trouble: make(map[string]string),
	}
}

// Summary shortens the report.
func (r Report) Summary() Summary {
	return Summary{
		StartedAt: r.StartedAt, Duration: r.Duration,
		RequestedBytes: r.RequestedBytes, FreedBytes: r.FreedBytes,
		Removed: len(r.Removed), RemovedKinds: r.removedKinds(), Errors: r.Errors, Warnings: r.Warnings,
	}
}

// Requested reports whether a person requested the run.
func (r Report) Requested() bool { return r.Trigger == TriggerRequest }

// Err returns the first error of a run that has just ended; nil if there was none.
func (r Report) Err() error { return r.err }

// Troubles names what hindered the run, in order and alike each time, regardless of the
// wording of errors and warnings.
func (r Report) Troubles() []string { return slices.Sorted(maps.Keys(r.trouble)) }

// RemovedBy counts what was removed by reason.
func (r Report) RemovedBy() map[gc.Reason]int {
	counts := make(map[gc.Reason]int)
	for _, removal := range r.Removed {
		counts[removal.Reason]++
	}
	return counts
}

// Count is how many objects of a kind were removed.
func (r Report) Count(kind string) int { return r.removedKinds()[kind] }

func (r Report) removedKinds() map[string]int {
	counts := make(map[string]int)
	for _, removal := range r.Removed {
		counts[removal.Kind]++
	}
	return counts
}

// Then joins the report of a run of images that followed this one, of containers, in one
// `hostler gc run`.
func (r Report) Then(next Report) Report {
	joined := r
	joined.Duration.Duration += next.Duration.Duration
	joined.RequestedBytes += next.RequestedBytes
	joined.EstimatedBytes += next.EstimatedBytes
	joined.FreedBytes += next.FreedBytes
	joined.RequestedInodes += next.RequestedInodes
	joined.EstimatedInodes += next.EstimatedInodes
	joined.FreedInodes += next.FreedInodes
	joined.Filesystems = union(r.Filesystems, next.Filesystems...)
	joined.Candidates += next.Candidates
	if joined.OldestCandidate.IsZero() || !next.OldestCandidate.IsZero() && next.OldestCandidate.Before(joined.OldestCandidate) {
		joined.OldestCandidate = next.OldestCandidate
	}
	joined.Removed = append(append([]Removal{}, r.Removed...), next.Removed...)
	joined.Errors = append(append([]string{}, r.Errors...), next.Errors...)
	joined.Short = union(r.Short, next.Short...)
	joined.Warnings = append(append([]string(nil), r.Warnings...), next.Warnings...)
	joined.Holders = append(append([]Holder(nil), r.Holders...), next.Holders...)
	joined.Folders = append(append([]gc.Folder(nil), r.Folders...), next.Folders...)
	joined.Kept = maps.Clone(r.Kept)
	for reason, n := range next.Kept {
		joined.Kept[reason] += n
	}
	if next.Ended != r.Ended {
		joined.Ended = "containers: " + r.Ended + "; images: " + next.Ended
	}
	joined.LongestWindow.Duration = max(r.LongestWindow.Duration, next.LongestWindow.Duration)
	return joined
}

// On names a filesystem that figures of the report are of.
func (r *Report) On(filesystem, device string) {
	if device != "" {
		filesystem += " (" + device + ")"
	}
	r.Filesystems = union(r.Filesystems, filesystem)
}

// Book adds what became free between two measurements.
func (r *Report) Book(before, after gc.Usage) {
	if before.Problem() != "" || after.Problem() != "" {
		return
	}
	if survey.Gained(before, after) {
		r.On(before.Name(), before.Device)
	}
	r.FreedBytes += after.AvailableBytes - min(after.AvailableBytes, before.AvailableBytes)
	r.FreedInodes += after.InodesFree - min(after.InodesFree, before.InodesFree)
}

// union is a list with what it lacks of others.
func union(list []string, others ...string) []string {
	for _, other := range others {
		if !slices.Contains(list, other) {
			list = append(slices.Clip(list), other)
		}
	}
	return list
}

// Queue notes what may go, of the plan that a run begins with.
func (r *Report) Queue(d gc.Decisions) {
	for i := range d.Images {
		img := &d.Images[i]
		if img.Action != gc.Remove && img.Reason != gc.BelowThreshold && img.Reason != gc.FreesNothing {
			continue
		}
		r.Candidates++
		since := img.FirstSeen
		if img.LastUsed.After(since) {
			since = img.LastUsed
		}
		if r.OldestCandidate.IsZero() || !since.IsZero() && since.Before(r.OldestCandidate) {
			r.OldestCandidate = since
		}
	}
}

// Fail notes an error. Errors of one kind count as one and the same trouble,
// whatever their wording, so that the log does not repeat it with every run. A call that was
// cancelled, as when the agent stops, is none.
func (r *Report) Fail(kind string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	r.Errors = append(r.Errors, err.Error())
	r.err = cmp.Or(r.err, err)
	r.trouble[kind] = err.Error()
}

// FailRuntime notes that a runtime could not be asked: the run is tried again soon.
func (r *Report) FailRuntime(name string, err error) {
	r.Fail("runtime "+name, err)
	r.unanswered = true
}

// Warn adds a warning for operators. Kinds are those of Fail.
func (r *Report) Warn(kind, text string) {
	r.Warnings = append(r.Warnings, text)
	r.trouble[kind] = text
}

// TakeTroubles notes what failed in a second check of the same run, unless it is noted
// already.
func (r *Report) TakeTroubles(second *Report) {
	r.err = cmp.Or(r.err, second.err)
	for kind, text := range second.trouble {
		if _, reported := r.trouble[kind]; !reported {
			r.Fail(kind, errors.New(text))
		}
	}
	r.unanswered = r.unanswered || second.unanswered
}
