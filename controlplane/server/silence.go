package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/internal/atomicfile"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/systemd/notify"
)

// Silences keeps a Silence for the next process of this server.
type Silences interface {
	// Save replaces what is kept. The Silence was taken at a moment.
	Save(s lifecycle.Silence, taken time.Time) error
	// Load returns what the process before this one has saved; an empty Silence if there is none.
	Load() (s lifecycle.Silence, taken time.Time, err error)
}

// resumeSilence makes what the process before this one has saved count.
func (s *Controllers) resumeSilence() {
	silence, taken, err := s.o.Silences.Load()
	if err != nil {
		s.o.Log.Warn("cannot read for how long hosts were unreachable before this start", "error", err)
		return
	}
	s.nodes.Resume(silence, taken)
}

// keepSilence saves the silence of hosts until ctx ends.
func (s *Controllers) keepSilence(ctx context.Context, heartbeat func(error)) error {
	for {
		now := time.Now()
		silence, err := s.nodes.Silence(now)
		if err == nil {
			heartbeat(s.o.Silences.Save(silence, now))
		} else {
			heartbeat(nil) // what was saved is true until its time is over
		}
		if err := bounded.Sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

// silencesOf returns where a server keeps a Silence. With systemd, that is memory, which systemd keeps and passes to
// the next process: if a directory of a service with DynamicUser= outlives a process, only root can enter it, so that
// others could not open the socket there. Without systemd, it is a file.
func silencesOf(passed []*os.File, manager *notify.Notifier, supervised bool, file string) (Silences, error) {
	const name = "silence"
	if i := slices.IndexFunc(passed, func(f *os.File) bool { return f.Name() == name }); i >= 0 {
		return silenceMemory{passed[i]}, nil
	}
	if !supervised {
		return silenceFile(file), nil
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return silenceFile(file), fmt.Errorf("create memory: %w", err)
	}
	m := silenceMemory{os.NewFile(uintptr(fd), name)}
	return m, manager.StoreFile(name, m.File)
}

// silenceMemory is memory that lasts until the service is stopped.
type silenceMemory struct{ *os.File }

// Save implements Silences. If the process is killed meanwhile, nothing is kept.
func (m silenceMemory) Save(s lifecycle.Silence, taken time.Time) error {
	text, err := encodeSilence(s, taken)
	if err == nil {
		err = m.Truncate(0)
	}
	if err == nil {
		_, err = m.WriteAt(text, 0)
	}
	return err
}

// Load implements Silences.
func (m silenceMemory) Load() (lifecycle.Silence, time.Time, error) {
	info, err := m.Stat()
	if err != nil || info.Size() == 0 {
		return lifecycle.Silence{}, time.Time{}, err
	}
	text, err := io.ReadAll(io.NewSectionReader(m, 0, info.Size()))
	if err != nil {
		return lifecycle.Silence{}, time.Time{}, err
	}
	return decodeSilence(text)
}

// silenceFile is a file in a folder that lasts until the machine is booted. It is the path.
type silenceFile string

// Save implements Silences.
func (f silenceFile) Save(s lifecycle.Silence, taken time.Time) error {
	text, err := encodeSilence(s, taken)
	if err != nil {
		return err
	}
	return atomicfile.Replace(string(f), text)
}

// Load implements Silences.
func (f silenceFile) Load() (lifecycle.Silence, time.Time, error) {
	text, err := trust.ReadOwn(string(f))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return lifecycle.Silence{}, time.Time{}, nil
	case err != nil:
		return lifecycle.Silence{}, time.Time{}, err
	}
	return decodeSilence(text)
}

// savedSilence is what is kept. After a boot, the clocks do not agree any more.
type savedSilence struct {
	Taken   time.Duration // by the monotonic clock of the machine
	Wall    time.Time     // the same moment by the wall clock
	Silence lifecycle.Silence
}

// clocksAgree is by how much the wall clock may be set between two processes.
const clocksAgree = 2 * time.Second

func encodeSilence(s lifecycle.Silence, taken time.Time) ([]byte, error) {
	clock, err := monotonic()
	if err != nil {
		return nil, err
	}
	return json.Marshal(savedSilence{clock - time.Since(taken), taken, s})
}

func decodeSilence(text []byte) (lifecycle.Silence, time.Time, error) {
	var saved savedSilence
	if err := json.Unmarshal(text, &saved); err != nil {
		return lifecycle.Silence{}, time.Time{}, err
	}
	clock, err := monotonic()
	if err != nil {
		return lifecycle.Silence{}, time.Time{}, err
	}
	now, elapsed := time.Now(), clock-saved.Taken
	if elapsed < 0 || (now.Sub(saved.Wall)-elapsed).Abs() > clocksAgree {
		return lifecycle.Silence{}, time.Time{}, nil
	}
	return saved.Silence, now.Add(-elapsed), nil
}

// monotonic returns the monotonic clock of the machine, which all processes share.
func monotonic() (time.Duration, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0, fmt.Errorf("read the monotonic clock: %w", err)
	}
	return time.Duration(now.Nano()), nil
}
