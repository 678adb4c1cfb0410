package podman

import (
	"cmp"
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
	byName   map[string]local.Unit // those that there are
	answered bool                  // or there is no systemd
	// serviceOf is in which service's cgroup a container's monitor is, by the container's ID.
	serviceOf map[string]string
}

// unitsBound is how long systemd may take to tell: a list of what runs does not depend on
// it, and while systemd reads its units anew it answers nobody.
const unitsBound = 2 * time.Second

// askUnits asks systemd about the units that containers name, or are in, and about Podman's
// own if that matters.
func (r *Runtime) askUnits(ctx context.Context, list []*container, known map[string]fact) toldUnits {
	told := toldUnits{answered: true, serviceOf: map[string]string{}}
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
	told.byName, told.answered = units, err == nil
	for id, service := range told.serviceOf {
		if unit := units[service]; unit.Starts && !unit.Oneshot && unit.Main != known[id].monitor {
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
	return name, graceOf(unit, isMain && name == service, f.stopTimeout)
}

// graceOf is the most that a unit gives a container of its to end; nil for no limit. The command
// of Podman's that stops it says. What takes longer than its TimeoutStop, systemd ends itself, and
// kills it after as long again. It runs no command that stops what is still being started, and ends
// itself a oneshot, and the main process where no command stops that: the others hear of their end
// by what is run after it.
func graceOf(unit local.Unit, isMain bool, own *time.Duration) *time.Duration {
	commands, most := unit.StopPost, 2*unit.TimeoutStop
	switch {
	case len(unit.Stop) > 0 && !unit.Starts:
		commands, most = unit.Stop, time.Duration(len(unit.Stop)+1)*unit.TimeoutStop // each has as long
	case unit.Oneshot, isMain:
		commands, most = nil, unit.TimeoutStop
	}
	if len(commands) > 0 { // how long another one takes before Podman's, nobody knows
		if said, stops := stopTime(commands[0]); stops {
			// Less than zero never kills, and one that is given up does not either.
			if d := *cmp.Or(said, own, new(defaultStopTimeout)); d >= 0 && (unit.TimeoutStop == 0 || d <= unit.TimeoutStop) {
				return &d
			}
		}
	}
	if most == 0 {
		return nil
	}
	return &most
}

// stopTime tells whether a command has Podman stop containers or pods, as those of Quadlet and
// of `podman generate systemd` do, and how long it says that they have before they are killed:
// nil for as long as each was created with, less than zero for ever.
func stopTime(command []string) (said *time.Duration, stops bool) {
	if len(command) == 0 || filepath.Base(command[0]) != "podman" {
		return nil, false
	}
	words := command[1:]
	if !stopsAny(words) {
		return nil, false
	}
	for i, word := range words {
		flag, text, joined := strings.Cut(word, "=")
		switch {
		case flag != "-t" && flag != "--time" && flag != "--timeout":
			if strings.HasPrefix(word, "--") || !strings.HasPrefix(word, "-t") {
				continue
			}
			text = word[len("-t"):]
		case !joined && i+1 < len(words):
			text = words[i+1]
		}
		if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
			return new(time.Duration(seconds) * time.Second), true
		}
	}
	return nil, true
}

// stopsAny tells whether the words after `podman` make it stop something: `[flags] [container|pod]
// stop|rm`, or `[flags] kube down`, which was `play kube --down` once. A word after a flag may
// be its value.
func stopsAny(words []string) bool {
	for i, word := range words {
		switch {
		case slices.Contains([]string{"stop", "rm", "down"}, word):
			return true
		case word == "play":
			return slices.Contains(words[i:], "--down")
		case slices.Contains([]string{"exec", "run", "start"}, word):
			return false
		case slices.Contains([]string{"container", "pod", "kube"}, word), strings.HasPrefix(word, "-"), i > 0 && strings.HasPrefix(words[i-1], "-"):
		default:
			return false
		}
	}
	return false
}
