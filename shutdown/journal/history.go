package journal

// History has the records of the last shutdowns. The methods with these names document them.
type History struct {
	Last, Cancelled, Drained *Record
	Restarts                 []Restart
}

// Peek reads the journal without changing it. It is for a host whose agent does not run. If there
// is no journal, the error is fs.ErrNotExist.
func Peek(path, bootID string) (History, error) {
	file, err := read(path)
	if err != nil {
		return History{}, err
	}
	return (&Journal{file: file.continuedBy(bootID)}).History(), nil
}

// History returns all records. They must not be modified.
func (j *Journal) History() History {
	return History{j.Last(), j.Cancelled(), j.Drained(), j.Restarts()}
}

// Cancelled returns this boot's last drain that was cancelled after it had stopped a pod; nil if
// there was none, or if a shutdown followed.
func (j *Journal) Cancelled() *Record {
	last := j.Last()
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.file.cancelled()
	if r == nil || !SameBoot(r.BootID, j.file.BootID) || last != nil && last.StartedAt.After(r.StartedAt) {
		return nil
	}
	return r
}

// Drained returns the last manual drain that stopped a pod: in this boot, in the previous one, or
// in any boot of the current maintenance period. It is nil if there was none. After the maintenance
// period, the shutdown of a later boot replaces it.
func (j *Journal) Drained() *Record {
	last := j.Last()
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.file.Drained
	if r == nil || SameBoot(r.BootID, j.file.BootID) || j.file.inMaintenance() {
		return r
	}
	if last != nil && SameBoot(last.BootID, j.file.BootID) {
		return nil
	}
	return r
}

// DrainedBefore reports whether the manual drain came before the last shutdown, which found its
// pods stopped.
func (s History) DrainedBefore() bool {
	return s.Last != nil && s.Drained != nil && SameBoot(s.Last.BootID, s.Drained.BootID) &&
		(s.Last.StartedAt.IsZero() || s.Drained.StartedAt.Before(s.Last.StartedAt)) // a boot that ended without a drain has no StartedAt
}
