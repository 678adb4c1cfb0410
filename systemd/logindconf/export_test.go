package logindconf

import "golang.org/x/sys/unix"

// Counted reads the pending events, without waiting, and returns for how many of them Await would
// return.
func (w *Watcher) Counted() (n int, err error) {
	raw, err := w.file.SyscallConn()
	if err != nil {
		return 0, err
	}
	buffer := make([]byte, 64<<10)
	var size int
	var failed error
	err = raw.Read(func(fd uintptr) bool {
		size, failed = unix.Read(int(fd), buffer)
		return true
	})
	if err != nil || failed == unix.EAGAIN {
		return 0, err
	}
	for _, name := range eventNames(buffer[:max(size, 0)]) {
		if counts(name) {
			n++
		}
	}
	return n, failed
}
