package podman

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/local"
)

// toldUnits are what systemd tells of the units of containers.
type toldUnits struct {
	byName map[string]local.Unit // those that there are
	all    bool                  // it has told, or there is no systemd
	// serviceOf is in which service's cgroup a container's monitor is, by the container's ID.
	serviceOf map[string]string
}

// unitsBound is how long systemd may take to tell: a list of what runs does not depend on
// it, and while systemd reads its units anew it answers nobody.
const unitsBound = 2 * time.Second

// askUnits asks systemd about the units that containers name, or are in, and about Podman's
// own if that matters.
func (r *Runtime) askUnits(ctx context.Context, list []*container, known map[string]fact) toldUnits {
	told := toldUnits{all: true, serviceOf: map[string]string{}}
	if r.units == nil {
		return told
	}
	ask := map[string]bool{}
	for _, c := range list {
		for _, unit := range r.unitsOf(c) {
			ask[unit] = true
		}
		if known[c.ID].policy == policyAlways {
			ask[restartUnit] = true
		}
		if service := r.serviceWith(known[c.ID].monitor, c.ID); service != "" {
			told.serviceOf[c.ID], ask[service] = service, true
		}
	}
	if len(ask) == 0 {
		return told
	}
	patience := unitsBound
	if deadline, bounded := ctx.Deadline(); bounded {
		patience = min(patience, time.Until(deadline)/4)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	units, err := r.units.Units(ctx, slices.Sorted(maps.Keys(ask))...)
	if err != nil {
		r.log.Debug("systemd does not tell of containers' units", "error", err)
		r.changes.note() // the next list is to ask again
	}
	told.byName, told.all = units, err == nil
	for id, service := range told.serviceOf {
		if unit := units[service]; unit.Starts && unit.Main != known[id].monitor {
			r.changes.note() // no file tells when it has started
		}
	}
	return told
}

// unit names the unit by whose stop a container that runs is stopped, as stopUnit finds it then,
// and the most that it gives the container to end; nil for no limit.
func (r *Runtime) unit(c *container, f fact, told toldUnits) (name string, grace *time.Duration) {
	if c.state() != runtime.Running {
		return "", nil
	}
	own, pod, service := c.Labels[labelUnit], r.podUnits.get(c.podID()), told.serviceOf[c.ID]
	isMain := service != "" && told.byName[service].Main == f.monitor
	switch {
	case isMain && (own != "" || pod == ""), own != "" && own != pod && service == own:
		name = service
	case pod != "":
		name = pod
	}
	unit := told.byName[name]
	if !unit.Runs {
		return "", nil
	}
	return name, graceOf(unit, f.stopTimeout)
}

// graceOf is the most that a unit gives a container of its to end, by what the first of its
// commands does that has Podman stop it, and by when systemd itself kills; nil for no limit.
func graceOf(unit local.Unit, own *time.Duration) (grace *time.Duration) {
	limit := func(d time.Duration) {
		if grace == nil || d < *grace {
			grace = &d
		}
	}
	if unit.TimeoutStop > 0 {
		limit(unit.TimeoutStop)
	}
	for _, command := range unit.Stops {
		if said, stops := stopTime(command); stops {
			switch {
			case said == nil && own == nil:
				limit(defaultStopTimeout)
			case said == nil:
				limit(*own)
			case *said >= 0:
				limit(*said)
			}
			break
		}
	}
	return grace
}

// stopTime tells whether a command has Podman stop containers or pods, as those of Quadlet and
// of `podman generate systemd` do, and how long it says that they have before they are killed:
// nil for as long as each was created with, less than zero for ever.
func stopTime(command []string) (said *time.Duration, stops bool) {
	if len(command) == 0 || filepath.Base(command[0]) != "podman" {
		return nil, false
	}
	words := command[1:]
	if len(words) > 1 && slices.Contains([]string{"container", "pod", "kube"}, words[0]) {
		words = words[1:]
	}
	if len(words) == 0 || !slices.Contains([]string{"stop", "rm", "down"}, words[0]) {
		return nil, false
	}
	for i, word := range words {
		text, given := strings.CutPrefix(word, "--time=")
		switch {
		case given:
		case (word == "--time" || word == "-t") && i+1 < len(words):
			text = words[i+1]
		case strings.HasPrefix(word, "-t"):
			text = word[len("-t"):]
		}
		if seconds, err := strconv.ParseInt(text, 10, 32); err == nil && text != word {
			d := time.Duration(seconds) * time.Second
			return &d, true
		}
	}
	return nil, true
}
