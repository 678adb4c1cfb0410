//go:build integration

package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/test/kube"
)

// withToken returns a node's user with a token and an additional group.
func withToken(name, token, group string) kube.User {
	u := kube.Node(name)
	u.Token, u.Groups = token, append(u.Groups, group)
	return u
}

// asUser returns the configuration of an agent of that node, whose user has these credentials.
func (c cluster) asUser(name, credentials string) string {
	c.t.Helper()
	file := filepath.Join(c.t.TempDir(), "kubeconfig")
	check(c.t, os.WriteFile(file, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: here,
clusters: [{name: here, cluster: {server: %q, certificate-authority: %q}}],
users: [{name: node, user: {%s}}],
contexts: [{name: here, context: {cluster: here, user: node}}]}
`, c.Server, c.CAFile, credentials), 0o600))
	return fmt.Sprintf("controlPlane: {type: kubernetes, kubernetes: {kubeconfig: %s}}\nnode: {name: %s}\n"+
		"lease: {duration: 10s, renewInterval: 1s}\nstatus: {updateInterval: 1s}\n", file, name)
}

// TestATokenIsExchanged replaces a token in its file while the agent runs.
func TestATokenIsExchanged(t *testing.T) {
	t.Parallel()
	const name = "by-token"
	c := newCluster(t, kube.Options{Users: []kube.User{withToken(name, "first", "first"), withToken(name, "second", "second")}})
	file := filepath.Join(t.TempDir(), "token")
	give := func(token string) {
		t.Helper()
		check(t, os.WriteFile(file+".new", []byte(token+"\n"), 0o600))
		check(t, os.Rename(file+".new", file))
	}
	// with waits until a user in that group renews the Lease.
	with := func(group string) {
		t.Helper()
		eventually(t, "the lease is renewed with the token "+group, func() bool {
			requests, err := c.Requests()
			check(t, err)
			return slices.ContainsFunc(requests, func(r kube.Request) bool {
				return r.Resource == "leases" && r.Code == http.StatusOK && slices.Contains(r.Groups, group)
			})
		})
	}
	give("outdated")
	a := startAgent(t, c.asUser(name, "tokenFile: "+file))
	s := a.await("hostler says that the token is not accepted", func(s api.Status) bool {
		return strings.Contains(s.ControlPlane.LastError, "rejected the credentials")
	})
	mentions(t, "the error", s.ControlPlane.LastError, "kubeconfig", "expired")
	a.wantPulse(http.StatusServiceUnavailable, 1, "credentials")
	give("first")
	with("first")
	a.wantPulse(http.StatusOK, 0, "")
	give("second")
	with("second")
	a.awaitReady(corev1.ConditionTrue)
	a.wantPulse(http.StatusOK, 0, "")
	a.stop()
}

// TestAnExecPluginIsAskedAgain runs the plugin again when its credential ends, and names a plugin
// that hangs.
func TestAnExecPluginIsAskedAgain(t *testing.T) {
	t.Parallel()
	const name = "by-plugin"
	c := newCluster(t, kube.Options{Users: []kube.User{withToken(name, "secret", "asked")}})
	folder := t.TempDir()
	plugin, asked, hang, pid := filepath.Join(folder, "plugin"), filepath.Join(folder, "asked"), filepath.Join(folder, "hang"), filepath.Join(folder, "pid")
	check(t, os.WriteFile(plugin, fmt.Appendf(nil, `#!/bin/sh
echo asked >>%s
if [ -e %s ]; then echo $$ >%s; exec sleep 86400; fi
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"secret","expirationTimestamp":"'"$(date -u -d @$(($(date +%%s) + 2)) +%%Y-%%m-%%dT%%H:%%M:%%SZ)"'"}}'
`, asked, hang, pid), 0o755))
	check(t, os.Chmod(filepath.Dir(folder), 0o755)) // the plugin runs as hostler-exec
	for _, file := range []string{asked, pid} {
		check(t, os.WriteFile(file, nil, 0o666))
		check(t, os.Chmod(file, 0o666))
	}
	times := func() int {
		text, err := os.ReadFile(asked)
		check(t, err)
		return strings.Count(string(text), "\n")
	}
	a := startAgent(t, c.asUser(name, "exec: {apiVersion: client.authentication.k8s.io/v1, command: "+plugin+", interactiveMode: IfAvailable}"))
	eventually(t, "the cluster knows the node", func() bool { return c.node(name) != nil })
	before := times()
	eventually(t, "the plugin is asked again", func() bool { return times() >= before+3 })
	a.awaitLease(a.status())
	a.wantPulse(http.StatusOK, 0, "")

	check(t, os.WriteFile(hang, nil, 0o600))
	before = times()
	began := time.Now()
	a.await("the lease is overdue because of the plugin", func(s api.Status) bool {
		return strings.Contains(s.ControlPlane.Overdue, "exec plugin "+plugin) && strings.Contains(s.ControlPlane.Overdue, "returns no credentials")
	})
	a.wantPulse(http.StatusServiceUnavailable, 1, "exec plugin")
	if now := times(); now > before+2+int(time.Since(began)/(2*time.Minute)) {
		t.Errorf("the plugin was asked %d times while it hung, want it asked once in two minutes", now-before)
	}
	last := a.status()
	process, err := os.ReadFile(pid)
	check(t, err)
	check(t, os.Remove(hang))
	check(t, syscall.Kill(int(number(t, strings.TrimSpace(string(process)))), syscall.SIGTERM))
	a.awaitLease(last)
	a.wantPulse(http.StatusOK, 0, "")
	a.stop()
}
