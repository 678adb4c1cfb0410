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

// Report is the result of a run. `hostler gc run` prints it. It has a field for each key of its
// JSON.
type Report struct {
	StartedAt time.Time       `json:"startedAt"`
	Duration  metav1.Duration `json:"duration"`
	Trigger   string          `json:"trigger"` // what started the run, such as "interval"

	// Requested, estimated and measured bytes and inodes. Freed is the growth of the available
	// space during the run; 0 if other processes wrote more than the run freed.
	RequestedBytes  uint64 `json:"requestedBytes"`
	EstimatedBytes  uint64 `json:"estimatedBytes"` // without shared layers if they are known, otherwise whole sizes
	FreedBytes      uint64 `json:"freedBytes"`
	RequestedInodes uint64 `json:"requestedInodes"`
	EstimatedInodes uint64 `json:"estimatedInodes"` // estimated from the filesystem's average if no runtime reports them
	FreedInodes     uint64 `json:"freedInodes"`

	// Filesystems are the filesystems of these figures. Each is a mount point, with its device in
	// parentheses if it is known.
	Filesystems []string `json:"filesystems,omitempty"`

	// Candidates is the number of images that nothing protected at the start. OldestCandidate is
	// since when the longest unused of them is unused; zero if there was none.
	Candidates      int       `json:"candidates"`
	OldestCandidate time.Time `json:"oldestCandidate,omitzero"`

	Removed []Removal         `json:"removed"`
	Kept    map[gc.Reason]int `json:"kept"` // number of kept objects, by reason
	Errors  []string          `json:"errors"`
	// Holders and Folders say what uses the space on filesystems that still lack space at the end.
	// Holders are images by what protects them. Folders are the largest folders of the filesystem,
	// with any content.
	Holders []Holder    `json:"holders,omitempty"`
	Folders []gc.Folder `json:"folders,omitempty"`
	// Short names filesystems whose usage the run should lower to a threshold or target, but could
	// not. Then `hostler gc run` exits with 1.
	Short []string `json:"short,omitempty"`
	// Warnings say why the run did not reach its goal.
	Warnings []string `json:"warnings,omitempty"`
	// Ended says why the run ended.
	Ended string `json:"ended"`

	// LongestWindow is the longest time from the check whether an image is in use to the end of its
	// removal. A use that began in between was not noticed.
	LongestWindow metav1.Duration `json:"longestWindow"`

	trouble    map[string]string // texts of the troubles by kind, for the log
	runtimes   []string          // names of the runtimes at the start
	unanswered bool              // a runtime did not answer
	err        error             // the first error
}

// Kinds of objects in a Removal and a Progress.
const (
	KindImage     = "image"
	KindContainer = "container"
	KindPod       = "pod" // a dead sandbox
	KindLog       = "log" // a pod's log folder, or a link to a log
)

// Holder is a group of images on one filesystem that are kept for the same reason.
type Holder struct {
	Filesystem string    `json:"filesystem"`
	Reason     gc.Reason `json:"reason"`
	Images     int       `json:"images"`
	SizeBytes  uint64    `json:"sizeBytes"` // as the runtime reports them; shared layers count several times
	// By names the first users of the images, such as a container or a pattern; empty if the reason
	// is enough.
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
	SizeBytes uint64    `json:"sizeBytes"` // as the runtime reports it; not exact
}

// Progress is one step of a running collection.
type Progress struct {
	// Waiting reports only that the run waits for another one.
	Waiting bool

	Removal
	Action gc.Action // gc.Keep if it is in use, or if Err is set
	Err    error
	Done   int // processed objects, including this one
	Total  int // objects in the plan; a later plan of the same run may add more
}

