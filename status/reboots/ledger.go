// Package reboots records how each boot of the host ended, and counts reboots, across restarts of
// the agent and boots without an agent.
//
// It owns the verdict on each reboot and the count. It reports only what the journal and the
// recorded end of the agent prove.
package reboots

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/shutdown/journal"
)

// key is the store's key for all of it.
const key = "reboots"

// Store keeps JSON values by key: *statefile.Values.
type Store interface {
	Load() (map[string][]byte, error)
	WriteNow(put map[string][]byte, remove []string) error
}

// Machine identifies a machine. Unknown fields are empty.
type Machine struct {
	ID   string `json:"id,omitempty"`   // machine-id(5)
	UUID string `json:"uuid,omitempty"` // of the hardware
}

// differs reports whether the two are known to be different machines.
func (m Machine) differs(o Machine) bool {
	return m.ID != "" && o.ID != "" && m.ID != o.ID || m.UUID != "" && o.UUID != "" && m.UUID != o.UUID
}

// Options are this boot, and the sources about the previous one.
type Options struct {
	Boot    string // the kernel's boot ID, and, if known, @ and systemd's start time
	Machine Machine
	// Began is when the kernel started by the wall clock, or zero if that clock is not trusted.
	Began   time.Time
	Journal Journal
	Store   Store
	Now     func() time.Time // time.Now if nil
	Log     *slog.Logger
}

// Journal reports how the previous boot ended: a *journal.Journal.
type Journal interface {
	LastBoot() *journal.Record
	Found() (another, read bool)
}

// ending is how the agent of a boot ended.
type ending string

const (
	runs      ending = ""           // it did not end: it runs, or ended with the whole host
	stopped   ending = "stopped"    // as a service, by a person or an upgrade
	goingDown ending = "going-down" // because systemd was shutting down
)

// kept is the stored state.
type kept struct {
	Boot    string  `json:"boot"` // the last boot that an agent saw
	Machine Machine `json:"machine"`
	Ended   ending  `json:"ended,omitempty"` // how the agent of that boot ended
	Counts
	Last     *Reboot `json:"last,omitempty"`
	Reported bool    `json:"told"` // Last was sent to the control plane
}

// Counts are the reboots that an agent saw. Boots in which no agent ran are not included.
type Counts struct {
	Since      time.Time `json:"since"` // start of the count
	Expected   uint64    `json:"expected"`
	Unexpected uint64    `json:"unexpected"`
	Unknown    uint64    `json:"unknown"`
}

// Ledger counts reboots. It is safe for concurrent use.
type Ledger struct {
	o Options

	mu      sync.Mutex // guards the fields below
	kept    kept
	settled bool // includes this boot
	foreign bool // the store and the journal belong to another machine
}

// Open reads the stored ledger. If the verdict on the last reboot is already possible, it decides.
func Open(o Options) *Ledger {
	o.Log = o.Log.With("component", "reboots")
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Ledger{o: o}
	values, err := o.Store.Load()
	if value, found := values[key]; err == nil && found {
		err = json.Unmarshal(value, &l.kept)
	}
	if err != nil {
		o.Log.Warn("cannot read reboot history, counting from now", "error", err)
		l.kept = kept{}
	}
	l.Settle(false)
	return l
}

// Settle decides once on the last reboot, and reports whether that is done. It waits for a journal
// that cannot be read yet, unless anyway is set.
func (l *Ledger) Settle(anyway bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	another, read := l.o.Journal.Found()
	switch {
	case l.settled:
		return true
	case l.kept.Boot != "" && l.kept.Machine.differs(l.o.Machine):
		l.o.Log.Info("stored reboot history belongs to another machine, counting from now", "before", l.kept.Machine.ID, "now", l.o.Machine.ID)
		l.begin()
		l.foreign = true
	case l.kept.Boot != "" && journal.SameBoot(l.kept.Boot, l.o.Boot):
		if len(l.o.Boot) > len(l.kept.Boot) {
			l.kept.Boot = l.o.Boot
		}
	case !read && !anyway:
		return false
	case l.kept.Boot == "" && !another: // the first start ever, or the state was lost since boot
		l.begin()
	default:
		l.count(judge(l.kept.Boot, l.kept.Ended, l.o))
	}
	l.settled, l.kept.Ended = true, runs
	l.write()
	return true
}

