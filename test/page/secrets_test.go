package page_test

import (
	"regexp"
	"strings"
	"testing"

	"hostler.io/hostler/test/page"
)

// secretGiven matches a secret on a command line, which every user of the host can read in /proc
// (proc_pid_cmdline(5)). The ID of a bootstrap token is public.
var secretGiven = regexp.MustCompile(`(?i)--?(password|passwd|pass|token|secret|client-key-data)[= ]\S` +
	`|--from-literal=\S*(secret|password)=\S|(password|token|secret)=[^\s/]\S* |://[^\s/:]*:[^\s/@]+@|\s(-u|--user)[= ][^\s:]+:[^\s:]+(\s|$)`)

func TestNoPageHasASecretOnACommandLine(t *testing.T) {
	const root = "../.."
	commands := 0
	for _, name := range page.Files(t, root) {
		name = strings.TrimPrefix(name, root+"/")
		lines := page.Spans(t, root, name)
		for _, c := range page.Commands(t, root, name) {
			lines = append(lines, c.Line)
		}
		commands += len(lines)
		for _, line := range lines {
			if secretGiven.MatchString(line) && !strings.Contains(line, "--from-file=") {
				t.Errorf("%s has people type a secret: %s", name, line)
			}
		}
	}
	if commands < 500 {
		t.Errorf("the documentation has %d commands and names, want more: the test does not find them", commands)
	}
}

func TestSecretsAreSeen(t *testing.T) {
	for line, want := range map[string]bool{
		"kubectl config set-credentials host --token=abcdef.0123456789abcdef":                   true,
		"kubectl create secret generic x --from-literal=token-secret=0123456789abcdef":          true,
		"etcdctl --user root:secret get /":                                                      true,
		"etcdctl --password secret get /":                                                       true,
		"curl https://root:secret@host/":                                                        true,
		"PASSWORD=secret etcdctl get /":                                                         true,
		"kubectl create secret generic x --from-literal=token-id=abcdef":                        false,
		"kubectl config set users.host.tokenFile bootstrap-token":                               false,
		"etcdctl user add rack1-node1 --no-password":                                            false,
		"kubectl create clusterrolebinding NAME-may --clusterrole=NAME --user=system:node:NAME": false,
		"curl --key host.key https://192.0.2.7:9755/v1/status":                                  false,
	} {
		if got := secretGiven.MatchString(line); got != want {
			t.Errorf("a secret is seen in %q: %t, want %t", line, got, want)
		}
	}
}
