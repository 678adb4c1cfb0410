package reboot

import (
	"cmp"
	"maps"
	"slices"
)

// Verdicts are the facts by which hostler itself says that a shutdown of this host now would harm.
type Verdicts struct {
	Unstored    string            // why the state is not on the disk; empty if it is
	Unqueried   bool              // the runtimes have not been queried since the agent started
	NotReady    map[string]string // runtimes that are not ready or do not answer, with their messages
	Twin        string            // another host that writes this Node, and so has the same slot; empty if there is none
	Refusal     string            // why the drain would be refused; empty if not, or if there is none
	Unasked     string            // why it is not known if the drain would be refused; empty if it is
	KeepsPods   bool              // a kubelet runs the pods: the drain leaves some to the shutdown
	Unprotected string            // why the shutdown would not wait for pods; empty if it would
	Unguarded   string            // why it is not known yet if the shutdown would wait for pods; empty if it is
}

// Held returns which verdicts hold a reboot in turn. The drain before the reboot makes the others harmless: it stops
// all pods with their whole grace period, whatever time logind grants.
func (v Verdicts) Held() (held []Finding) {
	add := func(source, message, fix string) {
		held = append(held, Finding{Source: source, Message: message, Hint: fix})
	}
	pending := func(source, message string) {
		held = append(held, Finding{Source: source, Message: message, Pending: true})
	}
	if v.Unstored != "" {
		add("state", v.Unstored, "see check state of `hostler doctor`")
	}
	if v.Unqueried {
		pending("runtimes", "they have not been queried since the agent started")
	}
	for _, name := range slices.Sorted(maps.Keys(v.NotReady)) {
		add("runtime "+name, cmp.Or(v.NotReady[name], "it is not ready"), "see check runtimes of `hostler doctor`")
	}
	if v.Twin != "" {
		add("clone", v.Twin, "see check cluster-node or etcd-node of `hostler doctor`")
	}
	if v.Refusal != "" && !v.KeepsPods {
		add("drain", v.Refusal, "")
	}
	if v.Unasked != "" && !v.KeepsPods {
		pending("drain", v.Unasked)
	}
	if v.Unprotected != "" && v.KeepsPods {
		add("protection", v.Unprotected, "see check protection of `hostler doctor`")
	}
	if v.Unguarded != "" && v.KeepsPods {
		pending("protection", v.Unguarded)
	}
	return held
}