// begin starts a new count.
func (l *Ledger) begin() {
	l.kept = kept{Boot: l.o.Boot, Machine: l.o.Machine, Counts: Counts{Since: l.o.Now().UTC().Truncate(time.Second)}}
}

// count adds a reboot.
func (l *Ledger) count(r Reboot) {
	if l.kept.Boot == "" {
		l.begin()
	}
	l.kept.Boot, l.kept.Machine, l.kept.Last, l.kept.Reported = l.o.Boot, l.o.Machine, &r, false
	level := slog.LevelWarn
	switch r.Verdict {
	case Expected:
		l.kept.Expected++
		level = slog.LevelInfo
	case Unexpected:
		l.kept.Unexpected++
	default:
		l.kept.Unknown++
	}
	l.o.Log.Log(context.Background(), level, "host rebooted", "bootID", r.BootID, "verdict", r.Verdict, "how", r.String())
}

// write stores the state immediately, before the journal, which takes a second. Otherwise a boot
// that ends within seconds would be only in the journal, and be counted as an earlier boot.
func (l *Ledger) write() {
	value, err := json.Marshal(l.kept)
	if err == nil {
		err = l.o.Store.WriteNow(map[string][]byte{key: value}, nil)
	}
	if err != nil {
		l.o.Log.Warn("cannot persist reboot history", "error", err)
	}
}

// Ends records that the agent ends, and whether systemd is shutting down. The next boot uses that
// if the journal has no record.
func (l *Ledger) Ends(systemStops bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settled {
		return // the previous boot's value is still needed
	}
	l.kept.Ended = stopped
	if systemStops {
		l.kept.Ended = goingDown
	}
	l.write()
}

// Unreported returns the reboot that began this boot, if it was not sent to the control plane.
func (l *Ledger) Unreported() *Reboot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settled || l.kept.Reported {
		return nil
	}
	return l.ofThisBoot()
}

// Reported records that the reboot was sent to the control plane, or is about to be.
func (l *Ledger) Reported() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled && !l.kept.Reported {
		l.kept.Reported = true
		l.write()
	}
}

// Foreign reports whether the stored state belongs to another machine, whose disk, or a copy of it,
// this machine has.
func (l *Ledger) Foreign() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.foreign
}

// ofThisBoot returns the reboot that began this boot, or nil if none was seen.
func (l *Ledger) ofThisBoot() *Reboot {
	if r := l.kept.Last; r != nil && journal.SameBoot(l.kept.Boot, l.o.Boot) {
		clone := *r
		return &clone
	}
	return nil
}

// Status is what is known of this boot and of earlier reboots.
type Status struct {
	BootID   string    `json:"bootID"` // the kernel's; does not change with a soft-reboot
	BootedAt time.Time `json:"bootedAt"`
	Counts
	// Last is the reboot that began this boot; null if no agent saw an earlier boot.
	Last *Reboot `json:"last"`
}

// Status returns the status. uptime is that of the kernel.
func (l *Ledger) Status(uptime time.Duration) Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Status{BootID: kernel(l.o.Boot), BootedAt: l.o.Now().Add(-uptime).UTC().Truncate(time.Second), Counts: l.kept.Counts}
	if l.settled {
		s.Last = l.ofThisBoot()
	}
	if s.Last != nil && s.Last.SameKernel {
		if at, known := managerStart(l.o.Boot); known {
			s.BootedAt = at
		}
	}
	return s
}

// Began returns when this boot began to start services. uptime is that of the kernel, which is
// longer in a container, and after a soft-reboot.
func (l *Ledger) Began(uptime time.Duration) time.Time {
	if at, known := managerStart(l.o.Boot); known {
		return at
	}
	return l.o.Now().Add(-uptime)
}

// kernel returns the kernel's boot ID from the name of a boot.
func kernel(boot string) string {
	id, _, _ := strings.Cut(boot, "@")
	return id
}

// managerStart returns systemd's start time from the name of a boot.
func managerStart(boot string) (time.Time, bool) {
	_, text, found := strings.Cut(boot, "@")
	var seconds int64
	if n, err := fmt.Sscan(text, &seconds); !found || n != 1 || err != nil {
		return time.Time{}, false
	}
	return time.Unix(seconds, 0).UTC(), true
}
