package probe

var (
	ParseCPUList = parseCPUList
	ParseTasks   = parseTasks
	PrettyName   = prettyName
	IsRelevant   = isRelevant
	NewStall     = newStall
)

// HangFilesystem makes statfs of a folder hang until release is called.
func HangFilesystem(r *Reader, folder string) (release func()) {
	q := &question{done: make(chan struct{})}
	r.mu.Lock()
	r.asked[folder] = q
	r.mu.Unlock()
	return func() {
		q.answer = stat(folder)
		r.mu.Lock()
		delete(r.asked, folder)
		r.mu.Unlock()
		close(q.done)
	}
}

// MountOfPath returns a mount as on a kernel without mount IDs in statx.
func MountOfPath(r *Reader, folder string) (mountpoint, device, kind string) {
	m := r.mountAt(folder, 0)
	return m.mountpoint, m.device, m.kind
}
