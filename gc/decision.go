package gc

import (
	"slices"
	"time"

	"hostler.io/hostler/runtime"
)

// Action is what happens to an object.
type Action string

// The two actions.
const (
	Remove Action = "remove"
	Keep   Action = "keep"
)

// Reason is the reason of a decision. New reasons can be added.
type Reason string

// The reasons to remove or to keep an object.
const (
	LRU            Reason = "lru"             // space is needed, and it is the least recently used
	MaxAge         Reason = "max-age"         // unused or dead for longer than the maximum age
	AllUnused      Reason = "all-unused"      // requested by a user
	OverLimit      Reason = "over-limit"      // more dead containers than the policy allows
	PodGone        Reason = "pod-gone"        // the pod no longer exists
	PodDead        Reason = "pod-dead"        // the pod's sandbox is dead and is not created again
	NeverStarted   Reason = "never-started"   // created long enough ago and never started
	Dangling       Reason = "dangling"        // a link to a log that does not exist
	InUse          Reason = "in-use"          // a container uses the image, running or not
	Pinned         Reason = "pinned"          // pinned in the runtime
	Protected      Reason = "protected"       // sandbox image, keep pattern or keep label
	LastShutdown   Reason = "last-shutdown"   // the last shutdown ended its pod; for a day
	Drained        Reason = "drained"         // a manual drain ended its pod; for a day
	Local          Reason = "local"           // built or imported on this host, in no registry
	TooYoung       Reason = "too-young"       // younger than the minimum age
	BelowThreshold Reason = "below-threshold" // removable, but space is not needed or other images are removed first
	FreesNothing   Reason = "frees-nothing"   // its removal would not free what is lacking
	UnknownUsage   Reason = "unknown-usage"   // its filesystem reports no valid usage
	Newest         Reason = "newest"          // within the limit on dead containers
	Running        Reason = "running"
	NotManaged     Reason = "not-managed" // hostler does not remove it automatically
)

// onRequest is the detail of objects that automatic runs do not remove.
const onRequest = "removed on request only"

// Decisions is a plan. `hostler gc plan` prints it, and the collectors execute it in this order.
type Decisions struct {
	Filesystems []FilesystemDecision `json:"filesystems"`
	// Images are sorted: removable ones first, in removal order.
	Images []ImageDecision `json:"images"`
	// Containers are sorted: those to remove first, in order.
	Containers []ContainerDecision `json:"containers"`
	// Pods are the dead sandboxes, sorted: those to remove first.
	Pods []PodDecision `json:"pods"`
	// Logs are logs of pods that no runtime lists, sorted: those to remove first.
	Logs []LogDecision `json:"logs"`

	// Outdated are the filesystems in Facts.Fruitless whose record no longer applies.
	Outdated []string `json:"-"`
}

// FilesystemStatus is the usage of a filesystem.
type FilesystemStatus struct {
	Filesystem        string   `json:"filesystem"` // the Filesystem of its images
	Mountpoint        string   `json:"mountpoint"`
	Device            string   `json:"device"`
	Runtimes          []string `json:"runtimes"`
	CapacityBytes     uint64   `json:"capacityBytes"`
	AvailableBytes    uint64   `json:"availableBytes"`
	UsedPercent       int      `json:"usedPercent"`
	InodesUsedPercent int      `json:"inodesUsedPercent"`
	// Message says why the figures cannot be used.
	Message string `json:"message,omitempty"`
}

// FilesystemDecision is how much must be freed on a filesystem.
type FilesystemDecision struct {
	FilesystemStatus
	BytesToFree  uint64 `json:"bytesToFree"`
	InodesToFree uint64 `json:"inodesToFree"`
}

