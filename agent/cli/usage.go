package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usage prints the usage in cobra's layout, with flags wrapped to the screen. It does not use cobra's
// template: with templates the linker keeps every method of every type, which costs the agent 5 MB of
// memory.
func usage(cmd *cobra.Command) error {
	var text strings.Builder
	flags := func(title string, set *pflag.FlagSet) {
		if set.HasAvailableFlags() {
			fmt.Fprintf(&text, "\n\n%s:\n%s", title, strings.TrimRight(set.FlagUsagesWrapped(screenWidth), " \n"))
		}
	}
	inherited := cmd.InheritedFlags() // this call completes the other flag sets
	text.WriteString("Usage:")
	if cmd.Runnable() {
		text.WriteString("\n  " + cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		text.WriteString("\n  " + cmd.CommandPath() + " [command]")
	}
	if cmd.HasExample() {
		text.WriteString("\n\nExamples:\n" + cmd.Example)
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&text, "\n\nAvailable Commands:")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(&text, "\n  %-*s %s", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	flags("Flags", cmd.LocalFlags())
	flags("Global Flags", inherited)
	if cmd.HasAvailableSubCommands() {
		more := fmt.Sprintf("Use %q for more information about a command.", cmd.CommandPath()+" [command] --help")
		text.WriteString("\n\n" + strings.Join(wrap(more, screenWidth), "\n"))
	}
	_, err := fmt.Fprintln(cmd.OutOrStderr(), text.String())
	return err
}
