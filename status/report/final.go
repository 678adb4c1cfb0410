package report

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// keyFinal is the key of the final status of a boot in the store.
const keyFinal = "last-word"

// final is the final status of a boot, for the Node while the host is down. It is stored on disk in
// case the control plane does not receive it in time; then the next boot sends it. turn guards it.
type final struct {
	loaded      bool
	kept        bool               // the store has one
	undelivered *corev1.NodeStatus // from an earlier boot, sent before the next status
}

// finalStatus is the stored format.
type finalStatus struct {
	Boot   string            `json:"boot"` // the boot that it ended
	Status corev1.NodeStatus `json:"status"`
}

// keep stores the status of a host that is shutting down.
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

// forget removes the stored status after a later status was written.
func (f *final) forget(o Options) {
	if !f.kept {
		return
	}
	if err := o.Store.Write(nil, []string{keyFinal}); err == nil {
		f.kept = false
	}
}

// load reads, once, the status that an earlier boot could not send. It ignores one of this boot,
// which will write a later status.
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
