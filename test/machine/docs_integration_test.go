//go:build integration

package machine_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/test/machine"
)

// TestCommandsOfTheDocs runs every command of hostler's that the documentation names, as a
// reader would type it, on a host with a pod and a shutdown behind it.
func TestCommandsOfTheDocs(t *testing.T) {
	onBothDebians(t, machine.Container, func(t *testing.T, o machine.Options) {
		m := machine.Boot(t, o)
		m.Deploy(machine.Pod{Name: "web"})
		m.GoesDown("systemctl reboot")
		m.Deploy(machine.Pod{Name: "api"})
		m.AwaitArmed()
		m.Write("/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nshutdownGracePeriod: 30s\n")
		m.Write("/run/lab/demo/hostler.yaml", "{}\n")
		commands := documented(t)
		if len(commands) < 48 {
			t.Fatalf("the documentation names %q, want all that there are", commands)
		}
		ctx, cancel := context.WithTimeout(t.Context(), machine.Patience)
		defer cancel()
		for _, c := range commands {
			line, want := c, 0
			if strings.Contains(line, "--watch") {
				line, want = "timeout 2 "+line, 124 // until it is interrupted
			}
			r, err := m.Try(ctx, line)
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			if r.Code != want || r.Stdout == "" {
				t.Errorf("%s ends with %d, want %d and an answer\n%s%s", c, r.Code, want, r.Stdout, r.Stderr)
			}
		}
	})
}

// span is code in a paragraph.
var span = regexp.MustCompile("`([^`\n]+)`")

// documented are the commands in README.md and docs, as they can be typed on a machine of
// their own: without prompts, comments and what their output is fed to.
func documented(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("find the documentation: %v", err)
	}
	var commands []string
	for _, file := range append(files, "../../README.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, part := range strings.Split(string(text), "```") {
			if i%2 == 1 { // a block
				for line := range strings.Lines(part) {
					commands = append(commands, typed(line)...)
				}
				continue
			}
			for _, code := range span.FindAllStringSubmatch(part, -1) {
				commands = append(commands, typed(code[1])...)
			}
		}
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}

// optional is an argument in brackets, as in a table of commands.
var optional = regexp.MustCompile(` \[([^]]+)\]`)

// typed is what a reader types for a line of the documentation: nothing if it is no command
// of hostler's, and both where it has arguments that may be left out.
func typed(line string) []string {
	line = strings.TrimSpace(line)
	for _, prompt := range []string{"$ ", "# ", "sudo "} {
		line = strings.TrimPrefix(line, prompt)
	}
	for _, end := range []string{"  #", " | ", " >", " -- ", " &"} {
		line, _, _ = strings.Cut(line, end)
	}
	line = strings.TrimSpace(line)
	switch {
	case !strings.HasPrefix(line, "hostler "), strings.HasPrefix(line, "hostler agent"): // which the unit runs
		return nil
	case strings.ContainsAny(line, "…<:"): // a sentence, or what it says
		return nil
	}
	for _, host := range []string{"NAME", "rack1-node02"} {
		line = strings.ReplaceAll(line, host, "$(hostname)")
	}
	if !optional.MatchString(line) {
		return []string{line}
	}
	return []string{optional.ReplaceAllString(line, ""), optional.ReplaceAllString(line, " $1")}
}
