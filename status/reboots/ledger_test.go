package reboots_test

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/shutdown/journal"
	"hostler.io/hostler/status/reboots"
)

var (
	discard = slog.New(slog.DiscardHandler)
	noon    = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
)

// shelf is a store in memory.
type shelf struct {
	values map[string][]byte
	err    error
}

func (s *shelf) Load() (map[string][]byte, error) { return maps.Clone(s.values), s.err }

func (s *shelf) WriteNow(put map[string][]byte, remove []string) error {
	if s.values == nil {
		s.values = map[string][]byte{}
	}
	for _, key := range remove {
		delete(s.values, key)
	}
	maps.Copy(s.values, put)
	return s.err
}

// left is the content of a journal.
type left struct {
	last          *journal.Record
	another, read bool
}

func (l left) LastBoot() *journal.Record   { return l.last }
func (l left) Found() (another, read bool) { return l.another, l.read }

var nothing = left{read: true}

// drained returns a journal of a boot that ended in a reboot.
func drained(boot string, change func(*journal.Record)) left {
	r := &journal.Record{
		BootID: boot, Trigger: journal.TriggerShutdown, Kind: "reboot", Graceful: true,
		StartedAt: noon.Add(-12345 * time.Millisecond), FinishedAt: noon,
	}
	if change != nil {
		change(r)
	}
	return left{last: r, another: true, read: true}
}

// start starts an agent in a boot that began at that time.
func start(store *shelf, boot string, j left, began time.Time) *reboots.Ledger {
	return reboots.Open(reboots.Options{
		Boot: boot, Machine: reboots.Machine{ID: "m"}, Began: began, Journal: j, Store: store,
		Now: func() time.Time { return noon.Add(time.Hour) }, Log: discard,
	})
}

