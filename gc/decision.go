package gc

import (
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// Action is what happens to an image or a container.
type Action string

// The two actions.
const (
	Remove Action = "remove"
	Keep   Action = "keep"
)

// Reason is the reason of a decision. New reasons can be added.
type Reason string

// Why something is removed or kept.
const (
	LRU            Reason = "lru"             // space is needed and this was used longest ago
	MaxAge         Reason = "max-age"         // unused or dead for longer than the maximum age
	AllUnused      Reason = "all-unused"      // requested by a person
	OverLimit      Reason = "over-limit"      // more dead containers than the policy allows
	PodGone        Reason = "pod-gone"        // the pod does not exist any more
	PodDead        Reason = "pod-dead"        // the pod's sandbox is dead, and nobody makes it again
	NeverStarted   Reason = "never-started"   // created a while ago and never started
	Dangling       Reason = "dangling"        // a link to a log that is not there
	InUse          Reason = "in-use"          // a container uses the image, running or not
	Pinned         Reason = "pinned"          // the runtime wants the image kept
	Protected      Reason = "protected"       // sandbox image, keep pattern, keep label
	LastShutdown   Reason = "last-shutdown"   // of a pod that the last shutdown ended, for a day
	Drained        Reason = "drained"         // of a pod that an operator's drain ended, for a day
	Local          Reason = "local"           // built or imported here, in no registry
	TooYoung       Reason = "too-young"       // younger than the minimum age
	BelowThreshold Reason = "below-threshold" // may go, but space is not needed or others go first
	FreesNothing   Reason = "frees-nothing"   // its removal would not free what is short
	UnknownUsage   Reason = "unknown-usage"   // its filesystem reports no valid usage
	Newest         Reason = "newest"          // within the number of dead containers that stay
	Running        Reason = "running"
	NotManaged     Reason = "not-managed" // not hostler's to remove
)

// onRequest explains what automatic runs leave alone.
const onRequest = "removed on request only"

// Decisions is a plan: what `hostler gc plan` prints and the collectors carry
// out, in this order.
type Decisions struct {
	Filesystems []FilesystemDecision `json:"filesystems"`
	// Images starts with those that may go, next to go first.
	Images []ImageDecision `json:"images"`
	// Containers starts with those that go, in order.
	Containers []ContainerDecision `json:"containers"`
	// Pods are the dead sandboxes, those to remove first.
	Pods []PodDecision `json:"pods"`
	// Logs are the logs of pods that no runtime knows, those to remove first.
	Logs []LogDecision `json:"logs"`

	// Outdated are the filesystems in Facts.Fruitless whose record no longer applies.
	Outdated []string `json:"-"`
}

// FilesystemStatus is how full a filesystem is, as a person reads it.
type FilesystemStatus struct {
	Filesystem        string   `json:"filesystem"` // the name that images refer to it by
	Mountpoint        string   `json:"mountpoint"`
	Device            string   `json:"device"`
	Runtimes          []string `json:"runtimes"`
	CapacityBytes     uint64   `json:"capacityBytes"`
	AvailableBytes    uint64   `json:"availableBytes"`
	UsedPercent       int      `json:"usedPercent"`
	InodesUsedPercent int      `json:"inodesUsedPercent"`
	// Message says why the figures cannot be acted on.
	Message string `json:"message,omitempty"`
}

// FilesystemDecision says how much has to go from a filesystem.
type FilesystemDecision struct {
	FilesystemStatus
	BytesToFree  uint64 `json:"bytesToFree"`
	InodesToFree uint64 `json:"inodesToFree"`
}

// ImageDecision says what happens to an image and why.
type ImageDecision struct {
	ID        string   `json:"id"`
	Names     []string `json:"names"`
	SizeBytes uint64   `json:"sizeBytes"` // as the runtime reports it: an estimate
	// SharedBytes is how much of it other images hold as well, where the runtime reports it.
	SharedBytes uint64    `json:"sharedBytes,omitempty"`
	FirstSeen   time.Time `json:"firstSeen,omitzero"`
	LastUsed    time.Time `json:"lastUsed,omitzero"`
	Action      Action    `json:"action"`
	Reason      Reason    `json:"reason"`
	Detail      string    `json:"detail,omitempty"` // such as the pattern, or the container that uses it
	Runtime     string    `json:"runtime"`
	Filesystem  string    `json:"filesystem"`

	Image *runtime.Image `json:"-"` // the image, for its removal
	Gain  Gain           `json:"-"` // of its removal, after those before it in the plan
}

// Unused reports whether nothing protects the image: it is removed, or would be if all unused
// images were.
func (d ImageDecision) Unused() bool {
	return d.Action == Remove || d.Reason == BelowThreshold || d.Reason == FreesNothing || d.Reason == UnknownUsage
}

// ContainerDecision says what happens to a container and why.
type ContainerDecision struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Pod      string    `json:"pod"` // namespace/name
	ExitedAt time.Time `json:"exitedAt,omitzero"`
	Action   Action    `json:"action"`
	Reason   Reason    `json:"reason"`
	Detail   string    `json:"detail,omitempty"`
	Runtime  string    `json:"runtime"`

	Container *runtime.Container `json:"-"` // the container, for its removal
}

