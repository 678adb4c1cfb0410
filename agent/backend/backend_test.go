package backend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/agent/open"
	"hostler.io/hostler/agent/settings"
	"hostler.io/hostler/runtime"
)

// Group hostler and callers over the network may read it, but not the files.
func TestTheConfigurationIsShownWithoutPasswords(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hostler.yaml")
	read := func() (config.Loaded, error) { return config.Load(file, "") }
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("node: {annotations: {example.org/proxy: 'http://user:hunter2@proxy.example:3128'}}\n")
	loaded, err := read()
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "controlPlane: {type: etcd, etcd: {endpoints: [https://e], username: n, passwordFile: hunter2}}\n"} {
		write(text)
		shown, err := Configuration{Settings: settings.New(loaded.Config, open.Policies{}, settings.Source{File: file, Read: read})}.Config(t.Context())
		if output := fmt.Sprintf("%+v", shown); err != nil || strings.Contains(output, "hunter2") || !strings.Contains(output, "proxy.example:3128") {
			t.Errorf("Config() = %s, %v, want the proxy and no password", output, err)
		}
		if faulty := text != ""; (shown.Fault != "") != faulty {
			t.Errorf("Config() of files with %q has the fault %q, want one: %t", text, shown.Fault, faulty)
		}
	}
}

// runc does not record exit codes, and 0 would look like a success.
func TestAnExitCodeThatNobodyKnowsIsNotReported(t *testing.T) {
	for name, c := range map[string]struct {
		container runtime.Container
		reported  bool
	}{
		"has ended, and nobody knows how": {runtime.Container{State: runtime.Exited}, false},
		"has ended":                       {runtime.Container{State: runtime.Exited, FinishedAt: time.Unix(1, 0)}, true},
		"runs":                            {runtime.Container{State: runtime.Running}, true},
	} {
		if code := exitCode(c.container); (code != nil) != c.reported {
			t.Errorf("exit code of a container that %s = %v, want it reported: %t", name, code, c.reported)
		}
	}
}
