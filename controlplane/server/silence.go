package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"hostler.io/hostler/controlplane/controllers/lifecycle"
	"hostler.io/hostler/internal/atomicfile"
	"hostler.io/hostler/internal/bounded"
	"hostler.io/hostler/internal/trust"
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

// silenceFile is a file in a folder that lasts until the machine is booted. It is the path.
type silenceFile string

// savedSilence is the content of the file. After a boot, the clocks do not agree any more.
type savedSilence struct {
	Taken   time.Duration // by the monotonic clock of the machine
	Wall    time.Time     // the same moment by the wall clock
	Silence lifecycle.Silence
}

// clocksAgree is by how much the wall clock may be set between two processes.
const clocksAgree = 2 * time.Second

// Save implements Silences.
func (f silenceFile) Save(s lifecycle.Silence, taken time.Time) error {
	clock, err := monotonic()
	if err != nil {
		return err
	}
	text, err := json.Marshal(savedSilence{clock - time.Since(taken), taken, s})
	if err != nil {
		return err
	}
	return atomicfile.Replace(string(f), text)
}

// Load implements Silences.
func (f silenceFile) Load() (lifecycle.Silence, time.Time, error) {
	text, err := trust.ReadOwn(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return lifecycle.Silence{}, time.Time{}, nil
	}
	var saved savedSilence
	if err == nil {
		err = json.Unmarshal(text, &saved)
	}
	if err != nil {
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
