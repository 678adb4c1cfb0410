package cli

import (
	"context"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
)

func (a *app) leaveCommand() *cobra.Command {
	var undo bool
	cmd := a.reader("leave", "Take the Node and its Lease off the control plane; needs root", func(ctx context.Context, c *api.Client, out *output) error {
		ask, tell := c.Leave, printLeft
		if undo {
			ask, tell = c.Return, printReturned
		}
		r, err := ask(ctx)
		if err != nil {
			return err
		}
		return out.print(r, func(t *table) {
			tell(t, r)
			if r.Message != "" {
				t.line("%s", r.Message)
			}
		})
	})
	cmd.Args = onThisHost
	cmd.Long = `Take the Node and its Lease off the control plane, before this host goes for
good or gets another name. No container is stopped: hostler drain does that.
The agent goes on looking after the host, but writes neither there, also after a
restart and a reboot, until hostler leave --undo. Another node.name or another
controlPlane.type in the configuration begins anew. Where a node may not delete
its own Node, the command says what somebody with the right has to type, and
fails; the agent no longer writes there all the same.`
	cmd.Flags().BoolVar(&undo, "undo", false, "register the Node again after a leave")
	return cmd
}

func printLeft(t *table, r maintenance.LeaveReport) {
	t.line("node %s has left control plane %s: Node and Lease are deleted", r.Node, r.ControlPlane)
	t.line("containers run on, and this host still looks after them; `hostler leave --undo` registers the node again")
}

func printReturned(t *table, r maintenance.LeaveReport) {
	if !r.Changed {
		t.line("node %s had not left control plane %s: nothing to undo", r.Node, r.ControlPlane)
		return
	}
	t.line("node %s returns to control plane %s; `hostler status` shows how it stands there", r.Node, r.ControlPlane)
}
