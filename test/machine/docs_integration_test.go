//go:build integration

package machine_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/page"
)

// beginnings are those of commands that are typed, with how many the documentation has of
// each at least. Those of the service manager's that change something print nothing.
func beginnings() map[string]int {
	return map[string]int{
		"hostler ": 48, "curl -s --unix-socket ": 5, "journalctl -u ": 8, "journalctl -b ": 2, "journalctl --": 1,
		"df -h /var": 1, "systemd-analyze security ": 1, "systemd-inhibit ": 1, "systemctl cat ": 1, "systemctl status containerd": 1,
		"systemctl start containerd": 1, "systemctl start dbus": 1, "systemctl start hostler": 1, "systemctl restart ": 2, "systemctl reload ": 1, "systemctl unmask ": 1, "systemctl daemon-reload": 1,
	}
}

// silent are the beginnings of those that print nothing.
var silent = regexp.MustCompile(`^systemctl (start|restart|reload|unmask|daemon-reload)`)

// unsaid are those that ask the journal for what has not happened on this host: nothing was
// collected on it.
var unsaid = regexp.MustCompile(`HOSTLER_(POD|IMAGE|LOOP)=`)

// TestCommandsOfTheDocs runs every command of hostler's that the documentation names, and
// those of others that ask the agent or its journal, or that mend the host, as a reader would
// type it, on a host with a pod and a shutdown behind it.
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
		for beginning, want := range beginnings() {
			of := slices.DeleteFunc(slices.Clone(commands), func(c string) bool { return !strings.HasPrefix(c, beginning) })
			if len(of) < want {
				t.Fatalf("the documentation names %q, want %d that begin %q", of, want, beginning)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), machine.Patience)
		defer cancel()
		for _, c := range commands {
			line, want := c, 0
			line = strings.NewReplacer("seconds=20", "seconds=1", "config check FILE", "config check /run/lab/demo/hostler.yaml").Replace(line)
			if strings.Contains(line, "--watch") {
				line, want = "timeout 2 "+line, 124 // until it is interrupted
			}
			r, err := m.Try(ctx, line)
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			if r.Code != want || (r.Stdout == "") != silent.MatchString(line) {
				t.Errorf("%s ends with %d, want %d and an answer\n%s%s", c, r.Code, want, r.Stdout, r.Stderr)
			}
			if strings.Contains(r.Stdout, "-- No entries --") && !unsaid.MatchString(line) {
				t.Errorf("%s finds nothing", c)
			}
			if silent.MatchString(line) {
				m.AwaitArmed()
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

// typed is what a reader types for a line of the documentation: nothing if it is no such
// command, and both where it has arguments that may be left out.
func typed(line string) []string {
	line = strings.TrimSpace(line)
	for _, prompt := range []string{"$ ", "# ", "sudo "} {
		line = strings.TrimPrefix(line, prompt)
	}
	for _, end := range []string{"  #", " | ", " >", " -- ", " & "} {
		line, _, _ = strings.Cut(line, end)
	}
	line = strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(line, "hostler agent"): // which the unit runs
		return nil
	case strings.HasPrefix(line, "hostler ") && strings.ContainsAny(line, "…<:"): // a sentence, or what it says
		return nil
	case !slices.ContainsFunc(slices.Collect(maps.Keys(beginnings())), func(b string) bool { return strings.HasPrefix(line, b) }):
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

// TestTheDocumentedWayToTheAPIOverTheNetwork follows docs/api.md to the letter, on a host with
// the address that it speaks of.
func TestTheDocumentedWayToTheAPIOverTheNetwork(t *testing.T) {
	onBothDebians(t, machine.Container, func(t *testing.T, o machine.Options) {
		section := func(language string) []string {
			return page.Blocks(t, "../../docs/api.md", "Over the network", language)
		}
		m := machine.Boot(t, o)
		m.Run("ip address add 192.0.2.7/32 dev lo")
		m.Run("set -e\n" + section("sh")[0])
		m.Write("/etc/hostler/conf.d/api.yaml", section("yaml")[0])
		m.Run("systemctl restart hostler")
		m.AwaitArmed()
		calls := slices.Collect(strings.Lines(section("sh")[1]))
		if len(calls) != 2 {
			t.Fatalf("docs/api.md has the calls %q, want two", calls)
		}
		const folder = "cd /etc/hostler/tls && "
		served := func(what string) {
			t.Helper()
			m.Eventually("the API is served over the network "+what, func() bool {
				ctx, cancel := context.WithTimeout(context.Background(), machine.Patience)
				defer cancel()
				r, err := m.Try(ctx, folder+calls[0])
				var s api.Status
				return err == nil && r.Code == 0 && json.Unmarshal([]byte(r.Stdout), &s) == nil && s.Node != nil
			})
		}
		served("with keys in files")
		m.Run(folder + calls[1])
		if s := m.Status(); s.Cordon == nil || s.Cordon.By != "certificate ops.example.org" {
			t.Errorf("after %s the node's cordon is %+v, want it of the certificate", calls[1], s.Cordon)
		}

		// The key comes by LoadCredential=, as docs/security.md has it.
		m.Run("mkdir -p /etc/credstore /etc/systemd/system/hostler.service.d && mv /etc/hostler/tls/host.key /etc/credstore/api.key" +
			" && printf '[Service]\nLoadCredential=api.key:/etc/credstore/api.key\n' >/etc/systemd/system/hostler.service.d/key.conf" +
			" && sed -i 's,/etc/hostler/tls/host.key,/run/credentials/hostler.service/api.key,' /etc/hostler/conf.d/api.yaml" +
			" && grep /run/credentials /etc/hostler/conf.d/api.yaml && systemctl daemon-reload && systemctl restart hostler")
		m.AwaitArmed()
		served("with a key from systemd")
		m.Run("systemctl stop hostler")
		ctx, cancel := context.WithTimeout(t.Context(), machine.Patience)
		defer cancel()
		r, err := m.Try(ctx, "hostler doctor -o json")
		var report doctor.Report
		if err := errors.Join(err, json.Unmarshal([]byte(r.Stdout), &report)); err != nil {
			t.Fatalf("hostler doctor: %v\n%s%s", err, r.Stdout, r.Stderr)
		}
		i := slices.IndexFunc(report.Checks, func(c doctor.Check) bool { return c.Name == "network" })
		if i < 0 || report.Checks[i].Status != doctor.Unknown {
			t.Errorf("hostler doctor says of a key that only the service has: %+v, want that it cannot tell", report.Checks)
		}
	})
}