func TestStatusReportsTheLastReboot(t *testing.T) {
	const before = "one@100"
	back := noon.Add(100 * time.Second)
	goesDown := func(l *reboots.Ledger) { l.Ends(true) }
	stops := func(l *reboots.Ledger) { l.Ends(false) }
	dies := func(*reboots.Ledger) {}
	for name, c := range map[string]struct {
		ends  func(*reboots.Ledger) // the end of the previous boot's agent
		boot  string
		left  left
		began time.Time
		want  string // empty for no reboot
		good  bool
	}{
		"a reboot that logind announced": {
			goesDown, "two@200", drained(before, nil), back,
			"expected (reboot announced by logind), graceful, pods were stopped in 12.345s, this boot started 1m40s later by the host's clock", true,
		},
		"a kind that systemd does not report": {
			goesDown, "two@200", drained(before, func(r *journal.Record) { r.Kind = "" }),
			time.Time{},
			"expected (announced by logind), graceful, pods were stopped in 12.345s", true,
		},
		"a clock that was set back in between": {
			goesDown, "two@200", drained(before, nil), noon.Add(-time.Hour),
			"expected (reboot announced by logind), graceful, pods were stopped in 12.345s", true,
		},
		"a shutdown past logind that left a pod running": {
			goesDown, "two@200", drained(before, func(r *journal.Record) { r.Kind, r.Trigger, r.Graceful = "", journal.TriggerServiceStop, false }),
			time.Time{},
			"expected (by systemd, without logind notification), not graceful, pods were stopped in 12.345s", false,
		},
		"power that went in the middle of a drain": {
			dies, "two@200", drained(before, func(r *journal.Record) {
				r.FinishedAt, r.Graceful, r.Error = time.Time{}, false, "the host went down during the drain"
			}), back,
			"expected (reboot announced by logind), not graceful: the host went down during the drain", false,
		},
		"a power cut": {
			dies, "two@200", drained(before, func(r *journal.Record) {
				*r = journal.Record{BootID: before, Trigger: journal.TriggerUnknown, Error: "the host went down without a drain"}
			}), back,
			"unexpected (such as power loss, kernel panic or forced reboot), not graceful: the host went down without a drain", false,
		},
		"a soft-reboot": {
			goesDown, "one@1795176100", drained(before, func(r *journal.Record) { r.Kind = "soft-reboot" }), noon.Add(-time.Hour),
			"expected (soft-reboot announced by logind), graceful, pods were stopped in 12.345s, this boot started 1m40s later by the host's clock", true,
		},
		"a shutdown that another program guarded": {
			goesDown, "two@200", nothing, back,
			"expected (by systemd), hostler did not stop the pods", true,
		},
		"a power cut while nobody guarded the shutdown": {
			dies, "two@200", nothing, back,
			"unexpected (such as power loss, kernel panic or forced reboot): the host went down while the agent was running", false,
		},
		"an agent that was stopped before the host": {
			stops, "two@200", nothing, back,
			"not known whether expected: no agent saw how the previous boot ended", false,
		},
		"a journal of a boot before that one": {
			stops, "three@300", drained("zero@10", nil), back,
			"not known whether expected: no agent saw how the previous boot ended", false,
		},
		"an agent that starts again":                            {stops, before, nothing, back, "", true},
		"an agent that died and starts again":                   {dies, before, nothing, back, "", true},
		"a service manager that does not report its start now":  {dies, "one", nothing, back, "", true},
		"a restart of the service manager that logs of nothing": {dies, "one@1763640100", nothing, back, "unexpected (forced, without a reboot of the kernel): the host went down while the agent was running", false},
	} {
		t.Run(name, func(t *testing.T) {
			store := &shelf{}
			first := start(store, before, nothing, noon)
			if r := first.Unreported(); r != nil {
				t.Fatalf("the first start ever reports %v, want no reboot", r)
			}
			c.ends(first)
			l := start(store, c.boot, c.left, c.began)
			r := l.Unreported()
			if r == nil {
				if c.want != "" {
					t.Errorf("no reboot is reported, want %s", c.want)
				}
				return
			}
			if r.String() != c.want || r.Good() != c.good {
				t.Errorf("Unreported() = %v, good: %v, want %s", r, r.Good(), c.want)
			}
			if id, _, _ := strings.Cut(c.boot, "@"); r.BootID != id || l.Status(0).BootID != id {
				t.Errorf("boot ID = %s, %s, want the kernel's", r.BootID, l.Status(0).BootID)
			}
		})
	}
}

func TestReboots(t *testing.T) {
	store := &shelf{}
	start(store, "one", nothing, noon).Ends(false)
	counts := func(when string, l *reboots.Ledger, expected, unexpected, unknown uint64) {
		t.Helper()
		want := reboots.Counts{Since: noon.Add(time.Hour), Expected: expected, Unexpected: unexpected, Unknown: unknown}
		if got := l.Status(0).Counts; got != want {
			t.Errorf("%s there are %+v reboots, want %+v", when, got, want)
		}
	}
	l := start(store, "two", nothing, noon)
	counts("after an end that nobody saw", l, 0, 0, 1)
	l.Ends(true)
	for range 3 { // agents in the same boot; the first is killed
		l = start(store, "three", drained("two", nil), noon)
		counts("after a reboot", l, 1, 0, 1)
		if l.Unreported() == nil {
			t.Error("a reboot without a report is not reported")
		}
	}
	l.Reported()
	l = start(store, "three", nothing, noon)
	if r := l.Unreported(); r != nil {
		t.Errorf("a reported reboot is reported again: %v", r)
	}
	if r := l.Status(0).Last; r == nil || r.Verdict != reboots.Expected {
		t.Errorf("Status().Last = %v, want how this boot came about", r)
	}
	l = start(store, "four", nothing, noon)
	counts("after a power cut", l, 1, 1, 1)
}

