package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/inspect"
	serverconfig "hostler.io/hostler/controlplane/server/config"
	"hostler.io/hostler/internal/trust"
)

// configFlag gives cmd the flag --config.
func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "configuration `FILE`; files in conf.d next to it are read too (default: $HOSTLER_CONFIG, or "+config.DefaultFile+")")
}

// named returns the absolute path of the file in the flag or the environment; empty for the default
// path.
func (a *app) named(file string) string {
	file = cmp.Or(file, a.Getenv("HOSTLER_CONFIG"))
	if file == "" || file == config.DefaultFile {
		return ""
	}
	if whole, err := filepath.Abs(file); err == nil {
		return whole
	}
	return file
}

// load reads the configuration that the agent would read.
func (a *app) load(file string) (config.Loaded, error) {
	file = cmp.Or(file, a.Getenv("HOSTLER_CONFIG"), config.DefaultFile)
	return hintMissing(config.Load(file, dropIns(file)))
}

// hintMissing adds a hint to the error that a file is missing.
func hintMissing(loaded config.Loaded, err error) (config.Loaded, error) {
	if errors.Is(err, fs.ErrNotExist) { // the default file may be missing, so this one was named explicitly
		err = fmt.Errorf("%w\nhint: correct --config or HOSTLER_CONFIG, or omit it to use the defaults", err)
	}
	return loaded, err
}

// dropIns returns the folder of the drop-ins that belong to a file.
func dropIns(file string) string { return filepath.Join(filepath.Dir(file), "conf.d") }

// checked loads the configuration and prints its faults, one on each line.
func (a *app) checked(file string) (config.Loaded, error) { return a.printFaults(a.load(file)) }

// printFaults prints the faults of a loaded configuration, one on each line.
func (a *app) printFaults(loaded config.Loaded, err error) (config.Loaded, error) {
	return loaded, a.withoutFaults(err)
}

// withoutFaults prints the faults in an error, and returns the rest of the error.
func (a *app) withoutFaults(err error) error {
	var faults config.Faults
	if errors.As(err, &faults) {
		fmt.Fprintln(a.Stderr, faults.Error())
		return silentError{}
	}
	return err
}

// agentFile returns the path of the configuration file that the agent reads: the one in the
// environment, or that of hostler.service. It is empty for the default path.
func (a *app) agentFile(ctx context.Context) string {
	if a.Getenv("HOSTLER_CONFIG") == "" {
		return inspect.ServiceConfig(ctx)
	}
	return a.named("")
}

// orDefaults returns the configuration for commands that work without an agent, and its file if
// that is not the default path. If files are faulty, orDefaults returns the defaults and the fault.
func (a *app) orDefaults(ctx context.Context) (file string, loaded config.Loaded, fault error) {
	file = a.agentFile(ctx)
	loaded, err := a.load(file)
	if err != nil {
		return file, config.Loaded{Config: config.Default()}, err
	}
	return file, loaded, nil
}

// shown is checked with warnings about ignored files.
func (a *app) shown(file string) (config.Loaded, error) { return a.warnIgnored(a.checked(file)) }

// warnIgnored prints warnings about ignored files in the configuration directory.
func (a *app) warnIgnored(loaded config.Loaded, err error) (config.Loaded, error) {
	a.warnNotRead(loaded.Ignored)
	return loaded, err
}

// warnNotRead prints a warning for each ignored file.
func (a *app) warnNotRead(ignored []string) {
	for _, f := range ignored {
		fmt.Fprintf(a.Stderr, "warning: %s: %s\n", f, config.NotRead)
	}
}

// shownOrDraft is shown for a file of this host or of another one. For another host, it only warns
// if an agent on this host would reject the file.
func (a *app) shownOrDraft(file string, another bool) (config.Loaded, error) {
	if !another || filepath.Clean(file) == config.DefaultFile {
		return a.shown(file)
	}
	loaded, err := a.warnIgnored(a.printFaults(hintMissing(config.Draft(file, dropIns(file)))))
	for _, f := range loaded.Files {
		if _, _, err := trust.Path(f); err != nil {
			fmt.Fprintf(a.Stderr, "warning: %s: an agent on this host would reject it: %v\n", f, err)
		}
	}
	return loaded, err
}

// fits returns an error if an agent cannot start on this host with the configuration. Other missing
// things are only warnings.
func (a *app) fits(ctx context.Context, loaded config.Loaded) error {
	missing, err := inspect.Fits(ctx, loaded.Config)
	if missing != nil {
		fmt.Fprintf(a.Stderr, "warning: %v\n", loaded.Located(missing))
	}
	if err := loaded.Located(err); err != nil {
		return fmt.Errorf("%w\nhint: correct the configuration: the agent cannot start with it on this host. To check the file of another host, run `hostler config check FILE`", err)
	}
	return nil
}

