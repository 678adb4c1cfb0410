package systemdtest

import (
	"maps"
	"path"
	"slices"
	"strings"

	systemdbus "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// ManagerState is the state that a manager reports. The zero value is a system without a shutdown.
type ManagerState struct {
	SystemState    string // "running", "starting", "stopping", ...
	ShutdownLoaded bool   // whether shutdown.target is loaded
	ShutdownState  string // its ActiveState
	ShutdownJob    uint32 // its job, or 0
	StartedAtUsec  uint64 // UserspaceTimestamp
	Service        ServiceState
	Units          map[string]UnitState // further units, by name
}

// ListedJob is a key of UnitState: the type of the unit's job in lists, such as "start".
const ListedJob = "listed job"

// UnitState has properties of a unit. By default it is loaded and inactive.
type UnitState map[string]any

// ServiceState is the state of a service other than logind's, if it has a name.
type ServiceState struct {
	Name        string
	ActiveState string
	Job         string // type of the queued job, such as "start", or ""
	MainPID     uint32
	Members     []uint32 // processes in its cgroup
}

// serviceJob is the number of the job in ServiceState.
const serviceJob = 7

// SetUnit adds a unit to the manager. By default it is loaded and active.
func (m *Manager) SetUnit(name string, properties map[string]any) {
	unit := UnitState{"ActiveState": "active", "SubState": "running"}
	maps.Copy(unit, properties)
	m.mu.Lock()
	defer m.mu.Unlock()
	units := map[string]UnitState{name: unit}
	for other, state := range m.state.Units {
		if other != name {
			units[other] = state
		}
	}
	m.state.Units = units // a copy, because the map may belong to a test
}

// units returns the loaded units. The caller holds mu.
func (m *Manager) units() map[string]UnitState {
	s := m.state
	all := map[string]UnitState{logindUnit: {"ActiveState": "active", "CanReload": m.options.CanReload}}
	if s.ShutdownLoaded {
		all["shutdown.target"] = UnitState{"ActiveState": s.ShutdownState, "Job": queued(s.ShutdownJob)}
	}
	maps.Copy(all, s.Units)
	if name := s.Service.Name; name != "" {
		unit := UnitState{}
		maps.Copy(unit, all[name])
		unit["ActiveState"], unit["MainPID"] = s.Service.ActiveState, s.Service.MainPID
		if s.Service.Job != "" {
			unit["Job"] = queued(serviceJob)
		}
		all[name] = unit
	}
	return all
}

// Command is an element of properties such as ExecStop, see org.freedesktop.systemd1(5).
type Command struct {
	Path                      string
	Arguments                 []string
	IgnoreFailure             bool
	Started, StartedMonotonic uint64
	Ended, EndedMonotonic     uint64
	PID                       uint32
	Code, Status              int32
}

// queued returns a unit's property Job; 0 means no job.
func queued(id uint32) any {
	at := dbus.ObjectPath("/")
	if id != 0 {
		at = jobPath(id)
	}
	return struct {
		ID   uint32
		Path dbus.ObjectPath
	}{id, at}
}

// unitPath returns the object of a unit.
func unitPath(name string) dbus.ObjectPath {
	return systemdPath + "/unit/" + dbus.ObjectPath(systemdbus.PathBusEscape(name))
}

// properties returns all properties of a unit, with defaults.
func (u UnitState) properties(name string) map[string]any {
	all := map[string]any{
		"Id": name, "Names": []string{name}, "LoadState": "loaded", "ActiveState": "inactive", "SubState": "dead",
		"CanStart": true, "Before": []string{}, "After": []string{}, "Job": queued(0),
	}
	maps.Copy(all, u)
	return all
}

// find returns the object at a path. Like systemd, it loads any unit; for a missing one, the
// properties say "not-found".
func (m *Manager) find(at dbus.ObjectPath) (object, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case at == systemdPath:
		return m.manager(), true
	case at == jobPath(serviceJob):
		return object{systemdError + "Job": iface{properties: read(map[string]any{"JobType": m.state.Service.Job})}}, true
	case !strings.HasPrefix(string(at), string(systemdPath)+"/unit/"):
		return nil, false
	}
	values := UnitState{"LoadState": "not-found", "CanStart": false}.properties("")
	for name, state := range m.units() {
		if unitPath(name) == at {
			values = state.properties(name)
		}
	}
	found := object{}
	if _, service := values["MainPID"]; service {
		of := map[string]any{"ExecStop": []Command{}, "ExecStopPost": []Command{}}
		for _, property := range []string{"MainPID", "ExecStop", "ExecStopPost"} {
			if value, set := values[property]; set {
				of[property] = value
				delete(values, property)
			}
		}
		found[systemdError+"Service"] = iface{properties: read(of)}
	}
	if starts, timer := values["Unit"]; timer {
		found[systemdError+"Timer"] = iface{properties: read(map[string]any{"Unit": starts})}
		delete(values, "Unit")
	}
	found[systemdError+"Unit"] = iface{properties: read(values)}
	return found, true
}

// read returns properties with constant values.
func read(values map[string]any) map[string]func() any {
	properties := map[string]func() any{}
	for name, value := range values {
		properties[name] = func() any { return value }
	}
	return properties
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

func (m *Manager) listUnits(args []any) ([]any, *dbus.Error) {
	states, patterns := args[0].([]string), args[1].([]string)
	m.mu.Lock()
	defer m.mu.Unlock()
	list, units := []listed{}, m.units()
	for _, name := range slices.Sorted(maps.Keys(units)) {
		values := units[name].properties(name)
		matches := func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }
		if active := values["ActiveState"].(string); (len(states) == 0 || slices.Contains(states, active)) && slices.ContainsFunc(patterns, matches) {
			unit := listed{Name: name, LoadState: values["LoadState"].(string), ActiveState: active, SubState: values["SubState"].(string), Path: unitPath(name), JobPath: "/"}
			if kind, has := values[ListedJob].(string); has {
				unit.JobID, unit.JobType, unit.JobPath = serviceJob, kind, jobPath(serviceJob)
			}
			list = append(list, unit)
		}
	}
	return []any{list}, nil
}
