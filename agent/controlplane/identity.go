package controlplane

import (
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Annotations by which hostler remembers, on Node and Lease, whose they are and
// what of them it set.
const (
	// AnnotationMachineID and AnnotationSystemUUID name the machine that holds
	// the Node or Lease.
	AnnotationMachineID  = "hostler.io/machine-id"
	AnnotationSystemUUID = "hostler.io/system-uuid"
	// AnnotationOwned lists, as JSON {"labels":[],"annotations":[]}, the keys
	// that hostler set on the Node, so that one which is no longer configured
	// goes.
	AnnotationOwned = "hostler.io/owned"
)

// Identity tells one machine from another. A part that is empty is not known,
// and differs from nothing.
type Identity struct {
	MachineID  string // /etc/machine-id; the same on clones of a disk
	SystemUUID string // of the firmware; the same as long as the mainboard is
}

// IdentityOf is the machine that a Node belongs to: the one that registered it
// last, else the one that its status names.
func IdentityOf(node *corev1.Node) Identity {
	if id := identityIn(node.Annotations); id != (Identity{}) {
		return id
	}
	return Identity{MachineID: node.Status.NodeInfo.MachineID, SystemUUID: node.Status.NodeInfo.SystemUUID}
}

func identityIn(annotations map[string]string) Identity {
	return Identity{MachineID: annotations[AnnotationMachineID], SystemUUID: annotations[AnnotationSystemUUID]}
}

// Differs tells whether the two are known to be different machines.
func (id Identity) Differs(other Identity) bool {
	return differ(id.MachineID, other.MachineID) || differ(id.SystemUUID, other.SystemUUID)
}

func differ(a, b string) bool { return a != "" && b != "" && !strings.EqualFold(a, b) }

// String names the machine for a person.
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

// mark notes the machine on a Node or Lease.
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

// IdentityError tells that another machine, which is alive, has this Node's
// name.
type IdentityError struct {
	Name         string // of the Node
	Theirs, Ours Identity
	// LeaseRenewed is when the other machine last renewed its Lease, by its own
	// clock; zero if that is not known.
	LeaseRenewed time.Time
}

// Error names both machines and what to do.
func (e *IdentityError) Error() string {
	renewed := ""
	if !e.LeaseRenewed.IsZero() {
		renewed = ", which renewed its lease at " + e.LeaseRenewed.UTC().Format(time.RFC3339)
	}
	return fmt.Sprintf("node %q belongs to another machine (%s)%s; this one is %s: give one of them another node.name, or set node.takeover: true here if the other is gone for good",
		e.Name, e.Theirs, renewed, e.Ours)
}

// LeaseAlive tells whether, going by wall clocks, the Lease has not expired at
// now. A nil Lease is dead.
func LeaseAlive(lease *coordinationv1.Lease, now time.Time) bool {
	if lease == nil || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return false
	}
	duration := time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	return now.Before(lease.Spec.RenewTime.Add(duration))
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
