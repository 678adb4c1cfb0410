package journal

// History has the records of the last shutdowns, as returned by the methods of these names.
type History struct {
	Last, Cancelled, Drained *Record
	Restarts                 []Restart
}

// Peek reads the story, and changes nothing: for a person on a host whose agent does not
// run. A missing journal is fs.ErrNotExist.
func Peek(path, bootID string) (History, error) {
	file, err := read(path)
	if err != nil {
		return History{}, err
	}
	return (&Journal{file: file.takenUp(bootID)}).History(), nil
}

// History returns all records. They must not be changed.
func (j *Journal) History() History {
	return History{j.Last(), j.Cancelled(), j.Drained(), j.Restarts()}
}

// Cancelled is this boot's last drain that was cancelled after it had asked somebody to end;
// nil if there was none, or a shutdown since.
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

// Drained is the last drain by a person that has stopped anything, in this boot, in the one before, or
// in any boot of a maintenance that goes on; nil if there was none. Once the maintenance has ended, the
// shutdown of a later boot replaces it.
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

// DrainedBefore reports whether the drain by a person was before the last shutdown, which found
// those pods stopped.
func (s History) DrainedBefore() bool {
	return s.Last != nil && s.Drained != nil && SameBoot(s.Last.BootID, s.Drained.BootID) &&
		(s.Last.StartedAt.IsZero() || s.Drained.StartedAt.Before(s.Last.StartedAt)) // a boot that ended without a drain has no start of one
}
