package podman

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hostler.io/hostler/internal/trust"
	"hostler.io/hostler/runtime"
	"hostler.io/hostler/runtime/docker/engine"
)

// labelUnit names a container's systemd unit. Podman sets it if it runs with a variable of that
// name, as in services of Quadlet and `podman generate systemd`; for pods, it is on the infra
// container. podman-compose always sets it, and an image may contain it.
const labelUnit = "PODMAN_SYSTEMD_UNIT"

// unitOf returns the service that labels name, or "".
func unitOf(labels map[string]string) string {
	if unit := labels[labelUnit]; trust.IsServiceName(unit) {
		return unit
	}
	return ""
}

// podUnit is the unit that a pod's infra container names.
type podUnit struct {
	name  string // empty if it names none
	infra string // ID of the infra container
}

// podUnits has the units of pods in the last list, by pod ID.
type podUnits struct {
	mu   sync.Mutex
	byID map[string]podUnit
}

// set records the infra containers of pods, by pod ID, and returns those that name a unit.
func (u *podUnits) set(infra map[string]*container) (of []*container) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.byID = map[string]podUnit{}
	for id, c := range infra {
		if unit := unitOf(c.Labels); unit != "" {
			u.byID[id] = podUnit{unit, c.ID}
			of = append(of, c)
		}
	}
	return of
}

func (u *podUnits) get(id string) podUnit {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.byID[id]
}

// unitsOf returns the units that a container and its pod name.
func (r *Runtime) unitsOf(c *container) []string {
	units := []string{unitOf(c.Labels), r.podUnits.get(c.podID()).name}
	return slices.DeleteFunc(units, func(unit string) bool { return unit == "" })
}

// stopUnit begins to stop the unit of a container or of its pod, if it runs, and returns its name.
// An image can contain a unit's name, so a named unit counts only if the monitor of the container
// or of the infra container belongs to it. If a container names no unit and Podman does not return
// its monitor soon, it counts as having no unit, because its grace period has begun.
func (r *Runtime) stopUnit(ctx context.Context, what, id, unit, podID string) (stops string, err error) {
	if r.units == nil {
		return "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeouts.Query)
	defer cancel()
	pod := r.podUnits.get(podID)
	if unit == "" && pod.name == "" {
		var monitor int
		if unit, monitor = r.serviceOf(ctx, what, id); unit == "" {
			return "", nil
		}
		return r.stopIf(ctx, what, "it", unit, monitor)
	}
	if unit != "" && unit != pod.name {
		monitor, err := r.monitorOf(ctx, what, id)
		if err != nil {
			return "", engine.Gone(err)
		}
		if monitor == 0 { // the container does not run
			return "", nil
		}
		main := r.mainOf(ctx, id, monitor)
		if stops, err = r.stopIf(ctx, what, "it", cmp.Or(main, unit), monitor); stops != "" || err != nil {
			return stops, err
		}
	}
	if pod.name == "" {
		return "", nil
	}
	monitor, err := r.monitorOf(ctx, what, pod.infra)
	if err != nil || monitor == 0 {
		return "", engine.Gone(err)
	}
	return r.stopIf(ctx, what, "its pod", pod.name, monitor)
}

// stopIf begins to stop a unit if it runs and the process pid belongs to it. If so, it returns the
// unit's name.
func (r *Runtime) stopIf(ctx context.Context, what, whose, unit string, pid int) (stops string, err error) {
	stopping, err := r.units.StopUnit(ctx, unit, pid, runtime.ReportUnitStops)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %s belongs to a systemd unit: %w", what, whose, err)
	case stopping:
		return unit, nil
	}
	return "", nil
}

// monitorBound bounds the request for the monitor of a container without unit label.
const monitorBound = 2 * time.Second

// serviceOf returns the service and the monitor of a container without unit label, if known.
func (r *Runtime) serviceOf(ctx context.Context, what, id string) (unit string, monitor int) {
	soon, cancel := context.WithTimeout(ctx, monitorBound)
	defer cancel()
	monitor, err := r.monitorOf(soon, what, id)
	if err != nil {
		r.log.Debug("cannot read whether container belongs to a service", "id", id, "error", err)
		return "", 0
	}
	return r.mainOf(ctx, id, monitor), monitor
}

// monitorOf returns the PID of a container's monitor (conmon), or 0 if the container does not run.
// It uses the last list if that is still valid, because Podman may be busy.
func (r *Runtime) monitorOf(ctx context.Context, what, id string) (int, error) {
	if known, _ := r.facts.get(id); r.monitors(known.monitor, id) {
		return known.monitor, nil
	}
	now, err := r.inspect(ctx, what, id)
	return now.State.ConmonPid, err
}

// mainOf returns the service whose main process is the monitor of a container, or "" if systemd
// reports none. Containers of `podman generate systemd` without --new have no unit label. Monitors
// outside of the cgroups of services, such as in scopes, are skipped.
func (r *Runtime) mainOf(ctx context.Context, id string, monitor int) string {
	if r.serviceWith(monitor, id) == "" {
		return ""
	}
	unit, err := r.units.MainOf(ctx, monitor)
	if err != nil {
		r.log.Debug("cannot read service of container monitor from systemd", "pid", monitor, "error", err)
	}
	return unit
}

// serviceWith returns the service in whose cgroup a container's monitor is, or "".
func (r *Runtime) serviceWith(monitor int, id string) string {
	if monitor == 0 || !r.monitors(monitor, id) {
		return ""
	}
	return trust.Service(r.procRoot, monitor)
}

// monitors reports whether a process is the monitor of a container. Podman may not have noticed
// that the monitor died, and another process may have its PID.
func (r *Runtime) monitors(pid int, id string) bool {
	if !trust.IsOnHost(r.procRoot, pid) { // the read of another user's memory may hang
		return false
	}
	line, err := os.ReadFile(filepath.Join(r.procRoot, strconv.Itoa(pid), "cmdline"))
	arguments := strings.Split(string(line), "\x00")
	return err == nil && filepath.Base(arguments[0]) == "conmon" && slices.Contains(arguments, id)
}
