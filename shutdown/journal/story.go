package journal

// Story is how the last shutdowns went, as the methods of these names tell it.
type Story struct {
	Last, CalledOff *Record
	Restarts        []Restart
}

// Peek reads the story, and changes nothing: for a person on a host whose agent does not
// run. A missing journal is fs.ErrNotExist.
func Peek(path, bootID string) (Story, error) {
	file, err := read(path)
	if err != nil {
		return Story{}, err
	}
	return (&Journal{file: file.takenUp(bootID)}).Story(), nil
}

// Story is all that is told of the last shutdowns. It must not be changed.
func (j *Journal) Story() Story { return Story{j.Last(), j.CalledOff(), j.Restarts()} }

// CalledOff is this boot's last drain that was cancelled after it had asked somebody to end;
// nil if there was none, or a shutdown since.
func (j *Journal) CalledOff() *Record {
	last := j.Last()
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.file.calledOff()
	if r == nil || !SameBoot(r.BootID, j.file.BootID) || last != nil && last.StartedAt.After(r.StartedAt) {
		return nil
	}
	return r
}
