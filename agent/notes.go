package agent

import (
	"encoding/json"

	"hostler.io/hostler/agent/owner"
)

// keyKubeletsNode is where the notes keep the name of the Node in a cluster that a
// kubelet of this host has.
const keyKubeletsNode = "kubelets-node"

// noteKubelet keeps, across restarts and boots, that the Node is a kubelet's: where
// that does not run, or not yet, the cluster must not take the host for one that
// starts pods. Only a person who switches the job on makes the Node hostler's again.
func (a *Agent) noteKubelet(found bool) {
	switch on := switches(a.config())[owner.Node] == owner.On; {
	case found && a.kubeletsNode.CompareAndSwap(false, true):
		a.keepKubelet()
	case !found && on && a.kubeletsNode.CompareAndSwap(true, false):
		_ = a.notes.Write(nil, []string{keyKubeletsNode})
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
	if err != nil {
		a.log.Warn("whether the node is a kubelet's is not known before that runs", "error", err)
	}
	a.kubeletsNode.Store(name == a.node)
}
