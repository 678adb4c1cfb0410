//go:build integration

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"hostler.io/hostler/test/kube"
	"hostler.io/hostler/test/lab"
)

// TestVerifyingAClusterLeavesNothingBehind verifies a real cluster with a registered node: as that
// node, as an administrator, and with an interruption.
func TestVerifyingAClusterLeavesNothingBehind(t *testing.T) {
	lab.TakesMinutes(t)
	t.Parallel()
	c := newCluster(t, kube.Options{})
	c.kubectl("create", "-f", manifestOf(t, "resident"))
	before := c.node("resident")
	file := filepath.Join(t.TempDir(), "hostler.yaml")
	check(t, os.WriteFile(file, []byte(c.asNode("resident", "")), 0o644))
	verify := func(args ...string) *exec.Cmd {
		return exec.CommandContext(t.Context(), binary, append([]string{"controlplane", "verify", "--config", file}, args...)...)
	}
	alone := func(after string) {
		t.Helper()
		for _, kind := range []string{"nodes", "leases"} { // a node may not delete Events, which expire
			if names := c.kubectl("get", kind, "-A", "-o", "name"); strings.Contains(names, "hostler-verify") {
				t.Errorf("kubectl get %s after %s = %q, want nothing of the checks", kind, after, names)
			}
		}
		if now := c.node("resident"); now == nil || now.ResourceVersion != before.ResourceVersion {
			t.Errorf("the node that was there is after %s %v, want it untouched", after, now)
		}
	}

	out, _ := verify().Output()
	mentions(t, "verify as a node", strings.Join(strings.Fields(string(out)), " "), "not allowed by the credentials", "hint: a node may touch its own Node only", " 0 failed")
	alone("a verification as a node")
	c.kubectl("delete", "events", "--all")

	out, err := verify("--kubeconfig", c.AdminKubeconfig(), "-o", "json").Output()
	var found struct {
		ControlPlane struct{ Type, Endpoint string }
		Checks       []struct{ Check, Status, Message string }
	}
	if fault := json.Unmarshal(out, &found); err != nil || fault != nil || found.ControlPlane.Endpoint != c.Server || len(found.Checks) < 40 {
		t.Fatalf("verify as an administrator = %v, %v: %s, want it to keep its promises", err, fault, out)
	}
	ok := 0
	for _, check := range found.Checks {
		if check.Status == "ok" {
			ok++
		}
		if check.Status == "failed" || strings.Contains(check.Message, "credentials") {
			t.Errorf("verify as an administrator: %+v, want it tried, and ok", check)
		}
	}
	if ok < 30 {
		t.Errorf("verify as an administrator: %d checks are ok, want most of them: %s", ok, out)
	}
	alone("a verification as an administrator")
	if events := c.kubectl("get", "events", "-o", "name"); strings.TrimSpace(events) != "" {
		t.Errorf("kubectl get events after a verification as an administrator = %q, want none", events)
	}

	var text bytes.Buffer
	impatient := verify("--kubeconfig", c.AdminKubeconfig())
	impatient.Stdout, impatient.Stderr = &text, &text
	check(t, impatient.Start())
	eventually(t, "a check makes a node", func() bool { return strings.Contains(c.kubectl("get", "nodes", "-o", "name"), "hostler-verify") })
	check(t, impatient.Process.Signal(syscall.SIGINT))
	if err := impatient.Wait(); err == nil || !strings.Contains(text.String(), "interrupted") {
		t.Errorf("verify that is interrupted = %v, %s, want that it says so", err, text.String())
	}
	alone("an interruption")
}

// manifestOf returns a file with a Node of that name.
func manifestOf(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".yaml")
	check(t, os.WriteFile(file, fmt.Appendf(nil, "{apiVersion: v1, kind: Node, metadata: {name: %s}}\n", name), 0o644))
	return file
}