func TestUnknownFactsAreNotReported(t *testing.T) {
	known := &shelf{}
	start(known, "one", nothing, noon)
	other := func(store *shelf, j left) *reboots.Ledger {
		return reboots.Open(reboots.Options{Boot: "two", Machine: reboots.Machine{ID: "m", UUID: "other"}, Journal: j, Store: store, Log: discard})
	}
	original := &shelf{}
	reboots.Open(reboots.Options{Boot: "one", Machine: reboots.Machine{ID: "m", UUID: "this"}, Journal: nothing, Store: original, Log: discard})
	for name, c := range map[string]struct {
		ledger   *reboots.Ledger
		foreign  bool
		reported bool
	}{
		"the first start ever":                                    {start(&shelf{}, "one", nothing, noon), false, false},
		"a state that was lost, with a journal":                   {start(&shelf{}, "two", drained("one", nil), noon), false, true},
		"a state that was lost since the boot":                    {start(&shelf{}, "two", left{last: drained("one", nil).last, read: true}, noon), false, false},
		"a state that cannot be read":                             {start(&shelf{err: errors.New("input/output error")}, "two", nothing, noon), false, false},
		"a state that says something else":                        {start(&shelf{values: map[string][]byte{"reboots": []byte("{")}}, "two", nothing, noon), false, false},
		"the disk of another machine, or a copy of it":            {other(original, drained("one", nil)), true, false},
		"a machine whose hardware was not known before, rebooted": {other(known, drained("one", nil)), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if r := c.ledger.Unreported(); (r != nil) != c.reported || c.ledger.Foreign() != c.foreign {
				t.Errorf("Unreported() = %v, foreign: %v, want reported: %v, foreign: %v", r, c.ledger.Foreign(), c.reported, c.foreign)
			}
		})
	}
}

func TestSettleWaitsForTheJournal(t *testing.T) {
	store := &shelf{}
	start(store, "one", nothing, noon).Ends(false)
	j := &left{}
	var log bytes.Buffer
	l := reboots.Open(reboots.Options{Boot: "two", Journal: j, Store: store, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if l.Settle(false) || l.Unreported() != nil {
		t.Fatal("a reboot is judged without the journal")
	}
	l.Ends(true) // the unsettled state stays
	if l = start(&shelf{values: maps.Clone(store.values)}, "two", left{}, noon); !l.Settle(true) || l.Unreported() == nil || l.Unreported().Verdict != reboots.Unknown {
		t.Errorf("Unreported() = %v, want it judged by the end of the agent in the boot before", l.Unreported())
	}
	l = reboots.Open(reboots.Options{Boot: "two", Journal: j, Store: store, Log: slog.New(slog.NewTextHandler(&log, nil))})
	*j = drained("one", nil)
	if !l.Settle(false) || l.Unreported() == nil || l.Unreported().Kind != "reboot" {
		t.Errorf("Unreported() = %v, want it judged by the journal", l.Unreported())
	}
	if !l.Settle(true) || strings.Count(log.String(), "host rebooted") != 1 {
		t.Errorf("log = %s, want it reported once", &log)
	}

	l = start(store, "three", left{}, noon)
	if !l.Settle(true) || l.Unreported() == nil || l.Unreported().Verdict != reboots.Unexpected {
		t.Errorf("Unreported() = %v, want it judged by the agent's end", l.Unreported())
	}
}

func TestWhenThisBootBegan(t *testing.T) {
	store := &shelf{}
	l := start(store, "one@1763640000", nothing, noon)
	if s := l.Status(2 * time.Hour); s.BootedAt != noon.Add(-time.Hour) || s.BootID != "one" || s.Last != nil {
		t.Errorf("Status() = %+v, want that it began as the kernel did", s)
	}
	l = start(store, "one@1763640100", drained("one@1763640000", nil), noon)
	if s := l.Status(2 * time.Hour); s.BootedAt.Unix() != 1763640100 || !s.Last.SameKernel {
		t.Errorf("Status() = %+v, want that it began with the service manager", s)
	}
}
