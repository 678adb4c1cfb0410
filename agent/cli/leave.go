package cli

import (
	"context"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
)

func (a *app) leaveCommand() *cobra.Command {
	cmd := a.reader("leave", "Take the Node and its Lease off the control plane; needs root", func(ctx context.Context, c *api.Client, out *output) error {
		r, err := c.Leave(ctx)
		if err != nil {
			return err
		}
		return out.print(r, func(t *table) {
			t.line("node %s has left control plane %s: Node and Lease are deleted", r.Node, r.ControlPlane)
			t.line("containers run on, and this host still looks after them; `systemctl restart hostler` registers the node again")
		})
	})
	cmd.Args = onThisHost
	cmd.Long = `Take the Node and its Lease off the control plane, before this host goes for
good or gets another name. No container is stopped: hostler drain does that.
The agent goes on looking after the host, and writes nothing there until it is
started again. Where a node may not delete its own Node, the command says what
somebody with the right has to type, and fails; the agent no longer writes there
all the same.`
	return cmd
}
