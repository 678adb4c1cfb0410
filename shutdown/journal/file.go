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
	// maxBytes is far more than the record of any host needs.
	maxBytes = 16 << 20
)

// content is the content of the file.
type content struct {
	Version int    `json:"version"`
	BootID  string `json:"bootID"` // boot that wrote the file
	// Since is when the first process of that boot read the file of an earlier boot.
	Since time.Time `json:"since,omitzero"`
	// Watch has the running pods while the guard was on. It is evidence for the next boot.
	Watch *watch `json:"watch,omitempty"`
	// Record is this boot's drain: running, released or cancelled.
	Record *Record `json:"record,omitempty"`
	// Last is the previous shutdown.
	Last *Record `json:"last,omitempty"`
	// Cancelled is the last cancelled drain that had stopped a pod.
	Cancelled *Record `json:"calledOff,omitempty"`
	// Drained is the last manual drain that stopped a pod: in this boot, in the previous one, or in
	// any boot of the current maintenance period.
	Drained *Record `json:"drained,omitempty"`
	// Uncordoned reports that a user has uncordoned the Node since Drained.
	Uncordoned bool `json:"uncordoned,omitempty"`
	// Held has what automatic drains keep stopped until they are undone.
	Held *[]Held `json:"held,omitempty"`
	// Restarts are containers that shutdowns stopped and that can be started again.
	Restarts *[]Restart `json:"restarts,omitempty"`
	// Services are services and units to start again. Settled drains of this boot stopped the
	// services before the pods. Drains stop the units because they run a container.
	Services *[]Service `json:"services,omitempty"`
}

// watch records that a guard was on, and which pods ran.
type watch struct {
	At   time.Time `json:"at,omitzero"` // when this list of pods was first seen
	Pods []Ref     `json:"pods"`
}

// Ref identifies a pod.
type Ref struct {
	Runtime   string `json:"runtime"`
	ID        string `json:"id"`
	UID       string `json:"uid,omitempty"` // the orchestrator's, if it differs from ID
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// continuedBy returns the content with which a process of the boot bootID continues.
func (f content) continuedBy(bootID string) content {
	switch {
	case !SameBoot(f.BootID, bootID):
		held, pending := f.heldAfterBoot()
		f = content{
			BootID: bootID, Since: time.Now(), Last: f.verdict(), Cancelled: f.cancelled(), Drained: f.drained(), Uncordoned: f.Uncordoned,
			Held: held, Restarts: f.pendingRestarts(false, pending...),
		}
	case len(bootID) > len(f.BootID):
		f.BootID = bootID
	}
	if r := f.Drained; r != nil && r.FinishedAt.IsZero() && r.CancelledAt.IsZero() && r.Error == "" {
		f.Drained = r.cutOff("the agent ended during the drain")
	}
	f.Version = version
	return f
}

// cancelled returns the last cancelled drain, if it had sent a stop signal or a pod had ended
// before the cancellation.
func (f content) cancelled() *Record {
	touched := func(p PodRecord) bool { return !p.StartedAt.IsZero() || p.Outcome == Stopped }
	if r := f.Record; r != nil && !r.CancelledAt.IsZero() && slices.ContainsFunc(r.Pods, touched) {
		return r
	}
	return f.Cancelled
}

// drained returns the last manual drain in the boot that wrote the file, or in the current
// maintenance period. The drain for a reboot stays until it is undone: the host may go down again before.
func (f content) drained() *Record {
	r := f.Drained
	if r == nil || SameBoot(r.BootID, f.BootID) || f.inMaintenance() {
		return r
	}
	if r.Trigger == TriggerReboot && r.UndoneAt.IsZero() && time.Since(r.StartedAt).Abs() < keepEarlier {
		return r
	}
	return nil
}

// settle ends the record of the drain, because the host does not shut down.
func (f *content) settle() (changed bool) {
	if f.Record == nil {
		return false
	}
	if f.Record.FinishedAt.IsZero() && f.Record.CancelledAt.IsZero() { // the cancellation happened while no process ran
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

// SameBoot reports whether a and b may identify the same boot. If one of them has no start of
// systemd, only the boot ID is compared.
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

// errFaulty reports that the file has no valid journal.
var errFaulty = errors.New("decode shutdown journal")

// decode validates the fields that the guard relies on.
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

// verdict returns how the boot that wrote the file ended. It is nil if that is unknown, because the
// guard was off or had stopped before.
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
	// Also if no pod was known to run, because the latest changes may be missing.
	r := &Record{BootID: f.BootID, Trigger: TriggerUnknown, AsOf: f.Watch.At, Error: "the host went down without a drain", Pods: []PodRecord{}}
	for _, p := range f.Watch.Pods {
		r.Pods = append(r.Pods, PodRecord{Runtime: p.Runtime, ID: p.ID, UID: p.UID, Namespace: p.Namespace, Name: p.Name, Outcome: Left})
	}
	return r
}

// cutOff returns the record of an interrupted drain with the reason.
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

// encode returns the content as JSON, limited so that decode accepts it. If it is too large, encode
// omits parts in this order: the pods of earlier drains; cancelled and manual drains; the previous
// shutdown; the errors of pods.
func encode(file content) ([]byte, error) {
	file = sanitize.Clean(file)
	for _, reduce := range []func(){
		func() {},
		func() {
			if file.Drained != nil {
				file.Drained = file.Drained.withEarlier(nil)
			}
		},
		func() { file.Cancelled, file.Drained = nil, nil },
		func() { file.Last = nil },
		func() { file.Record = file.Record.brief() },
	} {
		reduce()
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

// brief returns a record without the errors and exit codes of its pods.
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
