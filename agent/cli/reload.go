package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/api"
)

// continuation is the indent of the lines after the first.
const continuation = "  "

func (a *app) reloadCommand() *cobra.Command {
	var pid int
	cmd := a.reader("reload", "Reload the configuration files; needs root", func(ctx context.Context, c *api.Client, out *output) error {
		r, err := c.Reload(ctx)
		if unreachable := new(api.UnreachableError); pid > 0 && errors.As(err, &unreachable) {
			return a.sendHUP(pid, unreachable)
		}
		if err != nil {
			return err
		}
		return out.print(r, func(t *table) {
			defer func() {
				for _, w := range r.Warnings {
					t.line("warning: %s", w)
				}
			}()
			if len(r.Changed) == 0 {
				t.line("no changes")
				return
			}
			for i, line := range wrap("now effective: "+strings.Join(r.Changed, ", "), screenWidth-len(continuation)) {
				if i > 0 {
					line = continuation + line
				}
				t.line("%s", line)
			}
		})
	})
	cmd.Long = `Make the agent read its configuration files again, and print what changed. If a
file has an error, or a changed key needs a restart, nothing is changed and the
command prints the reason. systemctl reload hostler does the same, and systemctl
reload hostler-server for a server.`
	cmd.Flags().IntVar(&pid, "signal", 0, "if no agent answers at the socket, send SIGHUP to process `PID`; the result is only in its log")
	return cmd
}

// sendHUP sends SIGHUP to an agent whose socket is elsewhere. The service manager knows its process
// ID.
func (a *app) sendHUP(pid int, why error) error {
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		return fmt.Errorf("signal process %d: %w; %w", pid, err, why)
	}
	_, err := fmt.Fprintf(a.Stderr, "hostler: %s\nsent SIGHUP to process %d instead: see its log for the result\n", firstLine(why.Error()), pid)
	return err
}
