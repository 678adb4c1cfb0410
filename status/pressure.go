package status

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// gauge is a measured value with its threshold.
type gauge struct {
	subject   string // "/var (ext4 on /dev/sda2)"; empty if unit is enough
	unit      string // what is counted: "memory", "inodes", "PIDs"; empty for bytes of a filesystem
	isBytes   bool
	available uint64
	total     uint64
	threshold Threshold
	reason    string // of the condition if the value is below the threshold
	note      string // appended to the message
	problem   string // why there is no value
}

func (g gauge) below() bool { return g.problem == "" && g.available < g.threshold.Of(g.total) }

// judge returns the finding for gauges: True if one is below its threshold, else Unknown if one
// could not be read, else False.
func judge(gauges []gauge, fine string) finding {
	var pressed, unknown, calm []string
	add := func(list *[]string, text string) {
		if !slices.Contains(*list, text) { // a filesystem can have two roles
			*list = append(*list, text)
		}
	}
	reason := ""
	for _, g := range gauges {
		switch {
		case g.problem != "":
			add(&unknown, g.problem)
		case g.below():
			if reason == "" {
				reason = g.reason
			}
			add(&pressed, g.String()+", threshold "+g.threshold.String())
		default:
			add(&calm, g.String())
		}
	}
	switch {
	case len(pressed) > 0:
		return finding{corev1.ConditionTrue, reason, strings.Join(pressed, "; ")}
	case len(unknown) > 0:
		return finding{corev1.ConditionUnknown, ReasonNotMeasured, strings.Join(unknown, "; ")}
	default:
		return finding{corev1.ConditionFalse, fine, strings.Join(calm, "; ")}
	}
}

// String formats the value like the threshold: as a percentage or as an amount.
func (g gauge) String() string {
	amount := func(n uint64) string {
		if g.isBytes {
			return humanBytes(n)
		}
		return strconv.FormatUint(n, 10)
	}
	left := amount(g.available)
	if g.threshold.isPercent() {
		left = percentOf(g.available, g.total)
	}
	var text string
	switch {
	case g.subject == "":
		text = fmt.Sprintf("%s of %s %s available", left, amount(g.total), g.unit)
	case g.unit != "":
		text = fmt.Sprintf("%s has %s of its %s free", g.subject, left, g.unit)
	case g.threshold.isPercent():
		text = fmt.Sprintf("%s has %s free", g.subject, left)
	default:
		text = fmt.Sprintf("%s has %s of %s free", g.subject, left, amount(g.total))
	}
	return text + g.note
}

func memoryGauges(facts Facts, options Options) []gauge {
	m := facts.Memory
	g := gauge{
		unit: "memory", isBytes: true,
		available: m.AvailableBytes, total: m.TotalBytes,
		threshold: options.Pressure.MemoryAvailable, reason: ReasonInsufficientMemory,
		problem: m.Problem,
	}
	if m.Source != "" {
		g.note = " (" + m.Source + ")"
	}
	if g.problem == "" && m.TotalBytes == 0 {
		g.problem = "memory has not been measured yet"
	}
	return []gauge{g}
}

func pidGauges(facts Facts, options Options) []gauge {
	p := facts.PIDs
	g := gauge{
		unit:      "PIDs",
		available: p.Available(), total: p.Limit,
		threshold: options.Pressure.PIDAvailable, reason: ReasonInsufficientPIDs,
		note:    " (" + p.Source + ")",
		problem: p.Problem,
	}
	if reserved := options.Reserved.PIDs; reserved > 0 {
		g.available -= min(g.available, reserved)
		g.note = fmt.Sprintf(" beyond %d reserved (%s)", reserved, p.Source)
	}
	if g.problem == "" && p.Limit == 0 {
		g.problem = "PIDs have not been counted yet"
	}
	return []gauge{g}
}