// serverFlag adds the flag --server, which selects the configuration of the server.
func serverFlag(cmd *cobra.Command, server *bool) {
	cmd.Flags().BoolVar(server, "server", false, "the configuration of hostler server")
}

func (a *app) configCommand() *cobra.Command {
	var file string
	var server, serverDefaults bool
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Validate the configuration",
		Long: `Validate the configuration that the agent would read, or that of --config, and
check it against this host. With FILE, validate the configuration of any host,
without checking it against this host. Files in conf.d next to it are read too.
With --server, validate ` + serverconfig.DefaultFile + ` and its server.d.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && file != "" {
				return usageError(fmt.Sprintf("--config %s and argument %s both name a configuration\nhint: give only one of them", file, args[0]))
			}
			if server {
				return a.checkServerConfig(cmp.Or(append(args, file)...), len(args) > 0)
			}
			if len(args) == 0 && file == "" {
				file = a.agentFile(cmd.Context())
			}
			loaded, err := a.shownOrDraft(cmp.Or(append(args, file)...), len(args) > 0)
			if err == nil && len(args) == 0 {
				err = a.fits(cmd.Context(), loaded)
			}
			if err != nil {
				return err
			}
			if len(loaded.Files) == 0 {
				fmt.Fprintln(a.Stdout, "no configuration file: the defaults apply. To print them, run `hostler config default`")
			}
			for _, f := range loaded.Files {
				fmt.Fprintln(a.Stdout, f+": ok")
			}
			return nil
		},
	}
	defaults := &cobra.Command{
		Use:   "default",
		Short: "Print all keys with their defaults and descriptions",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			document := config.Documented
			if serverDefaults {
				document = serverconfig.Spec().Documented
			}
			text, err := document()
			if err != nil {
				return err
			}
			_, err = a.Stdout.Write(text)
			return err
		},
	}
	configFlag(check, &file)
	serverFlag(check, &server)
	serverFlag(defaults, &serverDefaults)
	return group("config", "Check and print the configuration", check, a.configShowCommand(), defaults, a.configSchemaCommand())
}

func (a *app) configSchemaCommand() *cobra.Command {
	var server bool
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of the configuration, for editors",
		Long: `Print the JSON Schema (draft 2020-12) of the configuration. An editor uses it to
complete keys, show their descriptions and mark errors. Packages install it as
` + config.SchemaFile + `. To use it, add this comment to a file:

  # yaml-language-server: $schema=` + config.SchemaFile + `

The schema does not cover rules that depend on other keys or on the host. To
check these, run hostler config check.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			schema := config.Schema
			if server {
				schema = serverconfig.Spec().Schema
			}
			text, err := schema()
			if err != nil {
				return err
			}
			_, err = a.Stdout.Write(text)
			return err
		},
	}
	serverFlag(cmd, &server)
	return cmd
}

func (a *app) configShowCommand() *cobra.Command {
	var file, format string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration, including defaults",
		Long: `Print the configuration that the agent runs with, including defaults. If the
files differ from it, print a warning. With --config, or if no agent answers,
print the configuration in the files.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if format != "yaml" && format != "json" {
				return usageError(fmt.Sprintf("unknown output format %q\nhint: use -o yaml or json", format))
			}
			return a.interruptible(func(ctx context.Context) error {
				text, err := a.effectiveConfig(ctx, file)
				if err == nil && format == "json" {
					text, err = indentedJSON(text)
				}
				if err != nil {
					return err
				}
				_, err = a.Stdout.Write(text)
				return err
			})
		},
	}
	a.socketFlag(cmd)
	configFlag(cmd, &file)
	cmd.Flags().StringVarP(&format, "output", "o", "yaml", "output `FORMAT`: yaml or json")
	// RegisterFlagCompletionFunc fails only for an unknown flag; this one was added above.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"yaml", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// effectiveConfig returns the agent's effective configuration as YAML. Without an agent, or with a
// file argument, it returns the configuration in the files.
func (a *app) effectiveConfig(ctx context.Context, file string) ([]byte, error) {
	if file == "" {
		c, err := a.client().Config(ctx)
		unreachable := new(api.UnreachableError)
		if !errors.As(err, &unreachable) {
			if trouble := c.Trouble(); trouble != "" {
				fmt.Fprintf(a.Stderr, "warning: %s\nhint: %s\n", trouble, c.Fix())
			}
			return []byte(c.YAML), err
		}
		fmt.Fprintf(a.Stderr, "no agent answers at %s (%v): showing the configuration in the files\n", unreachable.Socket, unreachable.Cause)
		file = a.agentFile(ctx)
	}
	loaded, err := a.shown(file)
	if err != nil {
		return nil, err
	}
	return loaded.YAML()
}

func indentedJSON(text []byte) ([]byte, error) {
	compact, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("write JSON: %w", err)
	}
	var b bytes.Buffer
	err = json.Indent(&b, compact, "", "  ")
	return append(b.Bytes(), '\n'), err
}
