package journal

import (
	"maps"
	"slices"
	"time"
)

// ContainerRecord is one container in a pod's record. The next process needs it to continue the
// drain, and the next boot to start the container again.
type ContainerRecord struct {
	ID   string
	Name string // in JSON only if Restartable

	// Requested reports that the record has a stop request of this container. RequestedAt is when
	// the stop signal was requested; zero if it has not been requested yet.
	Requested   bool
	RequestedAt time.Time
	// Restartable reports that the container may be started again, or that it stops after others.
	// In JSON, its request is in "asked", otherwise in "late".
	Restartable bool

	// StartedAt is when the stopped run began, if a runtime reports it. If the container runs only
	// once and another container may reuse its name, it is the time of creation.
	StartedAt time.Time
	// Restarting reports that the container had already exited when its stop was requested, and
	// that its restart policy was about to start it.
	Restarting bool
	// ByUnit reports that its systemd unit starts it again.
	ByUnit bool
	// NotRestarted is the name of its runtime.Restart if nothing starts it again; see StaysStopped.
	NotRestarted string
	// StopSignal is used to stop the container without its runtime; empty if unknown.
	StopSignal string
}

// ContainerMaps is the JSON format of a pod's containers: a map or a list for each property. The
// keys must not change: other versions and API clients read them.
type ContainerMaps struct {
	// Asked has the RequestedAt of Restartable containers, by ID.
	Asked map[string]time.Time `json:"asked,omitempty"`
	// Late has the RequestedAt of other containers.
	Late map[string]time.Time `json:"late,omitempty"`
	// Runs has the StartedAt of containers, by ID.
	Runs map[string]time.Time `json:"runs,omitempty"`
	// Names has the names of Restartable containers.
	Names map[string]string `json:"names,omitempty"`
	// Restarting and ByUnit have IDs.
	Restarting []string `json:"restarting,omitempty"`
	ByUnit     []string `json:"byUnit,omitempty"`
	// NotRestarted has the names of runtime.Restart, by ID.
	NotRestarted map[string]string `json:"notRestarted,omitempty"`
	// Signals has the stop signals, by ID.
	Signals map[string]string `json:"signals,omitempty"`
}

// Containers returns the containers in the maps, sorted by ID. If an earlier version wrote a
// container to both Asked and Late, Asked is the later request.
func (m ContainerMaps) Containers() []ContainerRecord {
	known := map[string]*ContainerRecord{}
	of := func(id string) *ContainerRecord {
		if known[id] == nil {
			known[id] = &ContainerRecord{ID: id}
		}
		return known[id]
	}
	for id, at := range m.Late {
		c := of(id)
		c.Requested, c.RequestedAt = true, at
	}
	for id, at := range m.Asked {
		c := of(id)
		c.Requested, c.RequestedAt, c.Restartable = true, at, true
	}
	for id, at := range m.Runs {
		of(id).StartedAt = at
	}
	for id, name := range m.Names {
		of(id).Name = name
	}
	for _, id := range m.Restarting {
		of(id).Restarting = true
	}
	for _, id := range m.ByUnit {
		of(id).ByUnit = true
	}
	for id, restart := range m.NotRestarted {
		of(id).NotRestarted = restart
	}
	for id, signal := range m.Signals {
		of(id).StopSignal = signal
	}
	list := make([]ContainerRecord, 0, len(known))
	for _, id := range slices.Sorted(maps.Keys(known)) {
		list = append(list, *known[id])
	}
	return list
}

// Add adds a container to the maps. The maps must not be shared with a published record.
func (m *ContainerMaps) Add(c ContainerRecord) {
	switch {
	case c.Requested && c.Restartable:
		put(&m.Asked, c.ID, c.RequestedAt)
	case c.Requested:
		put(&m.Late, c.ID, c.RequestedAt)
	}
	if !c.StartedAt.IsZero() {
		put(&m.Runs, c.ID, c.StartedAt)
	}
	if c.Restartable && c.Name != "" {
		put(&m.Names, c.ID, c.Name)
	}
	if c.Restarting {
		m.Restarting = append(m.Restarting, c.ID)
	}
	if c.ByUnit {
		m.ByUnit = append(m.ByUnit, c.ID)
	}
	if c.NotRestarted != "" {
		put(&m.NotRestarted, c.ID, c.NotRestarted)
	}
	if c.StopSignal != "" {
		put(&m.Signals, c.ID, c.StopSignal)
	}
}

func put[V any](m *map[string]V, id string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[id] = value
}
