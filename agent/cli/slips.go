package cli

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// onlyCommands rejects unknown subcommands of a group, and suggests similar ones.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	// With a distance of two, any name of two letters would match.
	cmd.SuggestionsMinimumDistance = min(2, max(1, len(args[0])/2))
	var meant []string
	for _, name := range cmd.SuggestionsFor(args[0]) {
		meant = append(meant, fmt.Sprintf("`%s %s`", cmd.CommandPath(), name))
	}
	wrong := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
	if len(meant) == 0 {
		return errors.New(wrong)
	}
	return usageError(wrong + "\nhint: did you mean " + strings.Join(meant, " or ") + "?")
}

// onThisHost rejects a NAME argument, and names the command that takes one.
func onThisHost(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError(fmt.Sprintf("%s takes no name, got %q: it acts on the local host\nhint: run `%s` on that host", cmd.CommandPath(), args[0], cmd.CommandPath()))
}

// oneShell accepts exactly one shell that has a completion script.
func oneShell(cmd *cobra.Command, args []string) error {
	if cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)(cmd, args) == nil {
		return nil
	}
	return usageError(fmt.Sprintf("no completion for %q\nhint: use one of: %s", strings.Join(args, " "), strings.Join(cmd.ValidArgs, ", ")))
}

// wrongFlag explains what is wrong with a flag, instead of the parser's error.
func wrongFlag(cmd *cobra.Command, err error) error {
	value, name := new(pflag.InvalidValueError), new(pflag.NotExistError)
	switch {
	case errors.As(err, &value):
		flag := value.GetFlag()
		kind := map[string]string{"int": "a whole number", "bool": "true or false"}[flag.Value.Type()]
		return fmt.Errorf("--%s %q is not %s", flag.Name, value.GetValue(), cmp.Or(kind, "a "+flag.Value.Type()))
	case errors.As(err, &name) && name.GetSpecifiedName() == "dry-run" && cmd.CommandPath() == "hostler gc run":
		return usageError(fmt.Sprintf("%v\nhint: run `hostler gc plan` with the same flags to see what a run would remove", err))
	}
	return err
}
