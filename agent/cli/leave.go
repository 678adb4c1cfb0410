package cli

import (
	"context"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/maintenance"
)

func (a *app) leaveCommand() *cobra.Command {
	var undo bool
	cmd := a.reader("leave", "Deregister this host: delete its Node and Lease; needs root", func(ctx context.Context, c *api.Client, out *output) error {
		ask, report := c.Leave, printLeft
		if undo {
			ask, report = c.Return, printReturned
		}
		r, err := ask(ctx)
		if err != nil {
			return err
		}
		return out.print(r, func(t *table) {
			report(t, r)
			if r.Message != "" {
				t.line("%s", t.once(r.Message))
			}
		})
	})
	cmd.Args = onThisHost
	cmd.Long = `Deregister this host: delete its Node and Lease from the control plane. Use it
before you remove or rename the host. No container is stopped: to stop them, run
hostler drain first.

The agent keeps running, but writes neither Node nor Lease, also after a restart
or a reboot. To register the host again, run hostler leave --undo, or change
node.name or controlPlane.type in the configuration.

If the node may not delete its own Node, the command prints the command for an
administrator, and fails. The agent stops writing Node and Lease all the same.`
	cmd.Flags().BoolVar(&undo, "undo", false, "register the Node again after a leave")
	return cmd
}

func printLeft(t *table, r maintenance.LeaveReport) {
	t.line("deregistered node %s from control plane %s: deleted Node and Lease", r.Node, r.ControlPlane)
	t.line("containers keep running, and hostler still manages them; to register the node again, run `hostler leave --undo`")
}

func printReturned(t *table, r maintenance.LeaveReport) {
	if !r.Changed {
		t.line("node %s was not deregistered from control plane %s: nothing to undo", r.Node, r.ControlPlane)
		return
	}
	t.line("registering node %s with control plane %s again; to check, run `hostler status`", r.Node, r.ControlPlane)
}
