// Package reboots records how each boot of the host ended, and counts reboots, across restarts of
// the agent and boots without an agent.
//
// It owns the verdict on each reboot and the count. It reports only what the journal and the
// agent's own end prove.
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

// key is where the store keeps all of it.
const key = "reboots"

// Store keeps JSON values by key: *statefile.Values.
type Store interface {
	Load() (map[string][]byte, error)
	WriteNow(put map[string][]byte, remove []string) error
}

// Machine is what distinguishes one machine from another; empty where it is not known.
type Machine struct {
	ID   string `json:"id,omitempty"`   // machine-id(5)
	UUID string `json:"uuid,omitempty"` // of the hardware
}

// differs reports whether the two are known to be two machines.
func (m Machine) differs(o Machine) bool {
	return m.ID != "" && o.ID != "" && m.ID != o.ID || m.UUID != "" && o.UUID != "" && m.UUID != o.UUID
}

// Options are this boot, and the facts about the one before.
type Options struct {
	Boot    string // names it: the kernel's boot ID, and after an @ systemd's start where that is known
	Machine Machine
	// Began is when the kernel started by the wall clock, zero where that clock is
	// not to be believed.
	Began   time.Time
	Journal Journal
	Store   Store
	Now     func() time.Time // time.Now if nil
	Log     *slog.Logger
}

// Journal reports how the boot before this one ended: a *journal.Journal.
type Journal interface {
	LastBoot() *journal.Record
	Found() (another, read bool)
}

// ending is how the agent of a boot ended.
type ending string

const (
	runs      ending = ""           // it did not: it runs, or went down with all the host
	stopped   ending = "stopped"    // as a service that a person or an upgrade stops
	goingDown ending = "going-down" // because systemd went down
)

// kept is what outlives the agent.
type kept struct {
	Boot    string  `json:"boot"` // the last one that an agent saw
	Machine Machine `json:"machine"`
	Ended   ending  `json:"ended,omitempty"` // the agent of that boot
	Counts
	Last     *Reboot `json:"last,omitempty"`
	Reported bool    `json:"told"` // the fleet has heard of Last
}

// Counts are the reboots that an agent saw: boots in which none ran are not among
// them.
type Counts struct {
	Since      time.Time `json:"since"` // when counting began
	Expected   uint64    `json:"expected"`
	Unexpected uint64    `json:"unexpected"`
	Unknown    uint64    `json:"unknown"`
}

// Ledger counts reboots. It is safe for concurrent use.
type Ledger struct {
	o Options

	mu      sync.Mutex // guards what follows
	kept    kept
	settled bool // this boot is in it
	foreign bool // what the store and the journal hold is of another machine
}

// Open reads the stored ledger, and decides how this boot followed the one before if that is known
// already.
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

// Settle decides once how this boot followed the one before, and reports whether it has. A journal
// that cannot be read yet may have the answer later; with anyway it decides without the journal.
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
	case l.kept.Boot == "" && !another: // the first start ever, or of a state that was lost since the boot
		l.begin()
	default:
		l.count(judge(l.kept.Boot, l.kept.Ended, l.o))
	}
	l.settled, l.kept.Ended = true, runs
	l.write()
	return true
}

// begin starts to count.
func (l *Ledger) begin() {
	l.kept = kept{Boot: l.o.Boot, Machine: l.o.Machine, Counts: Counts{Since: l.o.Now().UTC().Truncate(time.Second)}}
}

// count takes a reboot in.
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

// write persists it at once, before the journal, which takes a second. Otherwise a boot that ends
// within seconds would be only in the journal, and be counted as an earlier boot.
func (l *Ledger) write() {
	value, err := json.Marshal(l.kept)
	if err == nil {
		err = l.o.Store.WriteNow(map[string][]byte{key: value}, nil)
	}
	if err != nil {
		l.o.Log.Warn("cannot persist reboot history", "error", err)
	}
}

// Ends notes that the agent ends, and whether that is because systemd
// goes down: the next boot judges by it where no journal reports it.
func (l *Ledger) Ends(systemStops bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settled {
		return // what is kept of the boot before is still to be judged
	}
	l.kept.Ended = stopped
	if systemStops {
		l.kept.Ended = goingDown
	}
	l.write()
}

// Unreported is the reboot that began this boot, if the fleet has not heard of it.
func (l *Ledger) Unreported() *Reboot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.settled || l.kept.Reported {
		return nil
	}
	return l.ofThisBoot()
}

// Reported notes that the fleet has heard of it, or will.
func (l *Ledger) Reported() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.settled && !l.kept.Reported {
		l.kept.Reported = true
		l.write()
	}
}

// Foreign reports whether what this start found was of another machine, whose disk
// this one has, or a copy of it.
func (l *Ledger) Foreign() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.foreign
}

// ofThisBoot is the reboot that began it; nil if none was seen.
func (l *Ledger) ofThisBoot() *Reboot {
	if r := l.kept.Last; r != nil && journal.SameBoot(l.kept.Boot, l.o.Boot) {
		clone := *r
		return &clone
	}
	return nil
}

// Status is what is known of this boot and of reboots.
type Status struct {
	BootID   string    `json:"bootID"` // the kernel's; a soft-reboot keeps it
	BootedAt time.Time `json:"bootedAt"`
	Counts
	// Last is how this boot came about; null where no agent saw a boot before.
	Last *Reboot `json:"last"`
}

// Status returns it, for a kernel that has run for uptime.
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

// Began is when this boot began to start services, for a kernel that has run for uptime. In a
// container, and after a soft-reboot, the kernel has run for longer.
func (l *Ledger) Began(uptime time.Duration) time.Time {
	if at, known := managerStart(l.o.Boot); known {
		return at
	}
	return l.o.Now().Add(-uptime)
}

// kernel is the kernel's boot ID in the name of a boot.
func kernel(boot string) string {
	id, _, _ := strings.Cut(boot, "@")
	return id
}

// managerStart is when systemd started, in the name of a boot.
func managerStart(boot string) (time.Time, bool) {
	_, text, found := strings.Cut(boot, "@")
	var seconds int64
	if n, err := fmt.Sscan(text, &seconds); !found || n != 1 || err != nil {
		return time.Time{}, false
	}
	return time.Unix(seconds, 0).UTC(), true
}
