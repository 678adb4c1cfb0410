package local_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"hostler.io/hostler/runtime/local"
)

// downing is a service manager of a host that goes down, or does not.
type downing bool

func (d downing) StopUnit(context.Context, string, int) (bool, error) { return false, nil }
func (d downing) UnitStops(context.Context, string) (bool, error)     { return true, nil }
func (d downing) UnitsAtBoot(context.Context, ...string) (map[string]bool, error) {
	return nil, nil
}
func (d downing) Stopping(context.Context) (bool, error) { return bool(d), nil }

// A service that is started calls off a shutdown.
func TestWhoLooksForRuntimesStartsNoneDuringAShutdown(t *testing.T) {
	dir, err := os.MkdirTemp("", "local")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "a.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, c := range map[string]struct {
		holders []int
		wakes   bool
		units   local.Units
		asked   bool
	}{
		"it sleeps, and is meant to be woken":       {[]int{1}, true, downing(false), true},
		"it sleeps, without a service manager":      {[]int{1}, true, nil, true},
		"it sleeps while the host goes down":        {[]int{1}, true, downing(true), false},
		"it is awake while the host goes down":      {[]int{1, 12}, true, downing(true), true},
		"it sleeps, and is not meant to be woken":   {[]int{1}, false, downing(false), false},
		"it is a daemon, while the host goes down":  {[]int{12}, false, downing(true), true},
		"it is awake, and nobody tells of the host": {[]int{1, 12}, true, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			asked := false
			found := local.DetectIn(t.Context(), proc(t, path, c.holders...), []local.Candidate{{Path: path, Wakes: c.wakes}}, c.units, func(context.Context, local.Candidate) (string, string, error) {
				asked = true
				return "", "", nil
			})
			if len(found) != 1 || asked != c.asked || found[0].Listens != c.asked || found[0].Asleep == c.asked || (found[0].Err == nil) != c.asked {
				t.Errorf("Detect() = %+v and asked: %t, want that to be %t, and who is not asked asleep and not connected to", found, asked, c.asked)
			}
		})
	}
}
