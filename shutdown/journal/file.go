package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/internal/atomicfile"
	"hostler.io/hostler/internal/sanitize"
)

const (
	version = 1
	// maxBytes is far above the record of any host's pods.
	maxBytes = 16 << 20
)

// content is the content of the file.
type content struct {
	Version int    `json:"version"`
	BootID  string `json:"bootID"` // the boot that wrote it
	// Since is when the first process of that boot found the file of another one.
	Since time.Time `json:"since,omitzero"`
	// Watch is evidence for the next boot: what ran while the guard was on.
	Watch *watch `json:"watch,omitempty"`
	// Record is this boot's drain: running, released or cancelled.
	Record *Record `json:"record,omitempty"`
	// Last is the shutdown before that.
	Last *Record `json:"last,omitempty"`
	// Cancelled is the last drain that was, if it had asked anybody to end.
	Cancelled *Record `json:"calledOff,omitempty"`
	// Drained is the last drain by a person that has stopped anything, in this boot or the one before,
	// or in any boot of a maintenance that goes on.
	Drained *Record `json:"drained,omitempty"`
	// Uncordoned reports that a person has uncordoned the Node since Drained.
	Uncordoned bool `json:"uncordoned,omitempty"`
	// DrainedUnits are units that Drained has stopped for a container of them.
	DrainedUnits *[]string `json:"drainedUnits,omitempty"`
	// Restarts are containers that shutdowns have stopped and that can be started again.
	Restarts *[]Restart `json:"restarts,omitempty"`
	// Services are those that drains of this boot have stopped first, whose story has ended,
	// and units that they stop for a container of them: all are to be started again.
	Services *[]Service `json:"services,omitempty"`
}

// watch says that a guard was on and which pods ran then.
type watch struct {
	At   time.Time `json:"at,omitzero"` // when they were seen to be others than before
	Pods []Ref     `json:"pods"`
}

