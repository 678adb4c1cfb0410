package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/fleet"
	"hostler.io/hostler/controlplane"
)

// showMember prints one host in full, in the format of `hostler status`.
func showMember(ctx context.Context, c *api.Client, out *output, name string) error {
	m, err := c.Member(ctx, name)
	if err != nil {
		return err
	}
	return out.print(m, func(t *table) { printMember(t, out, m) })
}

// printMember prints the last report of a host that the control plane stores.
func printMember(t *table, out *output, m fleet.MemberOf) {
	s := api.Status{Node: m.Node, Lease: m.Lease, ControlPlane: api.ControlPlane{Type: m.ControlPlane.Type, Endpoint: m.ControlPlane.Endpoint, Connected: true}}
	own := m.Node.Name == m.ControlPlane.Node
	wrong := memberProblems(m.Member)
	if p := leaseViewOf(m.Member); p.leaseState == none && m.ControlPlane.LeasesEnd {
		wrong = slices.Insert(wrong, 0, problem{what: "lease", text: "deleted: the control plane deletes a Lease that has expired", next: stepLeaseExpired, severity: leaseExpired})
	}
	first := headline(out, s)
	expired, marked := len(wrong) > 0 && wrong[0].severity == leaseExpired, markedLost(m.Node)
	if expired {
		source := "; last reported status "
		if marked {
			source = "; the control plane marks it as "
		}
		first = m.Node.Name + ": " + out.red("LEASE EXPIRED") + source + strings.TrimPrefix(first, m.Node.Name+" is ")
	}
	out.indented(t, "", first)
	for _, w := range wrong {
		if w.next != "" && !own {
			w.next = "on that host: " + w.next
		}
		w.print(t, out)
	}
	t.line("")
	for _, l := range [][2]string{
		{"lease", memberLease(out, m)},
		{"control plane", controlPlane(s)},
		{"cordon", memberCordon(m.Node, own)},
		{"conditions", memberConditions(out, s, expired || marked)},
		{"addresses", addresses(s)},
		{"capacity", offered(s, capacityOf)},
		{"allocatable", offered(s, allocatableOf)},
		{"taints", listTaints(m.Node.Spec.Taints, nil)},
		{"labels", labels(m.Node)},
		{"software", software(m.Node)},
		{"machine", identity(m.Node)},
		{"registered", out.ago(m.Node.CreationTimestamp.Time)},
		{"this host", ownHint(own)},
	} {
		out.field(t, l[0], l[1])
	}
	if out.wide() && len(m.Node.Status.Conditions) > 0 {
		printConditions(t, out, s)
	}
}

// markedLost reports whether the control plane, and not the host, wrote the Ready condition.
func markedLost(node *corev1.Node) bool {
	ready := controlplane.ConditionOf(node, corev1.NodeReady)
	return ready != nil && ready.Status == corev1.ConditionUnknown && slices.Contains([]string{"NodeStatusUnknown", "NodeStatusNeverUpdated"}, ready.Reason)
}

// memberConditions returns the conditions of a host. For a lost host it adds when the host reported
// the ones that are not Unknown.
func memberConditions(out *output, s api.Status, lost bool) string {
	text := conditions(out, s)
	if !lost {
		return text
	}
	var last time.Time
	known := false
	for _, c := range s.Node.Status.Conditions {
		if c.LastHeartbeatTime.After(last) {
			last = c.LastHeartbeatTime.Time
		}
		known = known || c.Status != corev1.ConditionUnknown
	}
	if !known {
		return text
	}
	when := "as of the last report, before the host was lost"
	if !last.IsZero() {
		when = "as of " + last.UTC().Format(time.RFC3339) + ", before the host was lost"
	}
	if text == "" { // a table below lists them
		return when
	}
	reported, unknown, some := strings.Cut(text, "; Unknown: ")
	text = when + ": " + reported
	if some {
		text += "; now Unknown: " + unknown
	}
	return text
}

// offered returns the resources of a Node; empty before the first report.
func offered(s api.Status, of func(*corev1.Node) corev1.ResourceList) string {
	if len(of(s.Node)) == 0 {
		return ""
	}
	return resources(s, of)
}

func memberLease(out *output, m fleet.MemberOf) string {
	p := leaseViewOf(m.Member)
	if p.leaseState == none {
		if m.ControlPlane.LeasesEnd {
			return "deleted, see above"
		}
		return "none"
	}
	line := "renewed " + age(p.age) + " ago"
	if p.leaseState == ahead {
		line = "renewed in " + age(-p.age)
	}
	line += ", by its own clock"
	if p.good > 0 {
		line += fmt.Sprintf(", valid for %s", p.good)
	}
	if p.leaseState == expired {
		line += ", " + out.red("EXPIRED")
	}
	return line
}

// memberCordon returns whether a host is cordoned. It cannot name who cordoned another host.
func memberCordon(node *corev1.Node, own bool) string {
	r, err := controlplane.RebootOf(node.Annotations)
	switch {
	case !node.Spec.Unschedulable:
		return ""
	case err == nil && r != nil && r.Step.Running():
		return "closed to new pods, while the host reboots"
	case own:
		return "closed to new pods; to open it, run `hostler uncordon`"
	}
	return "closed to new pods; to open it, run `hostler uncordon` on that host"
}

func ownHint(own bool) string {
	if !own {
		return ""
	}
	return "for its current state, run `hostler status`"
}

// ownTaints lists the taints of this host's Node, except the cordon's, which has its own line.
func ownTaints(s api.Status) string {
	if s.Node == nil {
		return ""
	}
	return listTaints(s.Node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeUnschedulable })
}

// listTaints lists taints in kubectl's format. omit may be nil.
func listTaints(taints []corev1.Taint, omit func(corev1.Taint) bool) string {
	var list []string
	for _, t := range taints {
		if omit == nil || !omit(t) {
			list = append(list, t.ToString())
		}
	}
	return strings.Join(list, ", ")
}

func labels(node *corev1.Node) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(node.Labels)) {
		list = append(list, key+"="+node.Labels[key])
	}
	return strings.Join(list, ", ")
}

// software returns the versions in the Node's status.
func software(node *corev1.Node) string {
	info := node.Status.NodeInfo
	own := version(node)
	if own != "" && !strings.HasPrefix(own, "kubelet ") {
		own = "hostler " + own
	}
	return strings.Join(slices.DeleteFunc([]string{own, info.ContainerRuntimeVersion, info.OSImage, info.KernelVersion, info.Architecture}, func(s string) bool { return s == "" }), ", ")
}

// identity returns the machine's IDs.
func identity(node *corev1.Node) string {
	info := node.Status.NodeInfo
	var parts []string
	for _, p := range [][2]string{{"machine ID", info.MachineID}, {"system UUID", info.SystemUUID}, {"boot", info.BootID}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	return strings.Join(parts, ", ")
}
