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
	// AnnotationInstance names, on a Lease, the boot and the process that renewed it
	// last, by which clones of one machine are told apart.
	AnnotationInstance = "hostler.io/instance"
	// AnnotationReplaced tells, as JSON, which machine had the Node before, and what
	// of that one was left on it; see Remains. Whoever takes it away says that all of
	// that is meant for the present one, too.
	AnnotationReplaced = "hostler.io/replaced"
	// AnnotationOwned lists, as JSON {"labels":[],"annotations":[]}, the keys
	// that hostler set on the Node, so that one which is no longer configured
	// goes; and under "taints", as KEY:EFFECT, the taints where they are reconciled.
	AnnotationOwned = "hostler.io/owned"
)

// Identity distinguishes one machine from another. A part that is empty is not known,
// and differs from nothing.
type Identity struct {
	MachineID  string `json:"machineID,omitempty"`  // /etc/machine-id; the same on clones of a disk
	SystemUUID string `json:"systemUUID,omitempty"` // of the firmware; the same as long as the mainboard is
}

// IdentityOf is the machine that a Node belongs to: the one that registered it
// last, else the one that its status names.
func IdentityOf(node *corev1.Node) Identity {
	if id := identityIn(node.Annotations); id != (Identity{}) {
		return id
	}
	return reportedBy(node)
}

// ReporterOf is the machine whose status a Node has, else the one that registered it
// last: on a Node that is a kubelet's now, what hostler has noted there before may be
// of a machine that is long replaced.
func ReporterOf(node *corev1.Node) Identity {
	if id := reportedBy(node); id != (Identity{}) {
		return id
	}
	return identityIn(node.Annotations)
}

// Reports reports whether the stored Node has the status of the machine that wants it to be
// desired. Then nobody may delete it for another's, whatever is noted there: somebody
// has changed that manually, or a kubelet of this host had the Node meanwhile, or to take
// it over has failed half-way.
func Reports(stored, desired *corev1.Node) bool {
	reporter := reportedBy(stored)
	return reporter != (Identity{}) && !reporter.Differs(IdentityOf(desired))
}

func reportedBy(node *corev1.Node) Identity {
	return Identity{MachineID: node.Status.NodeInfo.MachineID, SystemUUID: node.Status.NodeInfo.SystemUUID}
}

// holderOf is the machine that a Node belongs to, by the Lease that goes with it, nil
// if there is none. A Lease without hostler's notes is a kubelet's.
func holderOf(node *corev1.Node, lease *coordinationv1.Lease) Identity {
	if lease == nil || identityIn(lease.Annotations) == (Identity{}) {
		return ReporterOf(node)
	}
	return IdentityOf(node)
}

// HolderOf is the machine that is noted on a Lease; a kubelet notes none.
func HolderOf(lease *coordinationv1.Lease) Identity { return identityIn(lease.Annotations) }

func identityIn(annotations map[string]string) Identity {
	return Identity{MachineID: annotations[AnnotationMachineID], SystemUUID: annotations[AnnotationSystemUUID]}
}

// Differs reports whether the two are known to be different machines.
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

// IdentityError reports that another machine, which is or may be alive, has this Node's
// name.
type IdentityError struct {
	Name         string // of the Node
	Theirs, Ours Identity
	// LeaseRenewed is when the other machine last renewed its Lease, by its own
	// clock; zero if that is not known.
	LeaseRenewed time.Time
	// Until is when the other machine is considered dead unless it renews its Lease
	// before; zero if that is not waited for.
	Until time.Time
	// Renewed is whether it was seen to renew it, and so is alive.
	Renewed bool
}

// Watching reports whether it is not known yet if the other machine lives, and will be
// known at Until.
func (e *IdentityError) Watching() bool { return !e.Until.IsZero() && !e.Renewed }

// Error names both machines and what to do.
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

// refusal is the error for a Node whose Lease says that its machine is not dead.
func refusal(name string, theirs, ours Identity, lease *coordinationv1.Lease, observed Observation) *IdentityError {
	return &IdentityError{Name: name, Theirs: theirs, Ours: ours, LeaseRenewed: lease.Spec.RenewTime.Time, Until: observed.Until, Renewed: observed.Renewed}
}

// LeaseAlive reports whether, going by wall clocks, the Lease has not expired at
// now, which is of use only for one's own: see LeaseWatch. A nil Lease is dead.
func LeaseAlive(lease *coordinationv1.Lease, now time.Time) bool {
	if lease == nil || lease.Spec.RenewTime == nil || lease.Spec.LeaseDurationSeconds == nil {
		return false
	}
	duration := time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second
	return now.Before(lease.Spec.RenewTime.Add(duration))
}

// CheckLeave returns an *IdentityError if the stored Node is, by its notes or by its
// status, known to be another machine's than the one that is to leave.
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
