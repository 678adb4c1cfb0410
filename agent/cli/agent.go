package cli

import (
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent"
	"hostler.io/hostler/agent/config"
)

// gcPercent is how much the heap may grow between two garbage collections. Next
// to nothing lives on in an idle agent's, and a look at hundreds of images is
// forgotten at once: the default, 100, costs 4 MB to save 10 ms a minute.
const gcPercent = 50

func (a *app) agentCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent; this is what the service runs",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			loaded, err := a.checked(file)
			if err != nil {
				return err
			}
			if a.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			log, level := agent.NewLog(a.Stderr, loaded.Log, a.Getenv("JOURNAL_STREAM"))
			daemon, err := agent.New(agent.Options{
				Config:   loaded,
				File:     a.named(file),
				Reload:   func() (config.Loaded, error) { return a.load(file) },
				Version:  a.Version,
				Getenv:   a.Getenv,
				Unsetenv: os.Unsetenv,
				Log:      log,
				Level:    level,
			})
			if err != nil {
				return err
			}
			return daemon.Run(a.Signals)
		},
	}
	configFlag(cmd, &file)
	return cmd
}
