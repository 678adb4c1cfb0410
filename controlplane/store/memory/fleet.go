package memory

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// version returns the resourceVersion of a revision. After a restore, revisions repeat. Versions do that only with
// Options.LocalTerms. The caller holds mu.
func (s *fleet) version(revision int64) string {
	if s.history.epoch == 0 || s.o.LocalTerms {
		return strconv.FormatInt(revision, 10)
	}
	return fmt.Sprintf("%d@%d", revision, s.history.epoch)
}

// since returns the revision of a version that a Tracker has reached; ErrConflict if it is from before
// a restore. The caller holds mu.
func (s *fleet) since(version string) (int64, error) {
	text, _, _ := strings.Cut(version, "@")
	revision, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%w: position %q", controlplane.ErrInvalid, version)
	case s.version(revision) != version:
		return 0, fmt.Errorf("%w: the store was restored since %s", controlplane.ErrConflict, version)
	}
	return revision, nil
}

// number returns a number that is not used again. The caller holds mu.
func (s *fleet) number() int64 {
	s.unique = max(s.unique, s.revision) + 1
	return s.unique
}

// put stores a value under the next revision. The caller holds mu.
func (s *fleet) put(path string, value []byte) *entry {
	s.revision++
	e, before := &entry{value: value, revision: s.revision}, s.objects[path]
	s.objects[path] = e
	s.wrote(path, before, value)
	s.log(change{path: path, value: value})
	return e
}

// rewrite stores another value of an object, but keeps its expiry. The caller holds mu.
func (s *fleet) rewrite(path string, value []byte) {
	before := s.objects[path]
	s.revision++
	e := *before
	e.value, e.revision = value, s.revision
	s.objects[path] = &e
	s.wrote(path, before, value)
	s.log(change{path: path, value: value})
}

// remove deletes an object if it exists. The caller holds mu.
func (s *fleet) remove(path string) {
	e := s.objects[path]
	if e == nil {
		return
	}
	delete(s.objects, path)
	s.revision++
	s.wrote(path, e, nil)
	s.log(change{path: path, value: e.value, deleted: true})
}

// wrote reports a write. The caller holds mu.
func (s *fleet) wrote(path string, before *entry, after []byte) {
	switch {
	case s.o.Wrote == nil:
	case before == nil:
		s.o.Wrote(path, nil, after)
	default:
		s.o.Wrote(path, before.value, after)
	}
}

// bind makes an object expire unless it is written again within ttl. The caller holds mu.
func (s *fleet) bind(e *entry, ttl time.Duration) {
	e.ttl, e.ends = ttl, time.Now().Add(ttl)
	removed := ttl
	if every := s.o.Expiry; every > 0 {
		removed += every - e.ends.Sub(s.started)%every
	}
	time.AfterFunc(removed, s.expire)
}

// expire removes all objects whose time is over, in the order of their paths.
func (s *fleet) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return
	}
	now := time.Now()
	s.endLeases(func(e *entry) bool { return !now.Before(e.ends) })
}

// EndLeases ends all Leases, also of those who renew them. A member of etcd that led, was suspended and
// continues does that, since it has received no renewals meanwhile.
func (s *fleet) EndLeases() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLeases(func(*entry) bool { return true })
}

// endLeases removes the objects with a Lease that match, in the order of their paths. The caller holds mu.
func (s *fleet) endLeases(match func(*entry) bool) {
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if e := s.objects[path]; !e.ends.IsZero() && match(e) {
			s.remove(path)
		}
	}
}

// Away makes the store lose its leader, or find one again. Without a leader, no Lease ends. A new
// leader gives all of them their whole time again.
func (s *fleet) Away(away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away = away; away {
		return
	}
	s.extend()
}

// extend gives all Leases their whole time again. The caller holds mu.
func (s *fleet) extend() {
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if e := s.objects[path]; e.ttl > 0 {
			s.bind(e, e.ttl)
		}
	}
}

// Snapshot is the content of a store at a revision. It is immutable.
type Snapshot struct {
	revision  int64
	objects   map[string]entry
	elections map[string]election
	settings  map[string]store.Setting
}

// Snapshot returns the present content.
func (s *fleet) Snapshot() Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := Snapshot{revision: s.revision, objects: map[string]entry{}, elections: map[string]election{}, settings: maps.Clone(s.settings)}
	for path, e := range s.objects {
		snapshot.objects[path] = *e
	}
	for controller, e := range s.elections {
		snapshot.elections[controller] = *e
	}
	return snapshot
}

// Bumped returns the snapshot as `etcdutl snapshot restore --bump-revision` restores it.
func (s Snapshot) Bumped() Snapshot {
	s.revision += 10 * store.RestoreJump
	return s
}

// Restore replaces the content by that of a snapshot, and its revision: it goes back. Each Follow in
// progress starts again with a list. Leases of the snapshot get their whole time again.
func (s *fleet) Restore(snapshot Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number() // no UID and no term of the past is used again
	s.revision, s.settings = snapshot.revision, maps.Clone(snapshot.settings)
	s.objects, s.elections = map[string]*entry{}, map[string]*election{}
	for path, e := range snapshot.objects {
		s.objects[path] = &e
	}
	for controller, e := range snapshot.elections {
		s.elections[controller] = &e
	}
	s.history.restart()
	s.extend()
}

// Relist makes each Follow in progress start again with a list, as after a compaction.
func (s *fleet) Relist() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history.lists++
	s.history.wake()
}

// Raw returns the stored value at a path; nil if there is none.
func (s *fleet) Raw(path string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.objects[path]; e != nil {
		return e.value
	}
	return nil
}

// Revision returns the revision of the latest write.
func (s *fleet) Revision() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}
