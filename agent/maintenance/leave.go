package maintenance

import (
	"context"
	"errors"
	"fmt"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/controlplane"
	"hostler.io/hostler/agent/owner"
	"hostler.io/hostler/agent/report"
)

// Leave takes the Node and its Lease off the control plane, for a person. The Lease
// comes to rest before, so that no renewal creates it again. Where the node itself
// may not delete them it rests all the same, for somebody else to do so.
func (d *Drainer) Leave(ctx context.Context) (api.LeaveReport, error) {
	answer := api.LeaveReport{Node: d.o.Node, ControlPlane: d.o.ControlPlane, By: api.Caller(ctx)}
	before := d.o.Member.Reason()
	d.o.Member.Set("the node leaves the control plane")
	resting, rested := context.WithTimeout(ctx, report.WriteTimeout)
	defer rested()
	err := d.o.Member.Idle(resting)
	if err == nil {
		telling, cancel := context.WithTimeout(ctx, report.WriteTimeout)
		defer cancel()
		err = d.o.Reporter.Leave(telling, answer.By)
	}
	switch {
	case err == nil:
		return answer, nil
	case errors.Is(err, controlplane.ErrForbidden):
		return answer, &api.Error{
			Message: fmt.Sprintf("leave: %v: this host no longer renews its lease nor writes its Node, but may not delete them", err),
			Hint:    fmt.Sprintf("whoever has the right types `kubectl delete node %s`, with which the lease goes; `systemctl restart hostler` takes it back", d.o.Node),
		}
	}
	d.o.Member.Set(before) // all goes on
	if errors.Is(err, report.ErrNotOurs) {
		_, other, _ := d.o.Owners.Mine(owner.Node)
		e := &api.Error{Message: fmt.Sprintf("leave: node %s is not hostler's: %s", d.o.Node, other.Evidence), Hint: "a host with node.enabled: false has no Node to take away"}
		if other.Name == owner.Kubelet {
			e.Hint = fmt.Sprintf("the Node is the kubelet's: stop that, and then `kubectl delete node %s`", d.o.Node)
		}
		return answer, e
	}
	return answer, &api.Error{
		Message: fmt.Sprintf("leave: node %s: %v", d.o.Node, err),
		Hint:    "nothing has changed: the Node and its lease are kept up as before; see `hostler status`, and try again",
	}
}
