package owner

import (
	"encoding/json"
	"log/slog"
	"sync"
)

// keyKubeletsNode is where the notes keep the name of the Node in a cluster that a
// kubelet of this host has.
const keyKubeletsNode = "kubelets-node"

// Notes keep values by key, also where other state is lost.
type Notes interface {
	Load() (map[string][]byte, error)
	Write(put map[string][]byte, remove []string) error
}

// KubeletsNode remembers, across restarts and boots, that a kubelet of this host has the
// Node, or had it last: while that does not run, the cluster must not take the host for one
// that starts pods. It is safe for concurrent use.
type KubeletsNode struct {
	notes Notes
	node  string
	log   *slog.Logger

	mu   sync.Mutex
	held bool // guarded by mu
}

// OpenKubeletsNode reads what an earlier run has noted of the Node of that name.
func OpenKubeletsNode(notes Notes, node string, log *slog.Logger) *KubeletsNode {
	k := &KubeletsNode{notes: notes, node: node, log: log}
	var name string
	noted, err := notes.Load()
	if value, found := noted[keyKubeletsNode]; err == nil && found {
		err = json.Unmarshal(value, &name)
	}
	if err != nil {
		log.Warn("whether the node is a kubelet's is not known before that runs", "error", err)
	}
	k.held = name == node
	return k
}

// Held reports whether the Node is a kubelet's.
func (k *KubeletsNode) Held() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.held
}

// Note notes whether a kubelet was found. Where none was, only a person who switches the job
// on makes the Node hostler's again.
func (k *KubeletsNode) Note(found, switchedOn bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case found && !k.held:
		k.held = true
		k.keep()
	case !found && switchedOn && k.held:
		k.held = false
		_ = k.notes.Write(nil, []string{keyKubeletsNode})
	}
}

// keep writes the note. The caller holds mu.
func (k *KubeletsNode) keep() {
	name, err := json.Marshal(k.node)
	if err == nil {
		err = k.notes.Write(map[string][]byte{keyKubeletsNode: name}, nil)
	}
	if err != nil { // it is found again
		k.log.Warn("that the node is a kubelet's is not kept", "error", err)
	}
}
