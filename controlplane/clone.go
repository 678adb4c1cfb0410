package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Clone is another machine that has this one's machine ID.
type Clone struct {
	// Node is the clone's node name: this Node's name if both renew one Lease.
	Node string
	// Instance names the clone's boot and process, if known.
	Instance string
}

// AnnotationSameMachine names other running hosts with the machine ID of the Node's host. `hostler server`
// sets it.
const AnnotationSameMachine = "hostler.io/same-machine-id"

// MostClones is how many names AnnotationSameMachine has at most.
const MostClones = 10

// NamedClones are the clones that the Node's annotation names, by name.
func NamedClones(node *corev1.Node) []Clone {
	var clones []Clone
	for _, name := range CloneNames(node.Annotations[AnnotationSameMachine]) {
		if name != node.Name {
			clones = append(clones, Clone{Node: name})
		}
	}
	return clones
}

// CloneNames are the names in the value of AnnotationSameMachine, in order. Anything that is no name of a
// Node is left out: others may write the value.
func CloneNames(value string) []string {
	parts := strings.SplitN(value, ",", MostClones+1)
	var names []string
	for _, name := range parts[:min(len(parts), MostClones)] {
		if name = strings.TrimSpace(name); len(validation.IsDNS1123Subdomain(name)) == 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// machineIDHint gives a machine a new ID, see machine-id(5) and systemd-machine-id-setup(1). It also
// removes the ID of D-Bus, which systemd would otherwise use again.
const machineIDHint = "rm -f /etc/machine-id /var/lib/dbus/machine-id && systemd-machine-id-setup && reboot"

// Message says what is wrong, for the Node of that name.
func (c Clone) Message(node string) string {
	if c.Node != node {
		return fmt.Sprintf("running node %s has the same machine ID: one host was cloned from the other", c.Node)
	}
	who := "another client"
	if c.Instance != "" {
		who = "another hostler (" + c.Instance + ")"
	}
	return fmt.Sprintf("%s also writes this Node and renews its lease: another host has the same name and machine ID, such as a clone", who)
}

// Fix is the command to run on the copy.
func (c Clone) Fix() string { return machineIDHint }

// twins detects another process that renews this process's Lease as the same machine. The keeper
// calls it when it finds another version of the Lease than its own. An earlier process of this
// machine does not count: its renewals are refused as outdated. The keeper's goroutine owns it.
type twins struct {
	instance string        // this process
	patience time.Duration // after which a twin without renewals is gone

	renewed   metav1.MicroTime   // last stored by this process; zero before
	sent      map[int64]struct{} // attempts since then, in microseconds
	sightings int
	seenAt    time.Time // when the last renewal of a twin was found
	twin      string    // its instance
}

// requiredSightings is how often another's renewal must be found before it is reported: a single one
// may be an outdated answer.
const requiredSightings = 2

// maxSent bounds how many attempts are remembered: those of two hours.
const maxSent = 1000

// sends records an attempt. It may be stored even if no answer arrives.
func (t *twins) sends(lease *coordinationv1.Lease) {
	if t.sent == nil {
		t.sent = map[int64]struct{}{}
	}
	if len(t.sent) == maxSent { // the next one that is stored begins again
		t.renewed = metav1.MicroTime{}
		clear(t.sent)
	}
	t.sent[lease.Spec.RenewTime.UnixMicro()] = struct{}{}
}

// stored records that the attempt was stored.
func (t *twins) stored(lease *coordinationv1.Lease) {
	t.renewed = *lease.Spec.RenewTime
	clear(t.sent)
	if t.sightings > 0 && time.Since(t.seenAt) > t.patience {
		t.sightings = 0
	}
}

// finds checks a stored Lease of this machine. A renewal belongs to another process if it is later
// than this process's last one and has another instance, or was not sent by this process.
func (t *twins) finds(lease *coordinationv1.Lease) {
	found := lease.Spec.RenewTime
	if t.renewed.IsZero() || found == nil || !t.renewed.Before(found) {
		return
	}
	instance := lease.Annotations[AnnotationInstance]
	if instance == t.instance {
		if _, own := t.sent[found.UnixMicro()]; own {
			return
		}
		instance = "" // memory and all was cloned, or it leaves marks as they are
	}
	t.sightings, t.seenAt, t.twin = t.sightings+1, time.Now(), instance
}

// clone returns the twin; nil if there is none.
func (t *twins) clone(node string) *Clone {
	if t.sightings < requiredSightings {
		return nil
	}
	return &Clone{Node: node, Instance: t.twin}
}
