package docker

import (
	"testing"
	"time"
)

func TestTheStopOfAServiceIsHeldWhileItsLastContainersEnd(t *testing.T) {
	var u unitStops
	begun := time.Now().Add(-time.Hour)
	running := map[string]time.Time{"web": begun, "db": begun, "cache": begun}
	var ends []bool
	begin := func(id string, last bool) {
		t.Helper()
		if got := u.begin("shop.service", id, running); got != last {
			t.Errorf("begin(%s) = %t, want %t", id, got, last)
		} else if got {
			u.hold("shop.service", func(begin bool) { ends = append(ends, begin) })
		}
	}
	finish := func(id string, ended, held, last bool) {
		t.Helper()
		got, end := u.finish("shop.service", ended)
		if got != held || (end != nil) != last {
			t.Errorf("finish(%s) = %t, ends the hold: %t, want %t, %t", id, got, end != nil, held, last)
		}
		if end != nil {
			end()
		}
	}
	begin("web", false)
	finish("web", true, false, false) // the list still has it
	begin("db", false)
	begin("cache", true)
	finish("cache", true, true, false)
	if len(ends) > 0 {
		t.Error("the hold ended before the last container")
	}
	finish("db", true, true, true)
	if len(ends) != 1 || !ends[0] {
		t.Errorf("the hold ended with %v, want once, with the stop of the service", ends)
	}

	// One that does not end takes the service's stop back.
	running = map[string]time.Time{"web": time.Now(), "db": time.Now()}
	begin("web", false)
	begin("db", true)
	finish("web", false, true, false)
	finish("db", true, true, true)
	if len(ends) != 2 || ends[1] {
		t.Errorf("the hold ended with %v, want the stop withdrawn", ends)
	}

	// One that was started again counts as running.
	begin("web", false)
	finish("web", true, false, false)
	running["web"] = time.Now().Add(time.Second)
	begin("db", false)
}