// ImageDecision is the decision about an image, with the reason.
type ImageDecision struct {
	ID        string   `json:"id"`
	Names     []string `json:"names"`
	SizeBytes uint64   `json:"sizeBytes"` // as the runtime reports it; not exact
	// SharedBytes is the part that other images use, too, if the runtime reports it.
	SharedBytes uint64    `json:"sharedBytes,omitempty"`
	FirstSeen   time.Time `json:"firstSeen,omitzero"`
	LastUsed    time.Time `json:"lastUsed,omitzero"`
	Action      Action    `json:"action"`
	Reason      Reason    `json:"reason"`
	Detail      string    `json:"detail,omitempty"` // such as the pattern, or the container that uses the image
	Runtime     string    `json:"runtime"`
	Filesystem  string    `json:"filesystem"`

	Image *runtime.Image `json:"-"` // the image, for its removal
	Gain  Gain           `json:"-"` // estimated gain of its removal, after the earlier ones in the plan
}

// Unused reports whether nothing protects the image. If so, the plan removes it, or a run with
// AllUnused would.
func (d ImageDecision) Unused() bool {
	return d.Action == Remove || d.Reason == BelowThreshold || d.Reason == FreesNothing || d.Reason == UnknownUsage
}

// ContainerDecision is the decision about a container, with the reason.
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
// first.
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

// Title is the pod's name for display.
func (d PodDecision) Title() string {
	return podTitle(&runtime.Pod{ID: d.ID, Name: d.Name, Namespace: d.Namespace})
}

// LogDecision is the decision about a log folder or a link, with the reason.
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

// Plan decides what is removed at now, and why. It uses only the facts, and changes nothing. The
// policy and the options must be valid. If images and containers are both requested, the containers
// are removed first. So images that only removed containers use count as unused.
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

// Short reports whether space still must be freed.
func (d FilesystemDecision) Short() bool { return d.BytesToFree > 0 || d.InodesToFree > 0 }

// ledger tracks what a plan still has to free.
type ledger struct {
	accounts  []account
	byRuntime map[string][]int // indexes of the accounts of a runtime's filesystems
}

// account is one filesystem, with the amount still to free.
type account struct {
	usage         Usage
	runtimes      []string
	bytes, inodes uint64  // to free
	freed         Gain    // by the plan so far
	perByte       float64 // average number of inodes per used byte
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

// short reports whether space still must be freed on a filesystem of the runtime.
func (l *ledger) short(runtimeName string) bool {
	for _, i := range l.byRuntime[runtimeName] {
		if l.accounts[i].short() {
			return true
		}
	}
	return false
}

// known reports whether the usage of the runtime's filesystems is valid.
func (l *ledger) known(runtimeName string) bool {
	for _, i := range l.byRuntime[runtimeName] {
		if l.accounts[i].usage.Problem() != "" {
			return false
		}
	}
	return len(l.byRuntime[runtimeName]) > 0
}

// filesystem returns the name of the filesystem of the runtime's images; empty if it is unknown.
func (l *ledger) filesystem(runtimeName string) string {
	if accounts := l.byRuntime[runtimeName]; len(accounts) > 0 {
		return l.accounts[accounts[0]].usage.Name()
	}
	return ""
}

// take subtracts the estimated gain of an image's removal from what must be freed. It returns the
// gain with the inodes that no runtime reports. Those are estimated from the average of the
// filesystem.
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

// undoTake undoes take.
func (l *ledger) undoTake(runtimeName string, g Gain) {
	for _, i := range l.byRuntime[runtimeName] {
		a := &l.accounts[i]
		g := a.complete(g)
		a.freed.Bytes -= min(a.freed.Bytes, g.Bytes)
		a.freed.Inodes -= min(a.freed.Inodes, g.Inodes)
	}
}

// complete adds the estimated number of uncounted inodes.
func (a *account) complete(g Gain) Gain {
	if a.usage.Inodes > 0 && a.usage.Problem() == "" && (g.uncounted > 0 || g.whole) {
		g.Inodes += estimatedInodes(a.perByte, g.uncounted)
	}
	return Gain{Bytes: g.Bytes, Inodes: g.Inodes}
}

// worthwhile reports whether the gain is large enough: at least a tenth of the object's size, or a
// hundredth of what must be freed.
func (l *ledger) worthwhile(runtimeName string, g, whole Gain) bool {
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
