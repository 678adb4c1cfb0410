// Package cli is the hostler command, with one file for each verb. It owns arguments, output and exit
// codes. It gets all facts from the agent's API, except for the commands about configuration files
// and the control plane check.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent"
	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
)

// Process is the environment of the command.
type Process struct {
	Args    []string
	Stdout  io.Writer
	Stderr  io.Writer
	Getenv  func(string) string
	Signals <-chan os.Signal // SIGINT, SIGTERM and SIGHUP
	Now     func() time.Time // the current time, to print ages
	Version string
	// WatchInterval is how often --watch refreshes the screen; 0 means 2 s.
	WatchInterval time.Duration
}

// Exit codes, as documented in docs/reference/commands.md.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2  // wrong use of the command line
	exitUnreachable = 3  // the agent cannot be reached
	exitAgain       = 75 // systemd must restart the agent, see hostler.service (EX_TEMPFAIL of sysexits.h)
)

// Run runs the command and returns its exit code.
func Run(p Process) int {
	a := newApp(p)
	root := a.root()
	root.SetArgs(p.Args)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitDone
	}

	var unreachable *api.UnreachableError
	var unresponsive silentError
	switch {
	case errors.As(err, &unresponsive):
		return exitFailed
	case !a.entered && !errors.As(err, new(usageError)): // cobra rejected the command line
		fmt.Fprintf(a.Stderr, "hostler: %s\nhint: see `%s --help`\n", rejection(err), cmd.CommandPath())
		return exitUsage
	}
	fmt.Fprintf(a.Stderr, "hostler: %s\n", new(table).once(err.Error()))
	switch {
	case errors.As(err, &unreachable):
		return exitUnreachable
	case errors.As(err, new(usageError)):
		return exitUsage
	case errors.Is(err, agent.ErrNamed):
		return exitAgain
	}
	return exitFailed
}

// rejection returns why cobra rejected the command line. It replaces cobra's text about flags that exclude each
// other, which lists a group of flags.
func rejection(err error) string {
	_, set, found := strings.Cut(err.Error(), " are set none of the others can be; [")
	if !found {
		return err.Error()
	}
	names := strings.Fields(strings.TrimSuffix(set, "] were all set"))
	return "--" + strings.Join(names, " and --") + " cannot be used together"
}

// Command returns the whole command tree, for documentation; Run executes it.
func Command(p Process) *cobra.Command { return newApp(p).root() }

// usageError is a wrong command line. It has its own hint.
type usageError string

func (e usageError) Error() string { return string(e) }

// silentError ends a command with exit code 1 after the command has printed the problem.
type silentError struct{}

func (silentError) Error() string { return "failed" }

// app has what the commands share.
type app struct {
	Process         // Stdout and Stderr without control characters other than hostler's own
	raw     Process // Stdout and Stderr without this filter
	entered bool    // cobra has started the command's function
	socket  string  // value of --socket
}

func newApp(p Process) *app {
	a := &app{Process: p, raw: p}
	a.Stdout, a.Stderr = printable(p.Stdout), printable(p.Stderr)
	return a
}

func (a *app) root() *cobra.Command {
	version := false
	root := &cobra.Command{
		Use:   "hostler",
		Short: "Node agent for container hosts",
		Long: `Hostler is a node agent for container hosts. It stops pods in order before a
shutdown, removes unused images and dead containers, and reports the state of
the host to the control plane.

On call: /usr/share/doc/hostler/docs/reference/doctor.md
Exit codes: 0 success, 1 failure, 2 wrong command line, 3 agent unreachable.
Environment: HOSTLER_CONFIG (configuration file), HOSTLER_SOCKET (API socket).`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if version {
				_, err := fmt.Fprintln(a.Stdout, "hostler "+a.Version)
				return err
			}
			return cmd.Help()
		},
	}
	root.Flags().BoolVar(&version, "version", false, "print the version of this command")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetUsageFunc(usage)
	root.SetFlagErrorFunc(wrongFlag)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := cmd.ValidateFlagGroups() // cobra calls it later
		a.entered = err == nil
		return err
	}
	root.AddCommand(
		a.agentCommand(),
		a.statusCommand(),
		a.nodesCommand(),
		a.psCommand(),
		a.imagesCommand(),
		a.gcCommand(),
		a.shutdownCommand(),
		a.drainCommand(),
		a.rebootCommand(),
		a.cordonCommand(),
		a.uncordonCommand(),
		a.leaveCommand(),
		a.doctorCommand(),
		a.reloadCommand(),
		a.controlPlaneCommand(),
		a.configCommand(),
		a.serverCommand(),
		a.fleetCommand(),
		a.completionCommand(),
		a.versionCommand(),
	)
	return root
}

// group returns a command that only has subcommands.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  onlyCommands,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(children...)
	return cmd
}

// reader returns a command that queries the agent and prints the answer.
func (a *app) reader(use, short string, run func(ctx context.Context, c *api.Client, out *output) error) *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	a.socketFlag(cmd)
	formatFlag(cmd, &format)
	cmd.RunE = func(*cobra.Command, []string) error {
		out, err := a.output(format)
		if err != nil {
			return err
		}
		return a.interruptible(func(ctx context.Context) error { return run(ctx, a.client(), out) })
	}
	return cmd
}

func (a *app) socketFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.socket, "socket", "", "`PATH` of the agent's API socket (default: $HOSTLER_SOCKET, or "+config.DefaultSocket+")")
}

func formatFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", "table", "output `FORMAT`: table, wide, json or yaml")
	// RegisterFlagCompletionFunc fails only for an unknown flag; this one was added above.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

func (a *app) client() *api.Client {
	socket := config.DefaultSocket
	for _, s := range []string{a.Getenv("HOSTLER_SOCKET"), a.socket} {
		if s != "" {
			socket = s
		}
	}
	return api.NewClient(socket)
}

// errInterrupted is returned by a command that a signal ended.
var errInterrupted = errors.New("interrupted")

// interruptible calls run with a context that a signal cancels. A second one of a person, SIGINT, ends the command even if run
// does not return, for example because a read hangs. Other signals may be sent twice for one reason.
func (a *app) interruptible(run func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	for {
		select {
		case err := <-done:
			if err != nil && ctx.Err() != nil {
				return errInterrupted // instead of the error of the cancelled request
			}
			return err
		case s := <-a.Signals:
			if ctx.Err() != nil && s == os.Interrupt {
				return errInterrupted
			}
			cancel()
		}
	}
}

func (a *app) versionCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{Use: "version", Short: "Print the version of this command", Args: cobra.NoArgs}
	formatFlag(cmd, &format)
	cmd.RunE = func(*cobra.Command, []string) error {
		out, err := a.output(format)
		if err != nil {
			return err
		}
		v := struct {
			Version string `json:"version"`
		}{a.Version}
		return out.print(v, func(w *table) { w.line("hostler " + a.Version) })
	}
	return cmd
}

func (a *app) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:                   "completion bash|zsh|fish",
		Short:                 "Print a completion script for a shell",
		Example:               "  source <(hostler completion bash)",
		ValidArgs:             []string{"bash", "zsh", "fish"},
		Args:                  oneShell,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch root := cmd.Root(); args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.Stdout)
			default:
				return root.GenFishCompletion(a.Stdout, true)
			}
		},
	}
}
