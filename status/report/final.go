package report

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// keyFinal is where the store keeps the final status of a boot.
const keyFinal = "last-word"

// final is the final status of a boot: what the Node should say while the host is down. It is
// kept on disk in case that the control plane does not take it in time; the next boot
// delivers it. The turn guards it.
type final struct {
	loaded      bool
	kept        bool               // the store holds one
	undelivered *corev1.NodeStatus // of an earlier boot, to be delivered first
}

// finalStatus is how the store keeps it.
type finalStatus struct {
	Boot   string            `json:"boot"` // that ended with it
	Status corev1.NodeStatus `json:"status"`
}

// keep stores the status of a host that goes down.
func (f *final) keep(o Options, status corev1.NodeStatus) {
	value, err := json.Marshal(finalStatus{o.Boot, status})
	if err == nil {
		err = o.Store.Write(map[string][]byte{keyFinal: value}, nil)
	}
	if err != nil {
		o.Log.Warn("cannot persist final status of this boot", "error", err)
		return
	}
	f.kept = true
}

// forget removes it, once a later status was written.
func (f *final) forget(o Options) {
	if !f.kept {
		return
	}
	if err := o.Store.Write(nil, []string{keyFinal}); err == nil {
		f.kept = false
	}
}

// load reads, once, what an earlier boot could not deliver. What this boot kept is followed
// by a later status in any case.
func (f *final) load(o Options) {
	if f.loaded {
		return
	}
	f.loaded = true
	values, err := o.Store.Load()
	if err != nil {
		o.Log.Warn("cannot read final status of the last boot", "error", err)
		return
	}
	value, found := values[keyFinal]
	if !found {
		return
	}
	f.kept = true
	var stored finalStatus
	if err := json.Unmarshal(value, &stored); err != nil {
		o.Log.Warn("cannot decode final status of an earlier boot", "error", err)
		return
	}
	if stored.Boot != o.Boot {
		f.undelivered = &stored.Status
	}
}
