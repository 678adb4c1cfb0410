package journal

import (
	"maps"
	"slices"
	"time"
)

// ContainerRecord is one container in a pod's record: what the next process needs to continue the
// drain, and the next boot to start the container again.
type ContainerRecord struct {
	ID   string
	Name string // in JSON only if Restartable

	// Requested reports that the record has the container's own stop request. RequestedAt is
	// then when the stop signal was requested, and zero as long as it was not.
	Requested   bool
	RequestedAt time.Time
	// Restartable reports that the container may be started again, or that it stops after
	// others. JSON has its request in "asked", and else in "late".
	Restartable bool

	// StartedAt is when the run began that was to end, if a runtime reports it; of a container
	// that runs once, and whose name another one may take, when it was created.
	StartedAt time.Time
	// Restarting reports that it had ended when its stop was requested, and that its restart
	// policy was about to start it.
	Restarting bool
	// ByUnit reports that its systemd unit starts it again.
	ByUnit bool
	// NotRestarted is the name of its runtime.Restart if nobody starts it again: see StaysStopped.
	NotRestarted string
	// StopSignal is the signal to stop it by without its runtime; empty if it is not known.
	StopSignal string
}

// ContainerMaps is how JSON has the containers of a pod: a map or a list for each fact. The
// keys are a promise to other versions and to readers of the API.
type ContainerMaps struct {
	// Asked has the RequestedAt of those that are Restartable, by ID.
	Asked map[string]time.Time `json:"asked,omitempty"`
	// Late has the RequestedAt of the others.
	Late map[string]time.Time `json:"late,omitempty"`
	// Runs are the StartedAt of those of Asked.
	Runs map[string]time.Time `json:"runs,omitempty"`
	// Names are those of Asked.
	Names map[string]string `json:"names,omitempty"`
	// Restarting and ByUnit are IDs.
	Restarting []string `json:"restarting,omitempty"`
	ByUnit     []string `json:"byUnit,omitempty"`
	// NotRestarted are the names of their runtime.Restart, by ID.
	NotRestarted map[string]string `json:"notRestarted,omitempty"`
	// Signals are the stop signals, by ID.
	Signals map[string]string `json:"signals,omitempty"`
}

// Containers are the containers that the maps know, by ID. If earlier versions have written a
// container into both Asked and Late, Asked is later.
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

// Add writes a container into the maps, which must not be shared with a record that was handed
// out.
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