// Ref names a pod.
type Ref struct {
	Runtime   string `json:"runtime"`
	ID        string `json:"id"`
	UID       string `json:"uid,omitempty"` // the orchestrator's, where it differs from ID
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// takenUp is the file as a process of the boot bootID continues with it.
func (f content) takenUp(bootID string) content {
	switch {
	case !SameBoot(f.BootID, bootID):
		f = content{BootID: bootID, Since: time.Now(), Last: f.verdict(), Cancelled: f.cancelled(), Drained: f.drained(), Uncordoned: f.Uncordoned, Restarts: f.pendingRestarts(false)}
	case len(bootID) > len(f.BootID):
		f.BootID = bootID
	}
	if r := f.Drained; r != nil && r.FinishedAt.IsZero() && r.CancelledAt.IsZero() && r.Error == "" {
		f.Drained = r.cutOff("the agent ended during the drain")
	}
	f.Version = version
	return f
}

// cancelled returns the last cancelled drain, if it had sent a stop signal to a pod or a pod had
// ended by then.
func (f content) cancelled() *Record {
	touched := func(p PodRecord) bool { return !p.StartedAt.IsZero() || p.Outcome == Stopped }
	if r := f.Record; r != nil && !r.CancelledAt.IsZero() && slices.ContainsFunc(r.Pods, touched) {
		return r
	}
	return f.Cancelled
}

// drained is the last drain by a person in the boot that wrote the file, or in the maintenance that
// goes on.
func (f content) drained() *Record {
	if r := f.Drained; r != nil && (SameBoot(r.BootID, f.BootID) || f.inMaintenance()) {
		return r
	}
	return nil
}

// settle ends the story of the drain, for the host lives on.
func (f *content) settle() (changed bool) {
	if f.Record == nil {
		return false
	}
	if f.Record.FinishedAt.IsZero() && f.Record.CancelledAt.IsZero() { // while no process ran
		f.Record = f.Record.Clone()
		f.Record.CancelledAt, f.Record.EndUnknown = time.Now(), true
		for i := range f.Record.Pods {
			if p := &f.Record.Pods[i]; p.Outcome == "" && p.StartedAt.IsZero() {
				p.Outcome = Skipped
			} else if p.Outcome == "" {
				p.Outcome = Left
			}
		}
	}
	f.Cancelled = f.cancelled()
	if f.Record.CancelledAt.IsZero() && !f.Record.FinishedAt.IsZero() {
		f.Last = f.Record
	}
	f.Restarts, f.Services = f.pendingRestarts(true), f.services()
	f.Record = nil
	return true
}

// SameBoot reports whether a and b may name one boot. If the start of systemd is missing in one of
// them, only the boot ID counts.
func SameBoot(a, b string) bool {
	kernelA, startA, knownA := strings.Cut(a, "@")
	kernelB, startB, knownB := strings.Cut(b, "@")
	return kernelA == kernelB && (startA == startB || !knownA || !knownB)
}

func read(path string) (content, error) {
	f, err := os.Open(path)
	if err != nil {
		return content{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxBytes+1))
	if err != nil {
		return content{}, err
	}
	return decode(data)
}

// errFaulty reports a file that was read and is not a journal.
var errFaulty = errors.New("decode shutdown journal")

// decode is strict about what the guard relies on.
func decode(data []byte) (content, error) {
	if len(data) > maxBytes {
		return content{}, fmt.Errorf("%w: more than %d bytes", errFaulty, maxBytes)
	}
	var file content
	if err := json.Unmarshal(data, &file); err != nil {
		return content{}, fmt.Errorf("%w: %w", errFaulty, err)
	}
	if file.Version != version {
		return content{}, fmt.Errorf("%w: version %d, not %d", errFaulty, file.Version, version)
	}
	if file.BootID == "" {
		return content{}, fmt.Errorf("%w: no boot ID", errFaulty)
	}
	if file.Record != nil && file.Record.StartedAt.IsZero() {
		return content{}, fmt.Errorf("%w: drain has no start time", errFaulty)
	}
	return file, nil
}

// verdict is how the boot that wrote the file ended; nil where nothing is
// known, because the guard was off or stopped before.
func (f content) verdict() *Record {
	if r := f.Record; r != nil && r.CancelledAt.IsZero() {
		if !r.FinishedAt.IsZero() {
			return r
		}
		return r.cutOff("the host went down during the drain")
	}
	if f.Watch == nil {
		return nil
	}
	// Also where no pod was known to run: the latest may be unknown.
	r := &Record{BootID: f.BootID, Trigger: TriggerUnknown, AsOf: f.Watch.At, Error: "the host went down without a drain", Pods: []PodRecord{}}
	for _, p := range f.Watch.Pods {
		r.Pods = append(r.Pods, PodRecord{Runtime: p.Runtime, ID: p.ID, UID: p.UID, Namespace: p.Namespace, Name: p.Name, Outcome: Left})
	}
	return r
}

// cutOff returns the record of an interrupted drain, with the reason.
func (r *Record) cutOff(why string) *Record {
	r = r.Clone()
	r.Graceful, r.Error = false, why
	for i := range r.Pods {
		if r.Pods[i].Outcome == "" {
			r.Pods[i].Outcome = Left
		}
	}
	return r
}

// write replaces the file.
func write(path string, file content) error {
	data, err := encode(file)
	if err != nil {
		return err
	}
	if err := atomicfile.Replace(path, data); err != nil {
		return fmt.Errorf("write shutdown journal: %w", err)
	}
	return nil
}

// encode is the file as text. What others have written in it is bounded, so that decode accepts it:
// if it has too many bytes, it is without the pods of earlier drains, then without drains that were cancelled or a person's, then without the shutdown
// before the last, then without the errors of pods.
func encode(file content) ([]byte, error) {
	file = sanitize.Clean(file)
	for _, lessen := range []func(){
		func() {},
		func() {
			if file.Drained != nil {
				file.Drained = file.Drained.withEarlier(nil)
			}
		},
		func() { file.Cancelled, file.Drained, file.DrainedUnits = nil, nil, nil },
		func() { file.Last = nil },
		func() { file.Record = file.Record.brief() },
	} {
		lessen()
		data, err := json.Marshal(file)
		if err != nil {
			return nil, fmt.Errorf("encode shutdown journal: %w", err)
		}
		if len(data) <= maxBytes {
			return data, nil
		}
	}
	return nil, fmt.Errorf("encode shutdown journal: more than %d bytes", maxBytes)
}

// brief returns a record without its containers.
func (r *Record) brief() *Record {
	if r == nil {
		return nil
	}
	r = r.Clone()
	for i := range r.Pods {
		r.Pods[i].Error, r.Pods[i].Stuck, r.Pods[i].ExitCodes, r.Pods[i].Limits = "", nil, nil, nil
	}
	return r
}
