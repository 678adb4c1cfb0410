package lab

import (
	"maps"
	"path"
	"slices"

	"github.com/godbus/dbus/v5"
)

// listedUnit is one entry of ListUnitsByPatterns.
type listedUnit struct {
	Name, Description                         string
	LoadState, ActiveState, SubState, Follows string
	Path                                      dbus.ObjectPath
	JobID                                     uint32
	JobType                                   string
	JobPath                                   dbus.ObjectPath
}

func (s *Systemd1) listUnits(states, patterns []string) ([]listedUnit, *dbus.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	units := []listedUnit{}
	for _, name := range slices.Sorted(maps.Keys(s.units)) {
		text := func(property string) string { v, _ := s.units[name][property].Value().(string); return v }
		fits := slices.ContainsFunc(patterns, func(p string) bool { ok, err := path.Match(p, name); return ok && err == nil })
		if fits && slices.Contains(states, text("ActiveState")) {
			units = append(units, listedUnit{Name: name, LoadState: text("LoadState"), ActiveState: text("ActiveState"), SubState: text("SubState"), Path: unitPath(name), JobPath: "/"})
		}
	}
	return units, nil
}