// Summary is a run in the short form of `hostler status`.
type Summary struct {
	StartedAt      time.Time       `json:"startedAt"`
	Duration       metav1.Duration `json:"duration"`
	RequestedBytes uint64          `json:"requestedBytes"`
	FreedBytes     uint64          `json:"freedBytes"`
	Removed        int             `json:"removed"`
	// RemovedKinds counts the removed objects by kind. A run of images may also have removed
	// containers that used images.
	RemovedKinds map[string]int `json:"removedKinds,omitempty"`
	Errors       []string       `json:"errors"`
	Warnings     []string       `json:"warnings,omitempty"` // why the run did not reach its goal
}

// NewReport returns the report of a new run.
func NewReport(trigger string) *Report {
	return &Report{
		StartedAt: time.Now(), Trigger: trigger,
		Removed: []Removal{}, Errors: []string{}, Kept: make(map[gc.Reason]int), trouble: make(map[string]string),
	}
}

// Summary returns the short form.
func (r Report) Summary() Summary {
	return Summary{
		StartedAt: r.StartedAt, Duration: r.Duration,
		RequestedBytes: r.RequestedBytes, FreedBytes: r.FreedBytes,
		Removed: len(r.Removed), RemovedKinds: r.removedKinds(), Errors: r.Errors, Warnings: r.Warnings,
	}
}

// Requested reports whether a user requested the run.
func (r Report) Requested() bool { return r.Trigger == TriggerRequest }

// Err returns the first error of a run that has just ended; nil if there was none.
func (r Report) Err() error { return r.err }

// Troubles returns the kinds of errors and warnings of the run, sorted. They do not depend on the
// texts.
func (r Report) Troubles() []string { return slices.Sorted(maps.Keys(r.trouble)) }

// RemovedBy counts the removed objects by reason.
func (r Report) RemovedBy() map[gc.Reason]int {
	counts := make(map[gc.Reason]int)
	for _, removal := range r.Removed {
		counts[removal.Reason]++
	}
	return counts
}

// Count is the number of removed objects of a kind.
func (r Report) Count(kind string) int { return r.removedKinds()[kind] }

func (r Report) removedKinds() map[string]int {
	counts := make(map[string]int)
	for _, removal := range r.Removed {
		counts[removal.Kind]++
	}
	return counts
}

// Then merges the report of the run of images that followed this run of containers, in one `hostler
// gc run`.
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

// On adds a filesystem to which figures of the report apply.
func (r *Report) On(filesystem, device string) {
	if device != "" {
		filesystem += " (" + device + ")"
	}
	r.Filesystems = union(r.Filesystems, filesystem)
}

// Book adds the space that became free between two measurements.
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

// union appends to list what it lacks of others.
func union(list []string, others ...string) []string {
	for _, other := range others {
		if !slices.Contains(list, other) {
			list = append(slices.Clip(list), other)
		}
	}
	return list
}

// Queue records the candidates of the first plan of a run.
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

// Fail records an error. Errors of one kind count as the same trouble, whatever their text, so that
// the log does not repeat it with every run. A cancelled call is not recorded.
func (r *Report) Fail(kind string, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	r.Errors = append(r.Errors, err.Error())
	r.err = cmp.Or(r.err, err)
	r.trouble[kind] = err.Error()
}

// FailRuntime records that a runtime did not answer. The run is repeated soon.
func (r *Report) FailRuntime(name string, err error) {
	r.Fail("runtime "+name, err)
	r.unanswered = true
}

// Warn adds a warning. Kinds are those of Fail.
func (r *Report) Warn(kind, text string) {
	r.Warnings = append(r.Warnings, text)
	r.trouble[kind] = text
}

// TakeTroubles adds what failed in a second scan of the same run, unless it is already recorded.
func (r *Report) TakeTroubles(second *Report) {
	r.err = cmp.Or(r.err, second.err)
	for kind, text := range second.trouble {
		if _, reported := r.trouble[kind]; !reported {
			r.Fail(kind, errors.New(text))
		}
	}
	r.unanswered = r.unanswered || second.unanswered
}
