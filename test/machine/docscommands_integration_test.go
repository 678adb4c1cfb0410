//go:build integration

package machine_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"hostler.io/hostler/test/page"
)

// beginnings are the beginnings of the commands that TestCommandsOfTheDocs runs, with the minimum
// number of each in the documentation. Commands of the service manager that change something print
// nothing.
func beginnings() map[string]int {
	return map[string]int{
		"hostler ": 52, "curl -s --unix-socket ": 5, "curl -s 127.0.0.1:9754/": 1, "journalctl -u ": 8, "journalctl -b ": 2, "journalctl --": 1,
		"df -h /var": 1, "systemd-analyze security ": 1, "systemd-inhibit ": 1, "systemctl cat ": 1, "systemctl status containerd": 1,
		"systemctl start containerd": 1, "systemctl start dbus": 1, "systemctl start hostler": 1, "systemctl restart ": 2, "systemctl reload ": 1, "systemctl unmask ": 2, "systemctl daemon-reload": 1,
		"systemctl enable --now hostler": 1, "systemctl enable --now podman.socket": 1, "usermod ": 1, "ctr --namespace k8s.io images label ": 1,
		"ps -": 2, "ip address": 1, "ip link": 2, "ip route get ": 1, "du -x": 2,
	}
}

// withoutOutput matches commands that print nothing.
var withoutOutput = regexp.MustCompile(`^(systemctl (enable|start|restart|reload|unmask|daemon-reload)|usermod|ip link set)\b`)

// into matches the output file of a command.
var into = regexp.MustCompile(` >(\S+)$`)

// optionalField matches journal queries for events that did not happen on this host: nothing was
// collected.
var optionalField = regexp.MustCompile(`HOSTLER_(POD|IMAGE|LOOP)=`)

// rebirth begins the command that gives the machine a new identity: it is the last.
const rebirth = "rm -f /etc/machine-id "

// onAMachine adapts a line of the documentation to the machine.
func onAMachine() *strings.Replacer {
	return strings.NewReplacer(
		"NAME", "$(hostname)", "rack1-node02", "$(hostname)",
		"seconds=20", "seconds=1",
		"--socket PATH", "--socket /run/hostler/hostler.sock",
		"INTERFACE", "lo", "ADDRESS", "127.0.0.1", "MOUNTPOINT", "/etc",
		"config check FILE", "config check /run/lab/demo/hostler.yaml")
}

