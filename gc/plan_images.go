package gc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
)

// queued is an image with the figures it is ordered by.
type queued struct {
	decision  ImageDecision
	unused    time.Duration // since its last use, or since it was first seen
	known     time.Duration // since it was first seen
	protected bool
}

// planImages decides on every image. Those that something protects stay
// whatever the room; of the others those past the maximum age go, then the
// ones unused longest until the ledger is even.
func planImages(f *Facts, p ImagePolicy, now time.Time, o Options, l *ledger, leaving map[*runtime.Container]bool) []ImageDecision {
	j := newJudge(f, p, now, o, leaving)
	queue := make([]queued, len(f.Images))
	order := make([]*queued, len(f.Images))
	for i := range f.Images {
		j.judge(&f.Images[i], &queue[i])
		queue[i].decision.Filesystem = l.filesystem(f.Images[i].Runtime)
		order[i] = &queue[i]
	}
	slices.SortFunc(order, compareQueued)

	decisions := make([]ImageDecision, len(order))
	for i, q := range order {
		d := &q.decision
		if !q.protected {
			d.Action, d.Reason = release(q, p, o, l)
			if d.Action == Remove {
				l.take(d.Runtime, d.SizeBytes)
			}
		}
		decisions[i] = *d
	}
	return decisions
}

// release decides on an image that nothing protects.
func release(q *queued, p ImagePolicy, o Options, l *ledger) (Action, Reason) {
	runtimeName := q.decision.Runtime
	switch {
	case o.AllUnused:
		return Remove, AllUnused
	case !l.known(runtimeName):
		return Keep, UnknownUsage
	case p.MaximumAge > 0 && q.unused > p.MaximumAge:
		return Remove, MaxAge
	case l.short(runtimeName):
		return Remove, LRU
	}
	return Keep, BelowThreshold
}

// compareQueued puts what may go first, and of that what was unused longest.
func compareQueued(a, b *queued) int {
	if a.protected != b.protected {
		if b.protected {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(b.unused, a.unused); c != 0 {
		return c
	}
	if c := cmp.Compare(b.known, a.known); c != 0 {
		return c
	}
	if c := cmp.Compare(b.decision.SizeBytes, a.decision.SizeBytes); c != 0 {
		return c
	}
	if c := strings.Compare(a.decision.ID, b.decision.ID); c != 0 {
		return c
	}
	return strings.Compare(a.decision.Runtime, b.decision.Runtime)
}

// judge knows what protects images.
type judge struct {
	policy     ImagePolicy
	now        time.Time
	leaveAlone []string
	users      Users
	sandbox    map[imageRef]bool
	pods       map[*runtime.Container]int // index into facts.Pods
	facts      *Facts
	refs       []string // scratch
}

func newJudge(f *Facts, p ImagePolicy, now time.Time, o Options, leaving map[*runtime.Container]bool) *judge {
	j := &judge{
		policy: p, now: now, leaveAlone: o.LeaveAlone, facts: f,
		users: make(Users), sandbox: make(map[imageRef]bool), pods: make(map[*runtime.Container]int),
	}
	for i := range f.Pods {
		for k := range f.Pods[i].Containers {
			if c := &f.Pods[i].Containers[k]; !leaving[c] {
				j.users.add(c)
				j.pods[c] = i
			}
		}
	}
	for runtimeName, ref := range f.SandboxImages {
		if ref != "" {
			j.sandbox[imageRef{runtimeName, NormalReference(ref)}] = true
		}
	}
	return j
}

func (j *judge) judge(img *ImageFact, q *queued) {
	j.refs = References(j.refs[:0], &img.Image)
	q.known = age(j.now, img.FirstSeen)
	q.unused = q.known
	if !img.LastUsed.IsZero() {
		q.unused = age(j.now, img.LastUsed)
	}
	q.decision = ImageDecision{
		ID: img.ID, Names: img.Names(), SizeBytes: img.SizeBytes,
		FirstSeen: img.FirstSeen, LastUsed: img.LastUsed,
		Runtime: img.Runtime, Image: &img.Image,
	}
	reason, detail := j.protection(img, q)
	if reason != "" {
		q.protected = true
		q.decision.Action, q.decision.Reason, q.decision.Detail = Keep, reason, detail
	}
}

// protection says what keeps the image, and nothing if nothing does.
func (j *judge) protection(img *ImageFact, q *queued) (Reason, string) {
	if c := j.users.First(img.Runtime, j.refs); c != nil {
		return InUse, fmt.Sprintf("container %s (%s)", j.title(c), c.State)
	}
	if len(img.UsedBy) > 0 {
		return InUse, strings.Join(img.UsedBy, ", ")
	}
	if img.Pinned {
		return Pinned, ""
	}
	if detail := j.kept(img); detail != "" {
		return Protected, detail
	}
	if slices.Contains(j.leaveAlone, img.Runtime) {
		return NotManaged, "removed on request only"
	}
	if len(img.Digests) == 0 && !j.policy.IncludeLocal {
		return Local, ""
	}
	young := min(q.known, q.unused)
	if !img.CreatedAt.IsZero() {
		young = min(young, age(j.now, img.CreatedAt))
	}
	if young < j.policy.MinimumAge {
		return TooYoung, ""
	}
	return "", ""
}

func (j *judge) kept(img *ImageFact) string {
	if img.Labels[runtime.LabelKeep] == "true" {
		return "label " + runtime.LabelKeep
	}
	for _, ref := range j.refs {
		if j.sandbox[imageRef{img.Runtime, ref}] {
			return "sandbox image"
		}
		for _, pattern := range j.policy.Keep {
			if pattern.matchNormal(ref) {
				return "pattern " + pattern.text
			}
		}
	}
	if j.facts.SandboxImages[img.Runtime] == "" && looksLikeSandbox(j.refs) {
		return "looks like a sandbox image"
	}
	return ""
}

// looksLikeSandbox recognises sandbox images by the name that every project
// gives them. It serves where the runtime does not tell its own: losing that
// image means that no pod starts on a host without its registry.
func looksLikeSandbox(refs []string) bool {
	for _, ref := range refs {
		repository, _ := splitReference(ref)
		base := repository[strings.LastIndexByte(repository, '/')+1:]
		if base == "pause" || strings.HasPrefix(base, "pause-") {
			return true
		}
	}
	return false
}

func (j *judge) title(c *runtime.Container) string {
	return podTitle(&j.facts.Pods[j.pods[c]]) + "/" + c.Name
}

func podTitle(p *runtime.Pod) string {
	name := p.Name
	if name == "" {
		name = p.ID
	}
	if p.Namespace == "" {
		return name
	}
	return p.Namespace + "/" + name
}