func diskGauges(facts Facts, options Options) []gauge {
	var gauges []gauge
	nodeFound := false
	for i, fs := range facts.Filesystems {
		if fs.Role == RoleNode {
			nodeFound = true
		}
		if fs.Role == RoleStart && (fs.Absent || slices.ContainsFunc(facts.Filesystems[:i], fs.same)) {
			continue // the thresholds of the filesystem's other roles are not lower
		}
		for _, g := range filesystemGauges(fs, options.Pressure) {
			// There are many filesystems with RoleStart, so only those with too little space are
			// reported.
			if fs.Role != RoleStart || g.below() || g.problem != "" {
				gauges = append(gauges, g)
			}
		}
	}
	if !nodeFound {
		gauges = append(gauges, gauge{problem: "the node filesystem has not been measured yet"})
	}
	return gauges
}

const (
	// startBytes and startInodes are the most that the start of a pod needs in filesystems with
	// RoleStart, with a margin. A percentage would be too much for a large filesystem and too
	// little for a small one.
	startBytes  = 16 << 20
	startInodes = 1000
)

// same reports whether o is the same filesystem.
func (fs Filesystem) same(o Filesystem) bool {
	return o.Problem == "" && fs.Problem == "" && fs.Mountpoint != "" && fs.Mountpoint == o.Mountpoint && fs.Device == o.Device && fs.Type == o.Type
}

// atMost returns a threshold of at most that amount.
func atMost(t Threshold, total, amount uint64) Threshold {
	if t.Of(total) > amount {
		return Amount(amount)
	}
	return t
}

func filesystemGauges(fs Filesystem, policy Policy) []gauge {
	if fs.Problem != "" {
		return []gauge{{problem: fs.Problem}}
	}
	space, inodes := policy.NodefsAvailable, policy.NodefsInodesFree
	spaceReason, inodesReason := ReasonNodeFilesystemSpace, ReasonNodeFilesystemInodes
	if fs.Role == RoleImage {
		space, inodes = policy.ImagefsAvailable, policy.ImagefsInodesFree
		spaceReason, inodesReason = ReasonImageFilesystemSpace, ReasonImageFilesystemInodes
	}
	if fs.Role == RoleStart {
		space, inodes = atMost(space, fs.CapacityBytes, startBytes), atMost(inodes, fs.Inodes, startInodes)
		spaceReason, inodesReason = ReasonStartFilesystemSpace, ReasonStartFilesystemInodes
	}
	subject := describe(fs)
	gauges := []gauge{{
		subject: subject, isBytes: true,
		available: fs.AvailableBytes, total: fs.CapacityBytes,
		threshold: space, reason: spaceReason,
	}}
	if fs.Inodes > 0 { // some filesystems create inodes on demand, and report none
		gauges = append(gauges, gauge{
			subject: subject, unit: "inodes",
			available: fs.InodesFree, total: fs.Inodes,
			threshold: inodes, reason: inodesReason,
		})
	}
	return gauges
}

// describe returns a filesystem's name for messages: "/var (ext4 on /dev/sda2)".
func describe(fs Filesystem) string {
	if fs.Mountpoint == "" {
		return fs.Path
	}
	return fmt.Sprintf("%s (%s on %s)", fs.Mountpoint, fs.Type, fs.Device)
}

// percentOf rounds down, so that a value below a threshold is also printed as below it.
func percentOf(part, whole uint64) string {
	if whole == 0 {
		return "0%"
	}
	return strconv.FormatUint(uint64(float64(part)/float64(whole)*100), 10) + "%"
}

// humanBytes formats a size with one decimal and a binary unit, rounded down.
func humanBytes(n uint64) string {
	units := []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	unit, rest := 0, uint64(0)
	for n >= 1024 && unit < len(units)-1 {
		n, rest = n/1024, n%1024
		unit++
	}
	if tenth := rest * 10 / 1024; tenth > 0 {
		return fmt.Sprintf("%d.%d%s", n, tenth, units[unit])
	}
	return fmt.Sprintf("%d%s", n, units[unit])
}
