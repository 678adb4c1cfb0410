package systemd

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/godbus/dbus/v5"

	"hostler.io/hostler/systemd/bus"
)

// PendingUnit is a unit that is not active yet but is expected to start in this boot.
type PendingUnit struct {
	Unit string
	// Path is the mount point of a mount or automount unit; empty for other units.
	Path string
	// Queued reports whether systemd has a start job for the unit. A mount without a job has
	// failed, or waits for its device.
	Queued bool
}

// networkOnline becomes active once the network is configured, if a unit of this boot wants it.
// Otherwise it is never started.
const networkOnline = "network-online.target"

// mountTargets want the mounts of fstab(5). A target that only wants its mounts becomes active even
// if they fail; one that requires a mount does not.
var mountTargets = []string{"local-fs.target", "remote-fs.target"}

// PendingUnits returns which of these units systemd is about to start: network-online.target, mount
// and automount units, and the named units. It includes expected mounts that are missing. Without
// systemd, it returns none.
func (m *Manager) PendingUnits(ctx context.Context, names ...string) ([]PendingUnit, error) {
	return orAbsent[[]PendingUnit](nil)(ask(ctx, m, "list queued start jobs of systemd", func(ctx context.Context, conn *dbus.Conn) ([]PendingUnit, error) {
		return newTalk(conn).pendingUnits(ctx, names)
	}))
}

func (t *Talk) pendingUnits(ctx context.Context, names []string) ([]PendingUnit, error) {
	patterns := append([]string{networkOnline, "*.mount", "*.automount"}, names...)
	var list []listedUnit
	if err := t.call(ctx, bus.SystemdPath, systemdManager+".ListUnitsByPatterns", &list, []string{}, patterns); err != nil {
		return nil, err
	}
	active := map[string]bool{}
	for _, u := range list {
		active[u.Name] = u.ActiveState == "active" || u.ActiveState == "reloading"
	}
	var pendingUnits []PendingUnit
	for _, u := range list {
		c := PendingUnit{Unit: u.Name, Path: mountPath(u.Name), Queued: u.ActiveState == "activating" || u.JobID != 0 && u.JobType != "stop"}
		// systemd mounts the filesystem of an active automount at the first access.
		automounted := strings.HasSuffix(u.Name, ".mount") && active[strings.TrimSuffix(u.Name, ".mount")+".automount"]
		if active[u.Name] || automounted || u.LoadState != "loaded" {
			continue
		}
		if !c.Queued {
			wanted, err := t.isWantedMount(ctx, c)
			if err != nil {
				return nil, withUnit(u.Name, err)
			}
			if !wanted {
				continue
			}
		}
		pendingUnits = append(pendingUnits, c)
	}
	return pendingUnits, nil
}

// isWantedMount reports whether a missing mount is expected in this boot: a target of mounts or an
// active unit wants it. Mounts whose conditions are not met are not expected, such as debugfs in a
// container (ConditionPathExists= and others of systemd.unit(5)).
func (t *Talk) isWantedMount(ctx context.Context, c PendingUnit) (bool, error) {
	if c.Path == "" {
		return false, nil
	}
	values, err := t.unit(ctx, c.Unit)
	if err != nil {
		return false, err
	}
	if value[uint64](values, "ConditionTimestamp") != 0 && !value[bool](values, "ConditionResult") {
		return false, nil
	}
	by := newUnit(c.Unit, values).PulledInBy
	if slices.ContainsFunc(by, func(name string) bool { return slices.Contains(mountTargets, name) }) {
		return true, nil
	}
	for _, unit := range t.Units(ctx, by...) {
		if unit.Err != nil {
			return false, unit.Err
		}
		if unit.ActiveState == "active" {
			return true, nil
		}
	}
	return false, nil
}

// mountPath returns the mount point of a mount or automount unit, from its name (systemd.unit(5),
// systemd-escape(1)), or "" for other units.
func mountPath(name string) string {
	escaped := strings.TrimSuffix(strings.TrimSuffix(name, ".automount"), ".mount")
	if escaped == name {
		return ""
	}
	if escaped == "-" {
		return "/"
	}
	text := strings.ReplaceAll(escaped, "-", "/")
	var where strings.Builder
	for i := 0; i < len(text); i++ {
		if strings.HasPrefix(text[i:], `\x`) && i+4 <= len(text) {
			if code, err := strconv.ParseUint(text[i+2:i+4], 16, 8); err == nil {
				where.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		where.WriteByte(text[i])
	}
	return path.Join("/", where.String())
}
