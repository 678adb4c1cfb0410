package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/runtime"
	"hostler.io/hostler/status/probe"
)

// ready decides whether pods can run. The worst problem is the reason; the message has all
// problems, each with its start: from seen if no fact has it.
func ready(facts Facts, last *corev1.NodeCondition, seen func(reason string) time.Time) finding {
	type fault struct{ reason, message string }
	var faults []fault
	add := func(reason, message string, since time.Time) {
		if !since.IsZero() {
			message += ", since " + stamp(since)
		}
		faults = append(faults, fault{reason, message})
	}

	if d := facts.Draining; d.Active {
		message := "node is shutting down"
		if d.Reason != "" {
			message += ": " + d.Reason
		}
		add(ReasonDraining, message, d.Since)
	}
	switch {
	case !facts.RuntimesQueried && len(faults) == 0:
		return starting(last, "hostler has just started and has not contacted a container runtime yet")
	case !facts.RuntimesQueried: // the problem of a drain is enough
	case len(facts.Runtimes) == 0:
		message := "no container runtime found on this host"
		if len(facts.Missing.Sockets) > 0 {
			message += "; found sockets " + strings.Join(facts.Missing.Sockets, ", ") + " that do not answer; start their service"
		}
		add(ReasonNoRuntime, message, seen(ReasonNoRuntime))
	}
	imagesExpected := false
	for _, r := range facts.Runtimes {
		if r.Ready {
			imagesExpected = imagesExpected || !r.Imageless
			continue
		}
		message := "runtime " + r.Name
		if r.Endpoint != "" {
			message += " at " + r.Endpoint
		}
		message += " is not ready"
		if r.Message != "" {
			message += ": " + r.Message
		}
		add(ReasonRuntimeDown, message, r.Since)
	}
	switch message := imageFilesystemProblem(facts); {
	case !imagesExpected || message == "":
	case facts.Missing.Filesystems && len(faults) == 0:
		return starting(last, "hostler has just started, and no container runtime has listed its image filesystems yet")
	case !facts.Missing.Filesystems:
		add(ReasonImageFilesystemUnknown, message, seen(ReasonImageFilesystemUnknown))
	}

	if len(faults) == 0 {
		return finding{corev1.ConditionTrue, ReasonHostReady, readyMessage(facts.Runtimes)}
	}
	var messages []string
	for _, f := range faults {
		messages = append(messages, f.message)
	}
	return finding{corev1.ConditionFalse, faults[0].reason, strings.Join(messages, "; ")}
}

// starting keeps the status from before a restart of the agent, which does not affect pods. (A
// kubelet changes Ready when it restarts.) It does not keep an Unknown status, which the cluster
// has set.
func starting(last *corev1.NodeCondition, message string) finding {
	if last != nil && last.Status != corev1.ConditionUnknown {
		return finding{last.Status, last.Reason, last.Message}
	}
	return finding{corev1.ConditionUnknown, ReasonStarting, message}
}

// imageFilesystemProblem returns the problem of the image filesystems, or "".
func imageFilesystemProblem(facts Facts) string {
	var problems []string
	known := 0
	for _, fs := range facts.Filesystems {
		switch {
		case fs.Role != RoleImage:
		case fs.Problem != "":
			problems = append(problems, "image filesystem unknown: "+fs.Problem)
		default:
			known++
		}
	}
	if known+len(problems) == 0 {
		problems = append(problems, "image filesystem unknown: not reported by any runtime")
	}
	return strings.Join(problems, "; ")
}

// readyMessage names the runtimes, and a missing pod network, which is a fault only for pods that
// need one.
func readyMessage(runtimes []runtime.Health) string {
	var parts []string
	for _, r := range runtimes {
		part := strings.TrimSpace(r.Name+" "+r.Version) + " is ready"
		if r.Message != "" {
			part += " (" + r.Message + ")"
		}
		if !r.NetworkReady {
			part += ", but its pod network is not"
			if r.NetworkMessage != "" {
				part += ": " + r.NetworkMessage
			}
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// networkUnavailable decides whether other hosts can reach this one, by address and link. A missing
// default route is only reported: the host may be reachable without it.
func networkUnavailable(network probe.Network, options AddressOptions) finding {
	chosen, err := internalAddresses(network, options.Internal)
	if len(chosen) == 0 {
		switch {
		case network.Problem != "":
			return finding{corev1.ConditionUnknown, ReasonNotMeasured, network.Problem}
		case len(options.Internal) > 0:
			return finding{corev1.ConditionTrue, ReasonAddressMissing, err.Error()}
		default:
			return finding{corev1.ConditionTrue, ReasonNoAddress, err.Error()}
		}
	}
	var live, dead, off []string
	for _, a := range chosen {
		where := fmt.Sprintf("%s on %s", a.IP, a.Interface)
		switch {
		case !a.Up:
			off = append(off, a.Interface)
			dead = append(dead, where+", which is down")
		case !a.Carrier:
			dead = append(dead, where+", which has no carrier")
		default:
			live = append(live, where)
		}
	}
	if len(live) == 0 {
		return finding{corev1.ConditionTrue, ReasonNoCarrier, strings.Join(dead, "; ") + "; " + startHint(off, len(dead))}
	}
	notes := append(live, dead...)
	if len(network.Routes) == 0 {
		notes = append(notes, "no default route")
	}
	if note := noRoute(network.ControlPlane); note != "" {
		notes = append(notes, note)
	}
	if err != nil {
		notes = append(notes, err.Error())
	}
	return finding{corev1.ConditionFalse, ReasonNetworkAvailable, strings.Join(notes, "; ")}
}

// startHint returns the fix if all interfaces are down. off are those that are disabled.
func startHint(off []string, dead int) string {
	const link = "check the cable, the switch or the bond"
	if len(off) == 0 {
		return link
	}
	on := "set it up with: ip link set " + off[0] + " up"
	for _, name := range slices.Compact(off)[1:] {
		on += " && ip link set " + name + " up"
	}
	if len(off) < dead {
		on += "; for the others, " + link
	}
	return on
}

// noRoute says that there is no route to the control plane. It returns "" if there is a route to
// one of its addresses.
func noRoute(routes []probe.TargetRoute) string {
	if len(routes) == 0 || slices.ContainsFunc(routes, func(w probe.TargetRoute) bool { return w.Problem == "" }) {
		return ""
	}
	return fmt.Sprintf("no route to the control plane at %s: %s", routes[0].To.Addr(), routes[0].Problem)
}
