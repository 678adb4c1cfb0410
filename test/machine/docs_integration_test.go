//go:build integration

package machine_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/test/machine"
	"hostler.io/hostler/test/machine/job"
	"hostler.io/hostler/test/page"
)

// TestCommandsOfTheDocs runs the commands of the documentation as a reader types them, on a host
// with a pod and a finished shutdown. It runs every command of hostler, and other commands that
// read the agent's API or journal, or fix the host. Pipes and output files are used as well.
func TestCommandsOfTheDocs(t *testing.T) {
	commands, script, last := documented(t)
	if t.Failed() {
		return
	}
	onDebian(t, machine.Debian13, func(t *testing.T, o machine.Options) {
		o.Files = machine.PodmanFiles() // a command enables its socket
		m := machine.Boot(t, o)
		m.Deploy(machine.Pod{Name: "web"})
		m.GoesDown("systemctl reboot")
		m.Deploy(machine.Pod{Name: "api"})
		m.AwaitArmed()
		m.Write("/run/lab/demo/hostler.yaml", "{}\n")
		m.Run("ctr --namespace k8s.io images tag " + job.Image + " registry.example.com/app:1")
		for _, c := range commands {
			line, want := onAMachine().Replace(c), 0
			if strings.Contains(line, "--watch") {
				line, want = line+` | { read first; echo "$first"; while read next && [ "${next%% *}" != "${first%% *}" ]; do :; done; }`, 141 // it prints again and again: SIGPIPE ends it
			}
			quiet := withoutOutput.MatchString(line) || into.MatchString(line)
			ctx, cancel := context.WithTimeout(t.Context(), machine.Patience)
			r, err := m.Try(ctx, "exec bash -o pipefail -c '"+strings.ReplaceAll(line, "'", `'\''`)+"'")
			cancel()
			if err != nil {
				t.Fatalf("%s: %v", c, err)
			}
			if r.Code != want || (r.Stdout == "") != quiet {
				t.Errorf("%s ends with %d, want %d and an answer\n%s%s", c, r.Code, want, r.Stdout, r.Stderr)
			}
			if strings.Contains(r.Stdout, "-- No entries --") && !optionalField.MatchString(line) {
				t.Errorf("%s finds nothing", c)
			}
			if file := into.FindStringSubmatch(line); file != nil && m.Read(file[1]) == "" {
				t.Errorf("%s leaves nothing in %s", c, file[1])
			}
			if withoutOutput.MatchString(line) {
				m.AwaitArmed()
			}
			if strings.HasPrefix(line, "hostler leave") && !strings.Contains(line, "--undo") {
				m.Hostler("leave", "--undo") // the following commands need the Node
			}
		}
		m.Write("/root/check", script)
		if text := m.Run("chmod 755 /root/check && { /root/check || [ $? = 2 ]; }"); text != "all arrays have all their disks\n" && text != "no /proc/mdstat\n" {
			t.Errorf("the check of docs/howto/custom-condition.md says %q on a host without arrays", text)
		}
		if t.Failed() {
			return // it is reported in this boot
		}
		m.GoesDown(last)
		if id := m.Read("/etc/machine-id"); len(id) != 33 {
			t.Errorf("after %s the machine has the ID %q", last, id)
		}
	})
}

// TestTheDocumentedWayToTheAPIOverTheNetwork runs the commands of docs/howto/network-api.md, on a
// host with the address of that page.
func TestTheDocumentedWayToTheAPIOverTheNetwork(t *testing.T) {
	onDebian(t, machine.Debian12, func(t *testing.T, o machine.Options) {
		section := func(language string) []string {
			return page.Blocks(t, "../../docs/howto/network-api.md", "Steps", language)
		}
		m := machine.Boot(t, o)
		m.Run("ip address add 192.0.2.7/32 dev lo")
		m.Run("set -e\n" + section("sh")[0])
		m.Write("/etc/hostler/conf.d/api.yaml", section("yaml")[0])
		m.Run("systemctl restart hostler")
		m.AwaitArmed()
		calls := slices.Collect(strings.Lines(section("sh")[1]))
		if len(calls) != 2 {
			t.Fatalf("docs/howto/network-api.md has the calls %q, want two", calls)
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

		// LoadCredential= provides the key, as docs/howto/service-rights.md shows.
		m.Run("mkdir -p /etc/credstore /etc/systemd/system/hostler.service.d && mv /etc/hostler/tls/host.key /etc/credstore/api.key" +
			" && printf '[Service]\nLoadCredential=api.key:/etc/credstore/api.key\n' >/etc/systemd/system/hostler.service.d/key.conf" +
			" && sed -i 's,/etc/hostler/tls/host.key,/run/credentials/hostler.service/api.key,' /etc/hostler/conf.d/api.yaml" +
			" && grep /run/credentials /etc/hostler/conf.d/api.yaml && systemctl daemon-reload && systemctl restart hostler")
		m.AwaitArmed()
		served("with a key from systemd")
		m.Run("systemctl stop hostler")
		report, _ := diagnosis(t, m)
		i := slices.IndexFunc(report.Checks, func(c doctor.Check) bool { return c.Name == "network" })
		if i < 0 || report.Checks[i].Status != doctor.Unknown {
			t.Errorf("hostler doctor says of a key that only the service has: %+v, want an unknown result", report.Checks)
		}
	})
}
