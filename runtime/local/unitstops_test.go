package local

import (
	"testing"
	"time"
)

func TestTheStopOfAServiceIsHeldWhileItsLastContainersEnd(t *testing.T) {
	var u UnitStops
	const unit = "shop.service"
	started := time.Now().Add(-time.Hour)
	running := map[string]time.Time{"web": started, "db": started, "cache": started}
	var ends []bool
	begin := func(id string, grace time.Duration, last bool) (holdFor time.Duration) {
		t.Helper()
		holdFor, got := u.begin(unit, id, grace, running)
		if got != last {
			t.Errorf("begin(%s) = %t, want %t", id, got, last)
		} else if got {
			u.hold(unit, func(begin bool) { ends = append(ends, begin) })
		}
		return holdFor
	}
	finish := func(id string, ended, held, last bool) {
		t.Helper()
		got, end := u.finish(unit, id, ended)
		if got != held || (end != nil) != last {
			t.Errorf("finish(%s) = %t, ends the hold: %t, want %t, %t", id, got, end != nil, held, last)
		}
		if end != nil {
			end()
		}
	}
	begin("web", time.Minute, false)
	finish("web", true, false, false) // the list still has the container
	begin("db", 10*time.Minute, false)
	if holdFor := begin("cache", time.Minute, true); holdFor < 9*time.Minute {
		t.Errorf("the stop is held for %v, want as long as the longest grace of the stops in progress", holdFor)
	}
	finish("cache", true, true, false)
	if len(ends) > 0 {
		t.Error("the hold ended before the last container")
	}
	finish("db", true, true, true)
	if len(ends) != 1 || !ends[0] {
		t.Errorf("the hold ended with %v, want once, with the stop of the service", ends)
	}

	// A container that does not end cancels the stop of the service.
	running = map[string]time.Time{"web": time.Now(), "db": time.Now()}
	begin("web", time.Minute, false)
	begin("db", time.Minute, true)
	finish("web", false, true, false)
	finish("db", true, true, true)
	if len(ends) != 2 || ends[1] {
		t.Errorf("the hold ended with %v, want the stop withdrawn", ends)
	}

	// If it ends at a second attempt, the stop is not cancelled, whether or not there was a hold by
	// then.
	begin("web", time.Minute, false)
	finish("web", false, false, false)
	if _, last := u.begin(unit, "db", time.Minute, running); last {
		t.Error("begin(db) while web runs on is the last one, want it not")
	}
	begin("web", time.Minute, true)
	finish("web", true, true, false)
	finish("db", true, true, true)
	if len(ends) != 3 || !ends[2] {
		t.Errorf("the hold ended with %v, want the stop of the service", ends)
	}

	// A container that did not end in an earlier drain, and is gone since, cancels nothing.
	begin("web", time.Minute, false)
	finish("web", false, false, false)
	delete(running, "web")
	begin("db", time.Minute, true)
	finish("db", true, true, true)
	if len(ends) != 4 || !ends[3] {
		t.Errorf("the hold ended with %v, want the stop of the service", ends)
	}
	running["web"] = time.Now()

	// A container that was started again counts as running.
	begin("web", time.Minute, false)
	finish("web", true, false, false)
	running["web"] = time.Now().Add(time.Second)
	begin("db", time.Minute, false)
}
