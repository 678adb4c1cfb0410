package gc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
)

// queued is an image with its sort keys and its protection.
type queued struct {
	img    *ImageFact
	unused time.Duration // time since its last use or pull, whichever is later
	known  time.Duration // time since its pull
	reason Reason        // why it is protected; empty if it is not; later the reason of the decision
	detail string
	action Action
	gain   Gain // gain of its removal
}

// planImages decides on every image. Protected images are always kept. The others are sorted,
// longest unused first. Those past the maximum age are removed, which may free enough. Then more
// are removed until the ledger needs no more space. It also returns the filesystems whose record in
// Facts.Fruitless is outdated.
func planImages(f *Facts, p ImagePolicy, now time.Time, o Options, l *ledger, leaving map[*runtime.Container]bool) ([]ImageDecision, []string) {
	j := newJudge(f, p, now, o, leaving)
	queue := make([]queued, len(f.Images))
	order := make([]*queued, len(f.Images))
	for i := range f.Images {
		j.judge(&f.Images[i], &queue[i])
		order[i] = &queue[i]
	}
	slices.SortFunc(order, compareQueued)
	r := releaser{policy: p, options: o, ledger: l, sharing: newSharing(f.Layers, leavers(leaving))}
	var outdated []string
	r.fruitless, outdated = fruitless(f, queue, now)
	for _, q := range order {
		if q.reason != "" || !o.AllUnused && !r.knownSince(q).IsZero() {
			r.sharing.keep(q.img)
		}
	}
	for _, q := range order {
		q.action = Keep
		if q.reason == "" {
			r.release(q)
		}
	}
	r.restore(order)
	for _, q := range order {
		if decided := q.action == Remove || q.reason == BelowThreshold; decided && !o.AllUnused && slices.Contains(o.RequestImages, q.img.Runtime) {
			q.detail = onRequest
		}
	}

	decisions := make([]ImageDecision, len(order))
	for i, q := range order {
		decisions[i] = ImageDecision{
			ID: q.img.ID, Names: q.img.Names(), SizeBytes: q.img.SizeBytes, SharedBytes: q.img.SharedBytes,
			FirstSeen: q.img.FirstSeen, LastUsed: q.img.LastUsed,
			Action: q.action, Reason: q.reason, Detail: q.detail,
			Runtime: q.img.Runtime, Filesystem: l.filesystem(q.img.Runtime), Image: &q.img.Image, Gain: q.gain,
		}
	}
	slices.SortStableFunc(decisions, func(a, b ImageDecision) int { return cmp.Compare(place(a), place(b)) })
	return decisions, outdated
}

// place sorts images: removable ones, then those that free nothing, then protected ones.
func place(d ImageDecision) int {
	switch {
	case d.Reason == FreesNothing:
		return 1
	case d.Unused():
		return 0
	}
	return 2
}

// leavers returns a function that reports whether the plan removes this user of a layer, which is a
// container.
func leavers(leaving map[*runtime.Container]bool) func(runtimeName, user string) bool {
	ids := make(map[imageRef]bool)
	for c := range leaving {
		ids[imageRef{c.Runtime, c.ID}] = leaving[c]
	}
	return func(runtimeName, user string) bool { return ids[imageRef{runtimeName, user}] }
}

// releaser decides on images that nothing protects.
type releaser struct {
	policy    ImagePolicy
	options   Options
	ledger    *ledger
	sharing   *sharing
	fruitless map[ImageKey]time.Time // images whose removal would free nothing, and since when that is known
}

// release decides on an image that nothing protects.
func (r *releaser) release(q *queued) {
	name := q.img.Runtime
	switch most, whole := r.sharing.most(q.img); {
	case r.options.AllUnused:
		r.remove(q, AllUnused)
	case !r.ledger.known(name):
		q.reason = UnknownUsage
	case r.policy.MaximumAge > 0 && q.unused > r.policy.MaximumAge:
		r.remove(q, MaxAge)
	case !r.ledger.short(name):
		q.reason = BelowThreshold
	case !r.knownSince(q).IsZero():
		q.reason, q.detail = FreesNothing, "removals freed nothing at "+r.knownSince(q).UTC().Format(time.RFC3339)
	case !r.ledger.worthwhile(name, most, whole):
		q.reason, q.detail = FreesNothing, "kept images or containers share its layers"
	default:
		r.remove(q, LRU)
	}
}

// knownSince is since when it is known that removing the image would free nothing; zero if it is
// not.
func (r *releaser) knownSince(q *queued) time.Time {
	return r.fruitless[ImageKey{q.img.Runtime, q.img.ID}]
}

func (r *releaser) remove(q *queued, reason Reason) {
	q.action, q.reason = Remove, reason
	q.gain = r.ledger.take(q.img.Runtime, r.sharing.remove(q.img))
}

// restore keeps images that were chosen to free space but would free nothing, because kept images
// share their layers. It begins with the most recently used ones.
func (r *releaser) restore(order []*queued) {
	for _, q := range slices.Backward(order) {
		if _, known := r.sharing.of(q.img); !known || q.reason != LRU {
			continue
		}
		_, whole := r.sharing.most(q.img)
		gain := r.sharing.restore(q.img)
		r.ledger.undoTake(q.img.Runtime, gain)
		if !r.ledger.short(q.img.Runtime) && !r.ledger.worthwhile(q.img.Runtime, gain, whole) {
			q.action, q.reason, q.gain = Keep, BelowThreshold, Gain{}
			continue
		}
		r.ledger.take(q.img.Runtime, r.sharing.remove(q.img))
	}
}

// compareQueued sorts removable images first, the longest unused before the others.
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

// judge finds what protects images.
type judge struct {
	policy     ImagePolicy
	now        time.Time
	leaveAlone []string
	users      Users
	sandbox    map[string]bool            // by reference, for all runtimes: cri-dockerd uses an image of Docker
	pods       map[*runtime.Container]int // index into facts.Pods
	facts      *Facts
	refs       []string // reused buffer
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
	// An image that was pulled again is needed again. A time of use from before a correction of the
	// clock may be decades old.
	q.unused = q.known
	if !img.LastUsed.IsZero() {
		q.unused = min(q.known, age(j.now, img.LastUsed))
	}
	q.img = img
	q.reason, q.detail = j.protection(img, q)
}

// protection returns what keeps the image; empty if nothing does.
func (j *judge) protection(img *ImageFact, q *queued) (Reason, string) {
	if c, more := j.users.First(img.Runtime, j.refs); c != nil {
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
	if len(img.Digests) == 0 && !j.policy.IncludeLocal {
		return Local, ""
	}
	if slices.Contains(j.leaveAlone, img.Runtime) {
		return NotManaged, onRequest
	}
	young := q.unused
	if !img.CreatedAt.IsZero() {
		young = min(young, age(j.now, img.CreatedAt))
	}
	if young < j.policy.MinimumAge {
		return TooYoung, untilRemoval(j.policy.MinimumAge - young)
	}
	return "", ""
}

func (j *judge) kept(img *ImageFact) string {
	if detail := keepLabel(img.Labels); detail != "" {
		return detail
	}
	if img.LabelsUnknown {
		return "the runtime has not reported its labels yet"
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
		return "name of a sandbox image"
	}
	return ""
}

// looksLikeSandbox recognises sandbox images by their usual names, for runtimes that do not report
// theirs. If the sandbox image is missing and its registry is unreachable, no pod can start.
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
