package cli

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/inspect"
	"hostler.io/hostler/agent/open"
)

// gcPercent is how much the heap may grow between two garbage collections of Go. An idle agent keeps
// little memory, and releases the data of a scan at once: the default, 100, costs 4 MB and saves 10
// ms a minute.
const gcPercent = 50

func (a *app) agentCommand() *cobra.Command {
	var file, ended string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent (the service runs this)",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ended != "" {
				return a.takeBack(cmd.Context(), ended)
			}
			loaded, err := a.checked(file)
			if err != nil {
				return err
			}
			if a.Getenv("GOGC") == "" {
				debug.SetGCPercent(gcPercent)
			}
			log, level, end := open.Log(a.raw.Stderr, loaded.Log, a.Getenv("JOURNAL_STREAM"))
			defer end()
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
	cmd.Flags().StringVar(&ended, "take-back", "", "do not run the agent; remove the logind drop-in that a killed agent of service `UNIT` left")
	_ = cmd.Flags().MarkHidden("take-back") // nobody types it
	cmd.MarkFlagsMutuallyExclusive("config", "take-back")
	return cmd
}

// takeBack is for ExecStopPost= of the service, for which systemd sets how the agent ended, and for
// the removal of the package.
func (a *app) takeBack(ctx context.Context, service string) error {
	log, _, end := open.Log(a.raw.Stderr, config.Default().Log, a.Getenv("JOURNAL_STREAM"))
	defer end()
	ended := inspect.Ended{Service: service, Result: a.Getenv("SERVICE_RESULT")}
	if ended.Result == "exit-code" { // other ends than that have nothing to do with it
		_, _, fault := a.orDefaults(ctx)
		ended.Refused = fault != nil
	}
	return inspect.TakeBack(ctx, ended, log)
}