// elsewhere are the lines in code blocks that TestCommandsOfTheDocs does not run, by their
// beginning. Each has the test that runs it, or the reason why none does.
func elsewhere() []struct{ page, line, why string } {
	const network = "TestTheDocumentedWayToTheAPIOverTheNetwork runs its block"
	const rights = "needs an etcd: TestTheRightsInTheDocumentationAreEnoughAndNoMore runs its block"
	return []struct{ page, line, why string }{
		// On any page, also within a paragraph.
		{"", "hostler fleet ", "needs a server: TestTheServerIsAServiceWithoutRights"},
		{"", "hostler server", "needs a store: TestTheServerIsAServiceWithoutRights"},
		{"", "systemctl reload hostler-server", "needs the service: TestTheServerIsAServiceWithoutRights"},
		{"", "systemctl restart hostler-server", "needs the service: TestTheServerIsAServiceWithoutRights starts it"},
		{"", "journalctl -u hostler-server", "needs the service: TestTheServerIsAServiceWithoutRights"},
		{"", "hostler config check --server", "needs server.yaml: TestTheServerIsAServiceWithoutRights"},
		{"", "hostler reboot", "needs reboot.enabled: TestHostsRebootOneAfterTheOther"},
		{"docs/howto/reboots.md", "install -m 755 /usr/share/doc/hostler/examples/reboot.d/", "needs the package: TestTheExampleOfANewKernel runs the check"},
		{"docs/howto/reboots.md", "echo '{\"client_params\"", "is for the two below"},
		{"docs/howto/reboots.md", "curl --fail-with-body ", "needs a server: TestRebootSlots sends both"},
		{"docs/howto/server.md", "apt install ./hostler-server_*_all.deb", "needs packages: TestWhatIsInThePackages"},
		{"docs/howto/server.md", "systemctl enable --now hostler-server", "needs server.yaml: TestTheServerIsAServiceWithoutRights"},
		{"README.md", "make demo", "needs Go and apt: .ci/run does it"},
		{"README.md", "make test", "runs this, too"},
		{"README.md", "make package", "needs Go: TestTwoBuildsOfOneCommitAreTheSame"},
		{"README.md", "apt install ./dist/packages/hostler_*_amd64.deb", "needs packages: TestTheDocumentedWayToInstall"},
		{"docs/howto/network-api.md", "mkdir -p -m 0700 /etc/hostler/tls && cd /etc/hostler/tls", network},
		{"docs/howto/network-api.md", "new='openssl req ", network},
		{"docs/howto/network-api.md", "$new -subj ", network},
		{"docs/howto/network-api.md", "curl --cacert ", network},
		{"docs/demo.md", "make demo", "needs Go and apt: .ci/run does it"},
		{"docs/demo.md", "make build && go build -o dist/demo ./test/demo && sudo dist/demo ./hostler", "needs Go and apt: it is what make demo does"},
		{"docs/howto/custom-condition.md", "install -m 755 /usr/share/doc/hostler/examples/", "needs the package: TestTheExampleOfAStaleMount runs the check"},
		{"docs/howto/reboot.md", "systemctl reboot", "ends a machine: TestAMachineGoesDownInEveryWay runs it"},
		{"docs/howto/upgrade.md", "apt install ./hostler_*_amd64.deb", "needs packages: TestTheDocumentedWayToInstall"},
		{"docs/howto/upgrade.md", "dnf install ./hostler-[0-9]*.x86_64.rpm", "needs a Fedora: TestAnRpmComesAndGoes has rpm install it"},
		{"docs/howto/metrics.md", "go tool pprof -top heap.pb.gz", "needs Go: TestProfilesAreThere runs it"},
		{"docs/howto/unprotected.md", "hostler drain --all && sudo systemctl reboot", "ends a machine: others run each of the two"},
		{"docs/start/containerd.md", "apt install ./hostler_*_amd64.deb", "needs packages: TestTheDocumentedWayToInstall"},
		{"docs/start/containerd.md", "systemctl reboot", "ends a machine: TestAMachineGoesDownInEveryWay"},
		{"docs/start/docker.md", "apt install ./hostler_*_amd64.deb", "needs packages: TestTheDocumentedWayToInstall"},
		{"docs/start/docker.md", "docker compose up -d", "needs Docker with Compose"},
		{"docs/start/docker.md", "systemctl reboot", "ends a machine: TestAMachineGoesDownInEveryWay"},
		{"docs/reference/etcd.md", "etcdctl get --print-value-only /hostler/nodes/rack1-node1 | jq ", "needs an etcd: TestTheServerIsAServiceWithoutRights runs both"},
		{"docs/reference/etcd.md", "etcdctl get ", "needs an etcd: TestAFleetIsReadAsTheDocumentationSays runs each, and counts them"},
		{"docs/reference/etcd.md", "etcdctl role ", rights},
		{"docs/reference/etcd.md", "etcdctl user ", rights},
		{"docs/howto/lease-expired.md", "etcdctl ", rights},
		{"docs/reference/etcd.md", "etcdctl put /hostler/settings/lease-duration ", rights},
		{"docs/reference/etcd.md", "etcdctl snapshot save backup.db", "needs an etcd: TestARestoredBackup does it"},
		{"docs/reference/etcd.md", "etcdutl snapshot restore backup.db ", "needs an etcd that is lost: TestARestoredBackup does it, without the last two flags, which are for other programs than hostler"},
		{"docs/reference/kubernetes.md", "kubectl ", "needs a cluster: TestTheDocumentedWayToJoin and TestTheRightToListTheFleet run each"},
		{"docs/start/kubernetes.md", "kubectl ", "needs a cluster: TestTheDocumentedWayToJoin runs each, and counts them"},
		{"docs/explanation/garbage-collection.md", "etcdctl put /hostler/objects/tickets/disk-7 ", "needs an etcd: TestAServerCollectsGarbageInEtcd puts the ticket"},
		{"docs/start/etcd.md", "hostname", "prints a name"},
		{"docs/start/kubernetes.md", "umask 077", "is for the two below"},
		{"docs/start/kubernetes.md", "openssl rand -hex 8 ", "is for a cluster: TestTheDocumentedWayToJoin runs it"},
		{"docs/start/kubernetes.md", "(printf abcdef.; cat token-secret) ", "is for a cluster: TestTheDocumentedWayToJoin runs it"},
		{"docs/howto/service-rights.md", "systemctl edit hostler", "opens an editor"},
		{"docs/howto/control-plane-plugin.md", "CGO_ENABLED=0 go build -o /usr/local/bin/plugin-https ", "needs Go: TestAHostWhoseControlPlaneIsAPlugin has it built"},
		{"docs/howto/control-plane-plugin.md", "install -m 644 docs/examples/plugin-https/plugin-https.service ", "needs a checkout: TestAPluginIsAServiceOfItsOwn has it installed"},
		{"docs/howto/control-plane-plugin.md", "go run ./test/httpstore/serve ", "needs Go: TestAHostWhoseControlPlaneIsAPlugin has the endpoint that it serves"},
		{"docs/howto/control-plane-plugin.md", "systemctl daemon-reload && systemctl enable --now plugin-https", "needs the plugin: TestAPluginIsAServiceOfItsOwn runs it"},
		{"docs/howto/control-plane-plugin.md", "grpcurl ", "is no package of Debian's: TestAHostWhoseControlPlaneIsAPlugin makes these calls"},
	}
}

