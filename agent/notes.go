package agent

import (
	"encoding/json"
	"errors"

	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/status/report"
)

// openNotes opens what is kept of the Node that nothing else tells, and that a state file
// which is damaged, or set aside by a downgrade, must not take along.
func (a *Agent) openNotes() {
	a.kept = a.state.Bucket("agent")
	a.notes = a.state.Notes("node")
	if err := a.notes.Inherit(a.kept, report.KeyCordon, report.KeyLeft); err != nil {
		a.log.Warn("what a person said of the node to an earlier version is not known", "error", err)
	}
	a.recallKubelet()
}

// keyKubeletsNode is where the notes keep the name of the Node in a cluster that a
// kubelet of this host has. Earlier versions have it in the state file, and not as JSON.
const keyKubeletsNode = "kubelets-node"

// noteKubelet keeps, across restarts and boots, that the Node is a kubelet's: where
// that does not run, or not yet, the cluster must not take the host for one that
// starts pods. Only a person who switches the job on makes the Node hostler's again.
func (a *Agent) noteKubelet(found bool) {
	switch on := switches(a.config())[owner.Node] == owner.On; {
	case found && a.kubeletsNode.CompareAndSwap(false, true):
		a.keepKubelet()
	case !found && on && a.kubeletsNode.CompareAndSwap(true, false):
		_ = errors.Join(a.notes.Write(nil, []string{keyKubeletsNode}), a.kept.Write(nil, []string{keyKubeletsNode}))
	}
}

func (a *Agent) keepKubelet() {
	name, err := json.Marshal(a.node)
	if err == nil {
		err = a.notes.Write(map[string][]byte{keyKubeletsNode: name}, nil)
	}
	if err != nil { // it is found again
		a.log.Warn("that the node is a kubelet's is not kept", "error", err)
	}
}

// recallKubelet takes up what an earlier run has noted.
func (a *Agent) recallKubelet() {
	var name string
	noted, err := a.notes.Load()
	if value, found := noted[keyKubeletsNode]; err == nil && found {
		err = json.Unmarshal(value, &name)
	}
	before, unread := a.kept.Load()
	if err := errors.Join(err, unread); err != nil {
		a.log.Warn("whether the node is a kubelet's is not known before that runs", "error", err)
	}
	switch {
	case name == a.node:
		a.kubeletsNode.Store(true)
	case string(before[keyKubeletsNode]) == a.node:
		a.kubeletsNode.Store(true)
		a.keepKubelet()
	default:
		a.kubeletsNode.Store(false)
	}
}
