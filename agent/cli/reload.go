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

// goesOn begins the lines after the first.
const goesOn = "  "

func (a *app) reloadCommand() *cobra.Command {
	var pid int
	cmd := a.reader("reload", "Have the agent take up its configuration files; needs root", func(ctx context.Context, c *api.Client, out *output) error {
		r, err := c.Reload(ctx)
		if unreachable := new(api.UnreachableError); pid > 0 && errors.As(err, &unreachable) {
			return a.hangUp(pid, unreachable)
		}
		if err != nil {
			return err
		}
		return out.print(r, func(t *table) {
			if len(r.Changed) == 0 {
				t.line("nothing has changed")
				return
			}
			for i, line := range wrap("in force now: "+strings.Join(r.Changed, ", "), screenWidth-len(goesOn)) {
				if i > 0 {
					line = goesOn + line
				}
				t.line("%s", line)
			}
		})
	})
	cmd.Long = `Have the agent read its configuration files again, and print what has changed,
or why all of it was refused: a fault in a file, or a key that a restart alone
takes up. systemctl reload hostler does the same, and fails where this fails.`
	cmd.Flags().IntVar(&pid, "signal", 0, "where no agent answers at the socket, send SIGHUP to process `PID`, which reloads and answers in its log alone")
	return cmd
}

// hangUp reloads an agent whose socket is elsewhere: the service manager knows its
// process.
func (a *app) hangUp(pid int, why error) error {
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil {
		return fmt.Errorf("signal process %d: %w; %w", pid, err, why)
	}
	_, err := fmt.Fprintf(a.Stderr, "hostler: %s\nprocess %d was sent SIGHUP instead: its log tells whether it reloads\n", firstLine(why.Error()), pid)
	return err
}