// documented returns the commands in README.md and docs that can be typed on a separate machine,
// the script of a check, and the last command. A line of a code block that neither this test runs
// nor elsewhere explains fails the test. So does an entry of elsewhere without a line.
func documented(t *testing.T) (commands []string, script, last string) {
	t.Helper()
	const root = "../.."
	explained := elsewhere()
	needed := make([]bool, len(explained))
	for _, name := range page.Files(t, root) {
		name = strings.TrimPrefix(name, root+"/")
		for _, c := range page.Commands(t, root, name) {
			i := slices.IndexFunc(explained, func(e struct{ page, line, why string }) bool {
				return (e.page == c.Page || e.page == "") && strings.HasPrefix(c.Line, e.line)
			})
			switch {
			case strings.HasPrefix(c.Line, "#!") && script == "":
				script = c.Line
			case strings.HasPrefix(c.Line, rebirth) && last == "":
				last = c.Line
			case i >= 0:
				needed[i] = true
			case known(c.Line):
				commands = append(commands, c.Line)
			default:
				t.Errorf("%s has people type what nobody tries, and what needs a beginning in beginnings, or a reason in elsewhere: %s", c.Page, c.Line)
			}
		}
		for _, code := range page.Spans(t, root, name) {
			text := strings.HasPrefix(code, "hostler ") && strings.ContainsAny(code, "…<:") // prose, or output
			i := slices.IndexFunc(explained, func(e struct{ page, line, why string }) bool {
				return e.page == "" && strings.HasPrefix(code, e.line)
			})
			if i >= 0 {
				needed[i] = true
			} else if known(code) && !text {
				commands = append(commands, choices(code)...)
			}
		}
	}
	tests := testsOf(t, root)
	for i, e := range explained {
		if !needed[i] {
			t.Errorf("%s has no line %q any more, which elsewhere explains", e.page, e.line)
		}
		if name := testName.FindString(e.why); name != "" && !tests[name] {
			t.Errorf("%s: there is no %s, by which elsewhere explains %q", e.page, name, e.line)
		}
	}
	if script == "" || last == "" {
		t.Errorf("the documentation has the script %q and the command %q, want both", script, last)
	}
	slices.Sort(commands)
	commands = slices.Compact(commands)
	for beginning, want := range beginnings() {
		of := slices.DeleteFunc(slices.Clone(commands), func(c string) bool { return !strings.HasPrefix(c, beginning) })
		if len(of) < want {
			t.Errorf("the documentation names %q, want %d that begin %q", of, want, beginning)
		}
	}
	return commands, script, last
}

// known reports whether this test runs a line. The unit runs the agent.
func known(line string) bool {
	return !strings.HasPrefix(line, "hostler agent") &&
		slices.ContainsFunc(slices.Collect(maps.Keys(beginnings())), func(b string) bool { return strings.HasPrefix(line, b) })
}

// optional matches an argument in brackets, as in a table of commands.
var optional = regexp.MustCompile(` \[([^]]+)\]`)

// choices returns both variants of a command with an optional argument.
func choices(line string) []string {
	if !optional.MatchString(line) {
		return []string{line}
	}
	return []string{optional.ReplaceAllString(line, ""), optional.ReplaceAllString(line, " $1")}
}

var (
	testName = regexp.MustCompile(`\bTest\w+`)
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// testsOf returns the names of all tests.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, f := range testFunc.FindAllStringSubmatch(string(text), -1) {
			names[f[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatalf("find tests: %v", err)
	}
	return names
}
