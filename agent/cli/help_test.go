package cli_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// commands are all commands. The golden file of a group shows its subcommands.
var commands = []string{
	"agent", "fleet", "fleet plan", "fleet status", "fleet get", "fleet delete", "fleet gc", "fleet gc plan", "fleet slots", "fleet slots release", "server", "status", "nodes", "ps", "images", "gc", "gc plan", "gc run", "gc history", "shutdown", "shutdown plan", "shutdown report",
	"drain", "reboot", "cordon", "uncordon", "leave", "doctor",
	"reload", "controlplane", "controlplane verify", "config", "config check", "config show", "config default", "config schema", "completion", "version",
}

func TestHelp(t *testing.T) {
	for _, c := range append(commands, "") {
		got := hostler("/nowhere", append(strings.Fields(c), "--help")...)
		if got.code != 0 || got.stderr != "" {
			t.Errorf("hostler %s --help = code %d, %q, want 0 and nothing", c, got.code, got.stderr)
		}
		golden(t, "help/"+strings.ReplaceAll(strings.TrimSpace("hostler "+c), " ", "-"), got.stdout)
		for line := range strings.Lines(got.stdout) {
			if len(line) > 81 {
				t.Errorf("hostler %s --help has a line of %d columns, want at most 80: %s", c, len(line)-1, line)
			}
		}
	}
}

// Every user of a host can read command lines (proc_pid_cmdline(5)).
func TestNoFlagTakesASecret(t *testing.T) {
	sounds := regexp.MustCompile(`--\S*(pass|token|secret|key|credential)\S*`)
	for _, c := range commands {
		if flag := sounds.FindString(hostler("/nowhere", append(strings.Fields(c), "--help")...).stdout); flag != "" {
			t.Errorf("hostler %s has the flag %s: have it name a file", c, flag)
		}
	}
}

// The list of commands in this file is compared with the help, so that a new command needs a golden
// file.
func TestHelpListsTheCommands(t *testing.T) {
	listed := regexp.MustCompile(`(?m)^  ([a-z-]+) +\S`)
	var found []string
	var walk func(prefix string)
	walk = func(prefix string) {
		_, list, _ := strings.Cut(hostler("/nowhere", append(strings.Fields(prefix), "--help")...).stdout, "Available Commands:")
		list, _, _ = strings.Cut(list, "\n\n")
		for _, m := range listed.FindAllStringSubmatch(list, -1) {
			if m[1] != "help" {
				c := strings.TrimSpace(prefix + " " + m[1])
				found = append(found, c)
				walk(c)
			}
		}
	}
	walk("")
	for _, c := range found {
		if !slices.Contains(commands, c) {
			t.Errorf("hostler --help lists %q, which no test knows", c)
		}
	}
	for _, c := range commands {
		if !slices.Contains(found, c) {
			t.Errorf("hostler --help does not list %q, only %q", c, found)
		}
	}
}

// The first column of the table in docs/reference/commands.md names every command: the full name,
// or only the last word after another command of the same group.
func TestTheDocsListTheCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for row := range strings.Lines(string(text)) {
		column, _, isRow := strings.Cut(row, " | ")
		column, isCommand := strings.CutPrefix(column, "`hostler ")
		if !isRow || !isCommand {
			continue
		}
		group := ""
		for name := range strings.SplitSeq(column, ",") {
			name, _, _ = strings.Cut(strings.Trim(name, "` "), " [")
			if !slices.Contains(commands, name) {
				name = group + name
			}
			if before, _, inGroup := strings.Cut(name, " "); inGroup {
				group = before + " "
			}
			listed = append(listed, name)
		}
	}
	for _, c := range listed {
		if !slices.Contains(commands, c) {
			t.Errorf("docs/reference/commands.md lists %q, which is no command", c)
		}
	}
	for _, c := range commands {
		isGroup := slices.ContainsFunc(commands, func(other string) bool { return strings.HasPrefix(other, c+" ") })
		if !isGroup && !slices.Contains(listed, c) {
			t.Errorf("docs/reference/commands.md does not list %q, only %q", c, listed)
		}
	}
}

func TestAGroupWithoutACommandShowsItsHelp(t *testing.T) {
	for _, group := range []string{"", "gc", "shutdown", "controlplane", "config"} {
		args := strings.Fields(group)
		if got, want := hostler("/nowhere", args...), hostler("/nowhere", append(args, "--help")...); got != want {
			t.Errorf("hostler %s = %v, want its help", group, got)
		}
	}
}
