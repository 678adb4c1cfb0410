package systemdtest

import (
	"maps"
	"path"
	"slices"
	"strings"

	systemdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// unitPath is the object of a unit.
func unitPath(name string) dbus.ObjectPath {
	return systemdPath + "/unit/" + dbus.ObjectPath(systemdbus.PathBusEscape(name))
}

// properties are those of a unit as they are where nobody has said otherwise.
func (u UnitState) properties() map[string]any {
	all := map[string]any{"LoadState": "loaded", "ActiveState": "inactive", "CanStart": true, "Before": []string{}, "After": []string{}}
	maps.Copy(all, u)
	return all
}

// unit is the object of any unit: systemd loads what it is asked of, and has that it is not
// found where there is none.
func (m *systemd1) unit(at dbus.ObjectPath) (object, bool) {
	if !strings.HasPrefix(string(at), string(systemdPath)+"/unit/") {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	values := UnitState{"LoadState": "not-found"}.properties()
	for name, state := range m.state.Units {
		if unitPath(name) == at {
			values = state.properties()
		}
	}
	properties := map[string]func() any{}
	for name, value := range values {
		properties[name] = func() any { return value }
	}
	return object{systemdUnit: iface{properties: properties}}, true
}

// listed is a unit in a list, field by field.
type listed struct {
	Name, Description                string
	LoadState, ActiveState, SubState string
	Following                        string
	Path                             dbus.ObjectPath
	JobID                            uint32
	JobType                          string
	JobPath                          dbus.ObjectPath
}

func (m *systemd1) listUnits(args []any) ([]any, *dbus.Error) {
	states, patterns := args[0].([]string), args[1].([]string)
	m.mu.Lock()
	defer m.mu.Unlock()
	list := []listed{}
	for _, name := range slices.Sorted(maps.Keys(m.state.Units)) {
		values := m.state.Units[name].properties()
		matches := func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }
		if active := values["ActiveState"].(string); slices.Contains(states, active) && slices.ContainsFunc(patterns, matches) {
			list = append(list, listed{Name: name, LoadState: values["LoadState"].(string), ActiveState: active, Path: unitPath(name), JobPath: "/"})
		}
	}
	return []any{list}, nil
}
