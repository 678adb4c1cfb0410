package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/status"
)

// hostRow is one host in a list of hosts.
type hostRow struct {
	name     string
	state    string // Ready, NotReady or Unknown, and for how long
	lease    leaseView
	address  string
	version  string
	more     []string // columns of a wide list
	problems []string // one line each
	severity severity // of the worst problem
	cordon   bool
}

// noProblem is the severity of a host without problems.
const noProblem = info + 1

// newHostRow returns the row of a host.
func newHostRow(out *output, m fleet.Member) hostRow {
	node := m.Node
	s := hostRow{name: node.Name, lease: leaseViewOf(m), address: address(node), version: version(node), severity: noProblem, cordon: node.Spec.Unschedulable}
	s.state = nodeState(out, node)
	for _, w := range memberProblems(m) {
		s.severity = min(s.severity, w.severity)
		if w.severity != leaseExpired && w.severity != info { // the LEASE column shows an expired Lease; info is intended
			s.problems = append(s.problems, w.line(out, node))
		}
	}
	if s.cordon {
		s.problems = append(s.problems, "cordoned: closed to new pods")
		s.severity = min(s.severity, info)
	}
	ordinary := func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectNoExecute || controlplane.Passing(t.Key)
	}
	if list := listTaints(node.Spec.Taints, ordinary); list != "" {
		s.problems = append(s.problems, "taint: "+list)
		s.severity = min(s.severity, info)
	}
	if out.wide() {
		info := node.Status.NodeInfo
		s.more = []string{info.ContainerRuntimeVersion, info.OSImage, info.KernelVersion, age(out.now().Sub(node.CreationTimestamp.Time)), strings.Join(s.problems, "; ")}
		s.address = addresses(api.Status{Node: node})
	}
	return s
}

// nodeState returns the status of the Ready condition and its age, such as "Ready 3d".
func nodeState(out *output, node *corev1.Node) string {
	ready := controlplane.ConditionOf(node, corev1.NodeReady)
	if ready == nil {
		return "Unknown"
	}
	word := "Unknown"
	switch ready.Status {
	case corev1.ConditionTrue:
		word = "Ready"
	case corev1.ConditionFalse:
		word = "NotReady" // as kubectl prints it
	}
	return word + " " + age(out.now().Sub(ready.LastTransitionTime.Time))
}

// address returns the address to reach the host at.
func address(node *corev1.Node) string {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range node.Status.Addresses {
			if a.Type == kind {
				return a.Address
			}
		}
	}
	return ""
}

// version returns the host's hostler version, or the name of the program that reports the Node
// instead.
func version(node *corev1.Node) string {
	reported := node.Status.NodeInfo.KubeletVersion
	if own, found := status.HostlerVersion(reported); found || reported == "" {
		return own
	}
	return "kubelet " + reported
}

// line returns a problem on one line. node has the reason of the condition.
func (w problem) line(out *output, node *corev1.Node) string {
	head := w.what
	if ready := controlplane.ConditionOf(node, corev1.NodeReady); w.what == "" && ready != nil {
		head = ready.Reason
	}
	if w.what != "" && !w.since.IsZero() {
		head += ", for " + age(out.now().Sub(w.since))
	}
	return strings.Join(strings.Fields(strings.TrimSuffix(head+": "+w.text, ": ")), " ")
}

// leaseState is the state of a Lease.
type leaseState int

const (
	alive   leaseState = iota
	expired            // not renewed within its duration
	ended              // deleted by the control plane because it was not renewed
	none               // no Lease is known
	ahead              // renewed in this host's future
)

// skewed is the smallest clock difference that is reported.
const skewed = 5 * time.Second

// leaseView is the state of a Lease when it was read.
type leaseView struct {
	leaseState leaseState
	age        time.Duration // time since the renewal: this host's clock minus the clock of the Lease's host
	good       time.Duration // duration of the Lease; 0 if it has none
}

// leaseViewOf returns the state of a host's Lease. If there is no Lease, see judge.
func leaseViewOf(m fleet.Member) leaseView {
	if m.Lease == nil || m.Lease.Spec.RenewTime == nil {
		return leaseView{leaseState: none}
	}
	p := leaseView{age: m.ReadAt.Sub(m.Lease.Spec.RenewTime.Time)}
	if seconds := m.Lease.Spec.LeaseDurationSeconds; seconds != nil {
		p.good = time.Duration(*seconds) * time.Second
	}
	switch {
	case p.age < -skewed:
		p.leaseState = ahead
	case p.good > 0 && p.age >= p.good:
		p.leaseState = expired
	}
	return p
}

// String returns the LEASE column.
func (p leaseView) String() string {
	switch p.leaseState {
	case expired:
		return "expired " + age(p.age-p.good) + " ago"
	case ended:
		return "deleted"
	case none:
		return "none"
	case ahead:
		return age(-p.age) + " ahead"
	default:
		return age(p.age)
	}
}

// stepLeaseExpired is the next step for a host with an expired Lease.
const stepLeaseExpired = "run `hostler doctor` (/usr/share/doc/hostler/docs/howto/lease-expired.md)"

