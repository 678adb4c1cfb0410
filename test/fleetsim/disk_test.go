package fleetsim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"hostler.io/hostler/controlplane/store/memory"
)

// command runs a command of the host.
func (a *agent) command(ctx context.Context, c memory.Call, do func() error) error {
	return a.process.Do(ctx, memory.Request{Call: c, Object: a.h.name}, do)
}

// file is a state file of an agent.
type file struct {
	a    *agent
	name string
}

// Load reads the file.
func (f file) Load(into any) {
	d := &f.a.h.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if text := d.files[f.name]; text != nil {
		_ = json.Unmarshal(text, into) // cannot fail: SaveNow has written it
	}
}

// Unread reports that the disk can be read.
func (file) Unread() bool { return false }

// saved is the content of a state file, and when it was saved.
type saved struct {
	text []byte
	at   time.Time
}

// writeTime is how long a write may take that nobody waits for.
const writeTime = time.Second

// writesBehind writes what was saved some time before the agent was killed. The rest is lost with the process.
func (a *agent) writesBehind() {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.unflushed, func(_ string, s saved) bool { return time.Since(s.at) < writeTime })
	a.h.disk.write(a.unflushed, saveTime)
	a.h.disk.forget()
}

// write writes state files, and the values that are older than that, if there is space. It returns whether there is.
func (d *disk) write(files map[string]saved, age time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return false
	}
	if d.files == nil {
		d.files = map[string][]byte{}
	}
	for name, s := range files {
		d.files[name] = s.text
	}
	if time.Since(d.changed) >= age {
		d.synced, d.changed = maps.Clone(d.values), time.Time{}
	}
	return true
}

// save copies the files.
func (d *disk) save() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.saved = &disk{synced: maps.Clone(d.synced), files: maps.Clone(d.files)}
}

// bootsFromSaved makes the host boot from the copy of its disk. A person lets it return if it had left then.
func (h *host) bootsFromSaved() {
	if h.gone || h.w.truth.of(h.name).hostile {
		return
	}
	h.dies()
	d := &h.disk
	d.mu.Lock()
	d.values, d.synced, d.files, d.saved = maps.Clone(d.saved.synced), d.saved.synced, d.saved.files, nil
	d.mu.Unlock()
	delete(h.w.truth.cordons, h.name)
	delete(h.w.truth.slots.amid, h.name) // it does not know its reboot, and ends none
	if h.w.active[fmt.Sprint(hostDies, "/", h.name, "/")] == 0 {
		h.bootsAgain()
	}
	h.w.at(time.Since(h.w.start)+10*time.Second, "a person checks whether "+h.name+" has returned", h.returns)
}

// SaveNow writes the file.
func (f file) SaveNow(snapshot func() any) {
	text := encoded(snapshot())
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	f.a.unflushed[f.name] = saved{text, time.Now()}
}

// flusher returns what waits until the state files are on the disk, for one that does that.
func (a *agent) flusher(who string) func() error {
	return func() error {
		return a.process.Do(a.process.ctx, memory.Request{Call: commandFlush, Object: who}, func() error {
			a.mu.Lock()
			defer a.mu.Unlock()
			if !a.h.disk.write(a.unflushed, 0) {
				return errFull
			}
			return nil
		})
	}
}
