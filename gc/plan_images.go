package gc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
)

// queued is an image with what it is ordered by, and what protects it.
type queued struct {
	img    *ImageFact
	unused time.Duration // since it was last used or came, whichever is later
	known  time.Duration // since it came
	reason Reason        // why it is protected; empty if it is not
	detail string
}

// planImages decides on every image. Those that something protects stay
// whatever the room; of the others, the ones unused longest first, those past the
// maximum age go, which makes room, and then as many as it takes until the ledger is
// even.
func planImages(f *Facts, p ImagePolicy, now time.Time, o Options, l *ledger, leaving map[*runtime.Container]bool) []ImageDecision {
	j := newJudge(f, p, now, o, leaving)
	queue := make([]queued, len(f.Images))
	order := make([]*queued, len(f.Images))
	for i := range f.Images {
		j.judge(&f.Images[i], &queue[i])
		order[i] = &queue[i]
	}
	slices.SortFunc(order, compareQueued)

	decisions := make([]ImageDecision, len(order))
	for i, q := range order {
		action, reason := Keep, q.reason
		if reason == "" {
			action, reason = release(q, p, o, l)
		}
		if action == Remove {
			l.take(q.img.Runtime, q.img.OwnBytes())
		}
		decisions[i] = ImageDecision{
			ID: q.img.ID, Names: q.img.Names(), SizeBytes: q.img.SizeBytes, SharedBytes: q.img.SharedBytes,
			FirstSeen: q.img.FirstSeen, LastUsed: q.img.LastUsed,
			Action: action, Reason: reason, Detail: q.detail,
			Runtime: q.img.Runtime, Filesystem: l.filesystem(q.img.Runtime), Image: &q.img.Image,
		}
	}
	return decisions
}

// release decides on an image that nothing protects.
func release(q *queued, p ImagePolicy, o Options, l *ledger) (Action, Reason) {
	switch {
	case o.AllUnused:
		return Remove, AllUnused
	case !l.known(q.img.Runtime):
		return Keep, UnknownUsage
	case p.MaximumAge > 0 && q.unused > p.MaximumAge:
		return Remove, MaxAge
	case l.short(q.img.Runtime):
		return Remove, LRU
	}
	return Keep, BelowThreshold
}

// compareQueued puts what may go first, and of that what was unused longest.
func compareQueued(a, b *queued) int {
	if free := a.reason == ""; free != (b.reason == "") {
		if free {
			return -1
		}
		return 1
	}
	if c := cmp.Compare(b.unused, a.unused); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(b.known, a.known),
		cmp.Compare(b.img.SizeBytes, a.img.SizeBytes),
		strings.Compare(a.img.ID, b.img.ID),
		strings.Compare(a.img.Runtime, b.img.Runtime),
	)
}

// judge knows what protects images.
type judge struct {
	policy     ImagePolicy
	now        time.Time
	leaveAlone []string
	users      Users
	sandbox    map[string]bool            // by reference, of whatever runtime: cri-dockerd's is its Docker's
	pods       map[*runtime.Container]int // index into facts.Pods
	facts      *Facts
	refs       []string // scratch
}

func newJudge(f *Facts, p ImagePolicy, now time.Time, o Options, leaving map[*runtime.Container]bool) *judge {
	j := &judge{
		policy: p, now: now, leaveAlone: o.LeaveAlone, facts: f,
		users: make(Users), sandbox: make(map[string]bool), pods: make(map[*runtime.Container]int),
	}
	for i := range f.Pods {
		for k := range f.Pods[i].Containers {
			if c := &f.Pods[i].Containers[k]; !leaving[c] {
				j.users.add(c)
				j.pods[c] = i
			}
		}
	}
	for _, ref := range f.SandboxImages {
		if ref != "" {
			j.sandbox[NormalReference(ref)] = true
		}
	}
	return j
}

func (j *judge) judge(img *ImageFact, q *queued) {
	j.refs = References(j.refs[:0], &img.Image)
	q.known = age(j.now, img.FirstSeen)
	// Pulled again, it is wanted again; and a use from before the clock was set
	// right may look like one of decades ago.
	q.unused = q.known
	if !img.LastUsed.IsZero() {
		q.unused = min(q.known, age(j.now, img.LastUsed))
	}
	q.img = img
	q.reason, q.detail = j.protection(img, q)
}

// protection says what keeps the image, and nothing if nothing does.
func (j *judge) protection(img *ImageFact, q *queued) (Reason, string) {
	if c, more := j.users.Foremost(img.Runtime, j.refs); c != nil {
		detail := "container " + j.title(c) + " (" + c.State.String() + ")"
		if more > 0 {
			detail += fmt.Sprintf(" and %d more", more)
		}
		return InUse, detail
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
	young := q.unused
	if !img.CreatedAt.IsZero() {
		young = min(young, age(j.now, img.CreatedAt))
	}
	if young < j.policy.MinimumAge {
		return TooYoung, ""
	}
	return "", ""
}

func (j *judge) kept(img *ImageFact) string {
	if detail := keepLabel(img.Labels); detail != "" {
		return detail
	}
	if img.LabelsUnknown {
		return "the runtime has not told its labels yet"
	}
	for _, ref := range j.refs {
		if j.sandbox[ref] {
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
