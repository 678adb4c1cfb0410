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

// AnnotationSameMachine names other running hosts with the machine ID of the Node's host. `hostler
// server` sets it.
const AnnotationSameMachine = "hostler.io/same-machine-id"

// MostClones is how many names AnnotationSameMachine has at most.
const MostClones = 10

// NamedClones returns the clones that the Node's annotation names, by name.
func NamedClones(node *corev1.Node) []Clone {
	var clones []Clone
	for _, name := range CloneNames(node.Annotations[AnnotationSameMachine]) {
		if name != node.Name {
			clones = append(clones, Clone{Node: name})
		}
	}
	return clones
}

// CloneNames parses the value of AnnotationSameMachine. It leaves out invalid Node names, because
// other clients may write the value.
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

// Message describes the problem, for the Node of that name.
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

// Fix returns the command to run on the copy.
func (c Clone) Fix() string { return machineIDHint }

// cloneDetector detects another process that renews this process's Lease as the same machine. The
// keeper calls it when the stored Lease is not the keeper's own version. Earlier processes of this
// machine do not count: the control plane refuses their renewals as outdated. The keeper's
// goroutine owns it.
type cloneDetector struct {
	instance  string        // of this process
	goneAfter time.Duration // another process that has not renewed for this long is gone

	renewed   metav1.MicroTime   // last renewal stored by this process; zero before the first
	sent      map[int64]struct{} // renewTimes of attempts since then, in microseconds
	sightings int
	seenAt    time.Time // when its last renewal was found
	other     string    // instance of the other process
}

// requiredSightings is how many renewals of another process are found before it is reported. A
// single one may come from an outdated answer.
const requiredSightings = 2

// maxSent bounds the number of remembered attempts: two hours of them.
const maxSent = 1000

// recordAttempt records an attempt. The control plane may store it even if no answer arrives.
func (t *cloneDetector) recordAttempt(lease *coordinationv1.Lease) {
	if t.sent == nil {
		t.sent = map[int64]struct{}{}
	}
	if len(t.sent) == maxSent { // detection starts again with the next stored renewal
		t.renewed = metav1.MicroTime{}
		clear(t.sent)
	}
	t.sent[lease.Spec.RenewTime.UnixMicro()] = struct{}{}
}

// recordStored records that the attempt was stored.
func (t *cloneDetector) recordStored(lease *coordinationv1.Lease) {
	t.renewed = *lease.Spec.RenewTime
	clear(t.sent)
	if t.sightings > 0 && time.Since(t.seenAt) > t.goneAfter {
		t.sightings = 0
	}
}

// observe checks a stored Lease of this machine. A renewal belongs to another process if it is later
// than this process's last one and has another instance, or was not sent by this process.
func (t *cloneDetector) observe(lease *coordinationv1.Lease) {
	found := lease.Spec.RenewTime
	if t.renewed.IsZero() || found == nil || !t.renewed.Before(found) {
		return
	}
	instance := lease.Annotations[AnnotationInstance]
	if instance == t.instance {
		if _, own := t.sent[found.UnixMicro()]; own {
			return
		}
		instance = "" // a full copy with its memory, or a client that leaves the instance unchanged
	}
	t.sightings, t.seenAt, t.other = t.sightings+1, time.Now(), instance
}

// clone returns the other process; nil if there is none.
func (t *cloneDetector) clone(node string) *Clone {
	if t.sightings < requiredSightings {
		return nil
	}
	return &Clone{Node: node, Instance: t.other}
}
