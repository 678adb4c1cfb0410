package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// onlyCommands refuses unknown commands of a group, and suggests similar ones.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	// Two errors in a word of two letters match any word.
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

// onThisHost refuses a name, which such commands take elsewhere.
func onThisHost(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError(fmt.Sprintf("%s takes no name, got %q: it acts on the local host\nhint: run `%s` on that host", cmd.CommandPath(), args[0], cmd.CommandPath()))
}

// oneShell accepts exactly one of the shells that have a completion script.
func oneShell(cmd *cobra.Command, args []string) error {
	if cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)(cmd, args) == nil {
		return nil
	}
	return usageError(fmt.Sprintf("no completion for %q\nhint: use one of: %s", strings.Join(args, " "), strings.Join(cmd.ValidArgs, ", ")))
}

// wrongFlag says what is wrong with a flag, in plain words instead of the parser's.
func wrongFlag(cmd *cobra.Command, err error) error {
	value, name := new(pflag.InvalidValueError), new(pflag.NotExistError)
	switch {
	case errors.As(err, &value):
		flag := value.GetFlag()
		kind := map[string]string{"int": "a whole number", "bool": "true or false"}[flag.Value.Type()]
		return fmt.Errorf("--%s %q is not %s", flag.Name, value.GetValue(), cmp.Or(kind, "a "+flag.Value.Type()))
	case errors.As(err, &name) && !cmd.HasParent() && slices.Contains([]string{"version", "v", "V"}, name.GetSpecifiedName()):
		return usageError(fmt.Sprintf("%v\nhint: run `hostler version`", err))
	case errors.As(err, &name) && name.GetSpecifiedName() == "dry-run" && cmd.CommandPath() == "hostler gc run":
		return usageError(fmt.Sprintf("%v\nhint: run `hostler gc plan` with the same flags to see what a run would remove", err))
	}
	return err
}