// PodDecision is the decision about a dead sandbox, with the reason. Its containers are removed
// before it.
type PodDecision struct {
	ID        string    `json:"id"`
	UID       string    `json:"uid"`
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	CreatedAt time.Time `json:"createdAt"`
	Action    Action    `json:"action"`
	Reason    Reason    `json:"reason"`
	Detail    string    `json:"detail,omitempty"` // such as the container that stays
	Runtime   string    `json:"runtime"`

	Pod *runtime.Pod `json:"-"` // the pod, for its removal
}

// Title is the pod's name as a person reads it.
func (d PodDecision) Title() string {
	return podTitle(&runtime.Pod{ID: d.ID, Name: d.Name, Namespace: d.Namespace})
}

// LogDecision says what happens to a log folder or a link and why.
type LogDecision struct {
	Path       string    `json:"path"`
	Pod        string    `json:"pod,omitempty"` // namespace/name
	UID        string    `json:"uid,omitempty"`
	ModifiedAt time.Time `json:"modifiedAt"`
	SizeBytes  uint64    `json:"sizeBytes"`
	Action     Action    `json:"action"`
	Reason     Reason    `json:"reason"`
	Detail     string    `json:"detail,omitempty"`

	Log *LogFact `json:"-"` // the log, for its removal
}

// Plan decides from the facts alone what is removed at now, and why. It changes nothing. The policy
// and the options must be valid. If images and containers are both requested, images that are used
// only by containers of this plan count as unused, because the containers are removed first.
func Plan(f Facts, p Policy, now time.Time, o Options) Decisions {
	d := Decisions{Images: []ImageDecision{}, Containers: []ContainerDecision{}, Pods: []PodDecision{}, Logs: []LogDecision{}}
	var leaving map[*runtime.Container]bool
	if o.WantContainers() {
		d.Containers, leaving = planContainers(&f, p.Containers, now, o)
		d.Pods = planPods(&f, p.Containers, now, o, d.Containers)
		d.Logs = planLogs(&f, p.Containers, now, o)
	}
	l := newLedger(f.Filesystems, p.Images, o)
	d.Filesystems = l.decisions()
	if o.WantImages() {
		d.Images, d.Outdated = planImages(&f, p.Images, now, o, l, leaving)
	}
	return d
}

// Filesystems returns the usage of the filesystems and the amount to free on each. Runtimes on one
// filesystem share an entry.
func Filesystems(usages []Usage, p ImagePolicy, o Options) []FilesystemDecision {
	return newLedger(usages, p, o).decisions()
}

// Short reports whether something still has to go.
func (d FilesystemDecision) Short() bool { return d.BytesToFree > 0 || d.InodesToFree > 0 }

// ledger tracks what a plan still has to free.
type ledger struct {
	accounts  []account
	byRuntime map[string][]int // accounts that hold images of a runtime
}

// account is one filesystem with the amount still to free.
type account struct {
	usage         Usage
	runtimes      []string
	bytes, inodes uint64  // asked
	freed         Gain    // by the plan so far
	perByte       float64 // inodes that go with a byte, on average
}

func newLedger(usages []Usage, p ImagePolicy, o Options) *ledger {
	l := &ledger{byRuntime: make(map[string][]int)}
	index := make(map[string]int)
	for _, u := range usages {
		i, known := index[u.Name()]
		if !known {
			i = len(l.accounts)
			index[u.Name()] = i
			l.accounts = append(l.accounts, newAccount(u, p, o))
		}
		if a := &l.accounts[i]; !slices.Contains(a.runtimes, u.Runtime) {
			a.runtimes = append(a.runtimes, u.Runtime)
			l.byRuntime[u.Runtime] = append(l.byRuntime[u.Runtime], i)
		}
	}
	return l
}

