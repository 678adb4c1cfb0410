package made

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hostler.io/hostler/agent/cli"
)

// commandPages are one page for each command, named as `man hostler-gc-plan` looks for it.
func (r Release) commandPages() []File {
	var pages []File
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		pages = append(pages, r.commandPage(cmd))
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				walk(sub)
			}
		}
	}
	walk(cli.Command(r.process()))
	return pages
}

// commandPage has what --help has, and is not made by cobra's own generator, which writes
// options as the Go that made them: --remove=[].
func (r Release) commandPage(cmd *cobra.Command) File {
	name := pageName(cmd)
	var b strings.Builder
	b.WriteString(r.title(name, 1))
	fmt.Fprintf(&b, "# NAME\n%s \\- %s\n", name, markdown(cmd.Short))
	fmt.Fprintf(&b, "# SYNOPSIS\n%s\n", markdown(cmd.UseLine()))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "\n%s\n", markdown(cmd.CommandPath()+" command [flags]"))
	}
	if cmd.Long != "" {
		fmt.Fprintf(&b, "# DESCRIPTION\n%s\n", markdown(cmd.Long))
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("# COMMANDS\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, "**%s(1)**\n: %s\n\n", pageName(sub), markdown(sub.Short))
			}
		}
	}
	b.WriteString("# OPTIONS\n")
	cmd.InitDefaultHelpFlag()
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			b.WriteString(option(f))
		}
	})
	if cmd.HasExample() {
		fmt.Fprintf(&b, "# EXAMPLES\n```\n%s\n```\n", cmd.Example)
	}
	see := []string{"hostler.yaml(5)"}
	if cmd.HasParent() {
		see = append([]string{pageName(cmd.Parent()) + "(1)"}, see...)
	}
	fmt.Fprintf(&b, "# SEE ALSO\n**%s**\n", strings.Join(see, "**, **"))
	return page("man1/"+name+".1", b.String())
}

// option is a flag with what --help says of it.
func option(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	names := "**--" + f.Name + "**"
	if f.Shorthand != "" {
		names = "**-" + f.Shorthand + "**, " + names
	}
	if value != "" {
		names += " *" + value + "*"
	}
	if !slices.Contains([]string{"", "false", "0", "[]"}, f.DefValue) {
		usage += " (default: " + f.DefValue + ")"
	}
	return names + "\n: " + markdown(usage) + "\n\n"
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }
