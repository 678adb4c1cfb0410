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

// gcPercent is Go's GOGC. An idle agent keeps little memory, and releases the data of a scan at
// once. The default, 100, needs 4 MB more and saves 10 ms of processor time a minute.
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
	_ = cmd.Flags().MarkHidden("take-back") // only hostler.service and the package scripts use it
	cmd.MarkFlagsMutuallyExclusive("config", "take-back")
	return cmd
}

// takeBack runs in ExecStopPost= of the service, where systemd reports how the agent ended. It also
// runs when the package is removed.
func (a *app) takeBack(ctx context.Context, service string) error {
	log, _, end := open.Log(a.raw.Stderr, config.Default().Log, a.Getenv("JOURNAL_STREAM"))
	defer end()
	ended := inspect.Ended{Service: service, Result: a.Getenv("SERVICE_RESULT")}
	if ended.Result == "exit-code" { // only this result can mean a rejected configuration
		_, _, fault := a.orDefaults(ctx)
		ended.Refused = fault != nil
	}
	return inspect.TakeBack(ctx, ended, log)
}
