package controlplane

import (
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Clone is another machine that has this one's machine ID.
type Clone struct {
	// Node is what it calls itself: this Node's name where both renew one Lease.
	Node string
	// Instance names its boot and process where that is known.
	Instance string
}

// machineIDHint gives a machine an ID of its own, see machine-id(5) and
// systemd-machine-id-setup(1): that of D-Bus would be taken up again.
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

// Fix is what to type, on the one of the two that is the copy.
func (c Clone) Fix() string { return machineIDHint }

// twins reports whether another process renews this one's Lease as the same machine,
// from what a keeper finds there when it finds another version than its own. A former
// process of this machine is none, after a restart or a boot: it writes nothing any
// more once this one has, for its renewals are refused as outdated. The goroutine
// that runs the keeper owns it.
type twins struct {
	instance string        // this process
	patience time.Duration // after which a twin that was not heard of is gone

	renewed   metav1.MicroTime   // what this process has stored last; zero before
	sent      map[int64]struct{} // what it has tried to since, in microseconds
	sightings int
	seenAt    time.Time // when a renewal of a twin's was found last
	twin      string    // its instance
}

// requiredSightings are how often another's renewal must be found before it is believed:
// once may be an answer from the past.
const requiredSightings = 2

// maxSent bounds how many attempts are remembered: those of two hours.
const maxSent = 1000

// sends notes what is about to be sent, and may be stored without an answer.
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

// stored notes that it was stored.
func (t *twins) stored(lease *coordinationv1.Lease) {
	t.renewed = *lease.Spec.RenewTime
	clear(t.sent)
	if t.sightings > 0 && time.Since(t.seenAt) > t.patience {
		t.sightings = 0
	}
}

// finds takes in a stored Lease that is this machine's. A renewal after this
// process's own last one that bears another's mark, or that this process has not sent,
// is another client's.
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

// clone is the twin that is there; nil if none is.
func (t *twins) clone(node string) *Clone {
	if t.sightings < requiredSightings {
		return nil
	}
	return &Clone{Node: node, Instance: t.twin}
}