func newAccount(u Usage, p ImagePolicy, o Options) account {
	a := account{usage: u}
	if u.Problem() != "" {
		return a
	}
	low, over := p.LowPercent, p.HighPercent < ThresholdOff && u.UsedPercent() >= p.HighPercent
	if o.TargetPercent > 0 {
		low, over = o.TargetPercent, true
	}
	if over || slices.Contains(o.StartedSpace, u.Name()) {
		a.bytes = missing(u.CapacityBytes, u.AvailableBytes, low)
	}
	overInodes := p.InodesHighPercent < ThresholdOff && u.InodesUsedPercent() >= p.InodesHighPercent
	if u.Inodes > 0 && (overInodes || slices.Contains(o.StartedInodes, u.Name())) {
		a.inodes = missing(u.Inodes, u.InodesFree, p.InodesLowPercent)
	}
	a.perByte = u.inodesPerByte()
	return a
}

func (a *account) short() bool { return a.freed.Bytes < a.bytes || a.freed.Inodes < a.inodes }

func (a *account) status() FilesystemStatus {
	return FilesystemStatus{
		Filesystem: a.usage.Name(), Mountpoint: a.usage.Mountpoint, Device: a.usage.Device, Runtimes: a.runtimes,
		CapacityBytes: a.usage.CapacityBytes, AvailableBytes: a.usage.AvailableBytes,
		UsedPercent: a.usage.UsedPercent(), InodesUsedPercent: a.usage.InodesUsedPercent(),
		Message: a.usage.Problem(),
	}
}

func (l *ledger) decisions() []FilesystemDecision {
	decisions := make([]FilesystemDecision, 0, len(l.accounts))
	for i := range l.accounts {
		a := &l.accounts[i]
		decisions = append(decisions, FilesystemDecision{FilesystemStatus: a.status(), BytesToFree: a.bytes, InodesToFree: a.inodes})
	}
	return decisions
}

// short reports whether a filesystem of the runtime still lacks space.
func (l *ledger) short(runtimeName string) bool {
	for _, i := range l.byRuntime[runtimeName] {
		if l.accounts[i].short() {
			return true
		}
	}
	return false
}

// known reports whether the runtime's filesystems can be acted on.
func (l *ledger) known(runtimeName string) bool {
	for _, i := range l.byRuntime[runtimeName] {
		if l.accounts[i].usage.Problem() != "" {
			return false
		}
	}
	return len(l.byRuntime[runtimeName]) > 0
}

// filesystem names where the runtime's images are; empty if it does not report it.
func (l *ledger) filesystem(runtimeName string) string {
	if accounts := l.byRuntime[runtimeName]; len(accounts) > 0 {
		return l.accounts[accounts[0]].usage.Name()
	}
	return ""
}

// take books the estimate of what an image's removal frees, and returns it with the inodes
// that no runtime reports: as many as the filesystem's average for so many bytes.
func (l *ledger) take(runtimeName string, g Gain) Gain {
	booked := g
	for _, i := range l.byRuntime[runtimeName] {
		a := &l.accounts[i]
		booked = a.complete(g)
		a.freed.Bytes += booked.Bytes
		a.freed.Inodes += booked.Inodes
	}
	return booked
}

// undoTake is the reverse of take.
func (l *ledger) undoTake(runtimeName string, g Gain) {
	for _, i := range l.byRuntime[runtimeName] {
		a := &l.accounts[i]
		g := a.complete(g)
		a.freed.Bytes -= min(a.freed.Bytes, g.Bytes)
		a.freed.Inodes -= min(a.freed.Inodes, g.Inodes)
	}
}

// complete adds the inodes that are not counted.
func (a *account) complete(g Gain) Gain {
	if a.usage.Inodes > 0 && a.usage.Problem() == "" && (g.uncounted > 0 || g.whole) {
		g.Inodes += estimatedInodes(a.perByte, g.uncounted)
	}
	return Gain{Bytes: g.Bytes, Inodes: g.Inodes}
}

// brings reports whether the gain is worth the removal: at least a tenth of the object's size, or a
// hundredth of what is lacking.
func (l *ledger) brings(runtimeName string, g, whole Gain) bool {
	enough := func(asked, gain, whole uint64) bool {
		return asked > 0 && gain > 0 && (gain >= whole/10 || gain >= asked/100)
	}
	for _, i := range l.byRuntime[runtimeName] {
		a := &l.accounts[i]
		g, whole := a.complete(g), a.complete(whole)
		if enough(a.bytes, g.Bytes, whole.Bytes) || enough(a.inodes, g.Inodes, whole.Inodes) {
			return true
		}
	}
	return false
}
