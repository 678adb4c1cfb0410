package fleetsim

import (
	"context"
	"encoding/json"
	"maps"

	"hostler.io/hostler/controlplane/store/memory"
)

// command runs a command of the host.
func (a *agent) command(ctx context.Context, c memory.Call, do func() error) error {
	return a.h.process.Do(ctx, memory.Request{Call: c, Object: a.h.name}, do)
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

// SaveNow writes the file. What was not flushed is lost with the process.
func (f file) SaveNow(snapshot func() any) {
	text := encoded(snapshot())
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	f.a.unflushed[f.name] = text
}

// flush waits until the state files are on the disk.
func (a *agent) flush() error {
	return a.command(context.Background(), commandFlush, func() error {
		a.mu.Lock()
		defer a.mu.Unlock()
		d := &a.h.disk
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.full {
			return errFull
		}
		if d.files == nil {
			d.files = map[string][]byte{}
		}
		maps.Copy(d.files, a.unflushed)
		return nil
	})
}
