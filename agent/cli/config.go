package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"hostler.io/hostler/agent/config"
)

// configFlag gives cmd the flag --config.
func configFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "config", "", "configuration `FILE`; the folder conf.d beside it is read as well (default: $HOSTLER_CONFIG, or "+config.DefaultFile+")")
}

// load reads the configuration that the agent would read.
func (a *app) load(file string) (config.Loaded, error) {
	for _, f := range []string{a.Getenv("HOSTLER_CONFIG"), config.DefaultFile} {
		if file == "" {
			file = f
		}
	}
	loaded, err := config.Load(file, filepath.Join(filepath.Dir(file), "conf.d"))
	if errors.Is(err, fs.ErrNotExist) { // nobody named a file that is missing at its default place
		err = fmt.Errorf("%w\nhint: correct --config or HOSTLER_CONFIG, or leave it out to run with the defaults", err)
	}
	return loaded, err
}

// checked loads the configuration and prints its faults, one a line.
func (a *app) checked(file string) (config.Loaded, error) {
	loaded, err := a.load(file)
	var faults config.Faults
	if errors.As(err, &faults) {
		fmt.Fprintln(a.Stderr, faults.Error())
		return loaded, silentError{}
	}
	return loaded, err
}

// shown is checked for a person, who is told as well what does not count.
func (a *app) shown(file string) (config.Loaded, error) {
	loaded, err := a.checked(file)
	for _, f := range loaded.Ignored {
		fmt.Fprintf(a.Stderr, "warning: %s: %s\n", f, notRead)
	}
	return loaded, err
}

// notRead is why a file does not count.
const notRead = "not read, as its name does not end in .yaml"

func (a *app) configCommand() *cobra.Command {
	var file string
	check := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration without starting anything",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			loaded, err := a.shown(file)
			if err != nil {
				return err
			}
			if len(loaded.Files) == 0 {
				fmt.Fprintln(a.Stdout, "no configuration file: the defaults apply; see `hostler config default`")
			}
			for _, f := range loaded.Files {
				fmt.Fprintln(a.Stdout, f+": ok")
			}
			return nil
		},
	}
	show := &cobra.Command{
		Use:   "show",
		Short: "Print the configuration in force, defaults filled in",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			loaded, err := a.shown(file)
			if err != nil {
				return err
			}
			text, err := loaded.YAML()
			if err != nil {
				return err
			}
			_, err = a.Stdout.Write(text)
			return err
		},
	}
	defaults := &cobra.Command{
		Use:   "default",
		Short: "Print every key with its default and its meaning",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			text, err := config.Documented()
			if err != nil {
				return err
			}
			_, err = a.Stdout.Write(text)
			return err
		},
	}
	configFlag(check, &file)
	configFlag(show, &file)
	return group("config", "Check and print the configuration", check, show, defaults)
}
