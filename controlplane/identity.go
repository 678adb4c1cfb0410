package controlplane

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations on Node and Lease that record their owner and what hostler set.
const (
	// AnnotationMachineID and AnnotationSystemUUID name the machine that holds
	// the Node or Lease.
	AnnotationMachineID  = "hostler.io/machine-id"
	AnnotationSystemUUID = "hostler.io/system-uuid"
	// AnnotationInstance names the boot and the process that renewed the Lease last. It distinguishes
	// clones.
	AnnotationInstance = "hostler.io/instance"
	// AnnotationReplaced records, as JSON, which machine had the Node before and what of it remains
	// (see Remains). To accept all of that for the present machine, remove the annotation.
	AnnotationReplaced = "hostler.io/replaced"
	// AnnotationOwned lists, as JSON {"labels":[],"annotations":[]}, the keys that hostler set on the
	// Node, so that a key that is no longer configured is removed. Reconciled taints are under
	// "taints", as KEY:EFFECT.
	AnnotationOwned = "hostler.io/owned"
)

// Identity identifies a machine. An empty part is unknown and matches everything.
type Identity struct {
	MachineID  string `json:"machineID,omitempty"`  // /etc/machine-id; the same on clones of a disk
	SystemUUID string `json:"systemUUID,omitempty"` // of the firmware; changes only with the mainboard
}

// IdentityOf returns the owner of a Node: the machine that registered it last, else the one in its
// status.
func IdentityOf(node *corev1.Node) Identity {
	if id := identityIn(node.Annotations); id != (Identity{}) {
		return id
	}
	return reportedBy(node)
}

// ReporterOf returns the machine in the Node's status, else the one that registered it last. On a
// Node that a kubelet has taken over, hostler's annotations may name a machine that was replaced long
// ago.
func ReporterOf(node *corev1.Node) Identity {
	if id := reportedBy(node); id != (Identity{}) {
		return id
	}
	return identityIn(node.Annotations)
}

// Reports reports whether the stored Node has this machine's status. Such a Node must not be
// deleted as another machine's, whatever its annotations say: a person changed them, a kubelet of
// this host had the Node, or a takeover failed half-way.
func Reports(stored, desired *corev1.Node) bool {
	reporter := reportedBy(stored)
	return reporter != (Identity{}) && !reporter.Differs(IdentityOf(desired))
}

func reportedBy(node *corev1.Node) Identity {
	return Identity{MachineID: node.Status.NodeInfo.MachineID, SystemUUID: node.Status.NodeInfo.SystemUUID}
}

// holderOf returns the owner of a Node by its Lease, nil if there is none. A Lease without hostler's
// annotations is a kubelet's.
func holderOf(node *corev1.Node, lease *coordinationv1.Lease) Identity {
	if lease == nil || identityIn(lease.Annotations) == (Identity{}) {
		return ReporterOf(node)
	}
	return IdentityOf(node)
}

// HolderOf returns the machine in the Lease's annotations; a kubelet writes none.
func HolderOf(lease *coordinationv1.Lease) Identity { return identityIn(lease.Annotations) }

func identityIn(annotations map[string]string) Identity {
	return Identity{MachineID: annotations[AnnotationMachineID], SystemUUID: annotations[AnnotationSystemUUID]}
}

// Differs reports whether the two are known to be different machines.
func (id Identity) Differs(other Identity) bool {
	return differ(id.MachineID, other.MachineID) || differ(id.SystemUUID, other.SystemUUID)
}

func differ(a, b string) bool { return a != "" && b != "" && !strings.EqualFold(a, b) }

// String names the machine.
func (id Identity) String() string {
	machineID, uuid := id.MachineID, id.SystemUUID
	if machineID == "" {
		machineID = "unknown"
	}
	if uuid == "" {
		uuid = "unknown"
	}
	return fmt.Sprintf("machine ID %s, system UUID %s", machineID, uuid)
}

// mark writes the machine into the annotations of a Node or Lease.
func (id Identity) mark(meta *metav1.ObjectMeta) {
	for key, value := range map[string]string{AnnotationMachineID: id.MachineID, AnnotationSystemUUID: id.SystemUUID} {
		if value == "" {
			delete(meta.Annotations, key)
			continue
		}
		if meta.Annotations == nil {
			meta.Annotations = map[string]string{}
		}
		meta.Annotations[key] = value
	}
}

// IdentityError reports that another machine has this Node's name and may be alive.
type IdentityError struct {
	Name         string // of the Node
	Theirs, Ours Identity
	// LeaseRenewed is when the other machine last renewed its Lease, by its own clock; zero if
	// unknown.
	LeaseRenewed time.Time
	// Until is when the other machine counts as dead if it does not renew its Lease; zero if nobody
	// watches it.
	Until time.Time
	// Renewed reports that the other machine was seen to renew its Lease, so it is alive.
	Renewed bool
}

// Watching reports whether the other machine is still being watched. The result is known at Until.
func (e *IdentityError) Watching() bool { return !e.Until.IsZero() && !e.Renewed }

// Error names both machines and the command to run next.
func (e *IdentityError) Error() string {
	renewed := ""
	if !e.LeaseRenewed.IsZero() {
		renewed = ", which renewed its lease at " + e.LeaseRenewed.UTC().Format(time.RFC3339) + " by its own clock"
	}
	fix := "give one of them another node.name, or set node.takeover: true here if the other no longer exists"
	if e.Watching() {
		fix = "if the other machine does not renew its lease before " + e.Until.UTC().Format(time.RFC3339) + ", this one takes over; set node.takeover: true to take over at once"
	}
	return fmt.Sprintf("node %q belongs to another machine (%s)%s; this machine is %s: %s", e.Name, e.Theirs, renewed, e.Ours, fix)
}

// refusal returns the error for a Node whose Lease shows that its machine may be alive.
func refusal(name string, theirs, ours Identity, lease *coordinationv1.Lease, observed Observation) *IdentityError {
	return &IdentityError{Name: name, Theirs: theirs, Ours: ours, LeaseRenewed: lease.Spec.RenewTime.Time, Until: observed.Until, Renewed: observed.Renewed}
}

// LeaseAlive reports whether the Lease has not expired at now, by wall clocks. Use it only for this
// machine's own Lease; for others see LeaseWatch. A nil Lease has expired.
func LeaseAlive(lease *coordinationv1.Lease, now time.Time) bool {
	if lease == nil || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return false
	}
	duration := time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	return now.Before(lease.Spec.RenewTime.Add(duration))
}

// CheckLeave returns an *IdentityError if annotations or status of the stored Node name another
// machine than the one that leaves.
func CheckLeave(stored *corev1.Node, leaves Identity) error {
	for _, theirs := range []Identity{identityIn(stored.Annotations), reportedBy(stored)} {
		if theirs.Differs(leaves) {
			return &IdentityError{Name: stored.Name, Theirs: theirs, Ours: leaves}
		}
	}
	return nil
}

// CheckOwner returns an *IdentityError if the stored Node belongs to another
// machine than node does. Clients call it before they store a status.
func CheckOwner(stored, node *corev1.Node) error {
	theirs, ours := identityIn(stored.Annotations), IdentityOf(node)
	if theirs.Differs(ours) {
		return &IdentityError{Name: stored.Name, Theirs: theirs, Ours: ours}
	}
	return nil
}