// memberProblems returns the problems of a host, the worst first.
func memberProblems(m fleet.Member) []problem {
	list := conditionProblems(api.Status{Node: m.Node, NextSteps: status.NextSteps(m.Node.Status.Conditions, status.Facts{})})
	ready := controlplane.ConditionOf(m.Node, corev1.NodeReady)
	if ready == nil {
		list = append(list, problem{what: "Ready unknown", text: "the host has not reported its status yet", severity: unseen})
	}
	switch p := leaseViewOf(m); p.leaseState {
	case expired:
		list = append(list, problem{what: "lease", text: fmt.Sprintf("not renewed for %s, valid for %s (the clock of that host against the clock of this one)", age(p.age), p.good), next: stepLeaseExpired, severity: leaseExpired})
	case ahead:
		list = append(list, problem{what: "clock", text: fmt.Sprintf("its lease was renewed %s in the future: the clock of that host or of this one is wrong", age(-p.age)), severity: failing})
	}
	slices.SortStableFunc(list, func(a, b problem) int { return cmp.Compare(a.severity, b.severity) })
	return list
}

// judge sorts the hosts. If the control plane deletes expired Leases, a missing Lease counts as
// deleted.
func judge(in fleet.Fleet, seen []hostRow) {
	for i := range seen {
		if in.LeasesEnd && seen[i].lease.leaseState == none {
			seen[i].lease.leaseState, seen[i].severity = ended, leaseExpired
		}
	}
	slices.SortStableFunc(seen, func(a, b hostRow) int {
		return cmp.Or(cmp.Compare(a.severity, b.severity), strings.Compare(a.name, b.name))
	})
}

// printFleet prints a summary, and then the hosts, the worst first. A limit other than 0 is the
// number of lines available.
func printFleet(t *table, out *output, in fleet.Fleet, seen []hostRow, limit int) {
	judge(in, seen)
	warn(t, t.once(strings.Join(strings.Fields(in.Message), " ")))
	lines := []string{}
	if out.wide() {
		t.line("%s", summary(in, seen))
		printWideFleet(t, in, seen)
		return
	}
	for _, line := range wrap(summary(in, seen), screenWidth) {
		t.line("%s", line)
		limit--
	}
	if len(seen) == 0 {
		return
	}
	l := layoutOf(seen)
	lines = append(lines, "")
	lines = append(lines, l.row(out, mark(in, hostRow{}), hostRow{severity: noProblem, name: "NAME", state: "STATUS", address: "ADDRESS", version: "VERSION"}, "LEASE")...)
	shown := 0
	for _, s := range seen {
		next := l.row(out, mark(in, s), s, s.lease.String())
		for _, w := range s.problems {
			next = append(next, "    "+cut(w, screenWidth-4))
		}
		if limit > 0 && len(lines)+len(next)+1 > limit {
			break
		}
		lines, shown = append(lines, next...), shown+1
	}
	if rest := len(seen) - shown; rest > 0 {
		lines = append(lines, fmt.Sprintf("and %d more, none in a worse state", rest))
	}
	for _, line := range lines {
		t.line("%s", line)
	}
}

// summary counts the hosts by their worst problem.
func summary(in fleet.Fleet, seen []hostRow) string {
	where := in.Type
	if in.Endpoint != "" {
		where += " at " + in.Endpoint
	}
	line := count(len(seen), "node") + " on " + where
	if in.Type == "embedded" { // the embedded control plane has no other hosts
		line += " (this host only)"
	}
	var counts [noProblem + 1]int
	cordoned := 0
	for _, s := range seen {
		counts[s.severity]++
		if s.cordon {
			cordoned++
		}
	}
	var parts []string
	for _, c := range []struct {
		n    int
		what string
	}{
		{counts[leaseExpired], "with expired lease"},
		{counts[noPods], "not ready"},
		{counts[unseen], "unknown"},
		{counts[pressed] + counts[unprotected] + counts[unreported] + counts[failing], "with problems"},
		{counts[info] + counts[noProblem], "ok"},
		{cordoned, "cordoned"},
	} {
		if c.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	if len(parts) == 0 {
		return line
	}
	line += ": " + strings.Join(parts, ", ")
	if slices.ContainsFunc(seen, func(s hostRow) bool { return s.name == in.Node }) {
		line += "; * is this host"
	}
	return line
}

func printWideFleet(t *table, in fleet.Fleet, seen []hostRow) {
	if len(seen) == 0 {
		return
	}
	t.line("")
	t.row("  NAME", "STATUS", "LEASE", "ADDRESSES", "VERSION", "RUNTIME", "OS", "KERNEL", "AGE", "PROBLEMS")
	for _, s := range seen {
		t.row(append([]string{mark(in, s) + s.name, s.state, s.lease.String(), s.address, s.version}, s.more...)...)
	}
}

// mark returns the mark before this host's own row.
func mark(in fleet.Fleet, s hostRow) string {
	if s.name == in.Node && s.name != "" {
		return "* "
	}
	return "  "
}

// cut shortens text to limit columns.
func cut(text string, limit int) string {
	if columns(text) <= limit {
		return text
	}
	return strings.TrimRight(fitting(text, limit-2), " ") + " …"
}
