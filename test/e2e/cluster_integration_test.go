//go:build integration

package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/agent/doctor"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
	"hostler.io/hostler/test/kube"
)

// ready reports whether the cluster's Node of that name is Ready.
func (c cluster) ready(name string) func() bool {
	return func() bool {
		n := c.node(name)
		return n != nil && condition(api.Status{Node: n}, corev1.NodeReady).Status == corev1.ConditionTrue
	}
}

// refusals returns the requests of that node that the server has refused so far.
func (c cluster) refusals(name string) []string {
	c.t.Helper()
	requests, err := c.Requests()
	check(c.t, err)
	var refused []string
	asked := 0
	for _, r := range requests {
		if r.User != "system:node:"+name || !strings.HasPrefix(r.UserAgent, "hostler/") {
			continue
		}
		if asked++; r.Code == 403 {
			refused = append(refused, r.String())
		}
	}
	if asked == 0 {
		c.t.Errorf("the audit log has no request of node %s", name)
	}
	return refused
}

// onlyAsked fails unless the program has made requests, and none that changes anything.
func (c cluster) onlyAsked(program string) {
	c.t.Helper()
	requests, err := c.Requests()
	check(c.t, err)
	asked := 0
	for _, r := range requests {
		switch {
		case !strings.HasPrefix(r.UserAgent, program):
			continue
		case r.Verb != "get" && r.Verb != "list" && r.Resource != "selfsubjectaccessreviews":
			c.t.Errorf("%s has asked the server to %v, want it to change nothing", program, r)
		}
		asked++
	}
	if asked == 0 {
		c.t.Errorf("the audit log has no request of %s", program)
	}
}

// TestANodesOwnRightsAreEnough uses the credentials of a node, without other rights.
func TestANodesOwnRightsAreEnough(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{})
	a := startAgent(t, c.asNode("modest", ", labels: {example.com/rack: r1}, taints: [{key: example.com/new, effect: NoSchedule}]")+"lease: {duration: 10s, renewInterval: 1s}\nstatus: {updateInterval: 1s, reportInterval: 2s}\n")
	eventually(t, "the node is Ready", c.ready("modest"))
	eventually(t, "the agent has published an Event", func() bool {
		return strings.Contains(c.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}"), "Registered")
	})

	var r doctor.Report
	eventually(t, "doctor finds the Node well", func() bool { // while its Lease of 10 s is renewed
		r = a.diagnose()
		return slices.ContainsFunc(r.Checks, func(c doctor.Check) bool { return c.Name == "cluster-node" && c.Status == doctor.OK })
	})
	found(t, r, "cluster", doctor.OK, c.Server+" answers, and node modest exists")
	found(t, r, "cluster-credentials", doctor.OK, "the certificate is valid until")
	found(t, r, "cluster-clock", doctor.OK)
	found(t, r, "cluster-rights", doctor.OK, "allow everything", "hostler leave")

	// The actions of a person and of other clients need no other rights either.
	a.prints("cordon")
	a.prints("uncordon")
	c.kubectl("label", "node", "modest", "example.com/rack=r2", "--overwrite")
	eventually(t, "the label is set again", func() bool { return c.node("modest").Labels["example.com/rack"] == "r1" })
	c.kubectl("taint", "node", "modest", "example.com/new-")
	eventually(t, "doctor names the taint and what fixes it", func() bool {
		return slices.ContainsFunc(a.diagnose().Checks, func(c doctor.Check) bool {
			return c.Name == "cluster-node" && c.Status == doctor.Warn && strings.Contains(c.Hint, "kubectl taint nodes modest example.com/new")
		})
	})
	c.kubectl("delete", "node", "modest")
	eventually(t, "hostler registers it again", c.ready("modest"))
	a.stop()
	a.start()
	eventually(t, "it is Ready after a restart", c.ready("modest"))
	if refused := c.refusals("modest"); len(refused) > 0 {
		t.Errorf("the server has refused %q, want nothing", refused)
	}

	t.Run("a leave that somebody else has to finish holds", func(t *testing.T) {
		if r := a.hostler("leave"); r.code != 1 || !strings.Contains(r.err, "kubectl delete node modest") || !strings.Contains(r.err, "hostler leave --undo") {
			t.Errorf("hostler leave = code %d, %s%s, want what somebody who may types, and the way back", r.code, r.out, r.err)
		}
		if refused := c.refusals("modest"); len(refused) != 1 || !strings.HasPrefix(refused[0], "delete nodes ") {
			t.Errorf("the server has refused %q, want the deletion alone", refused)
		}
		c.kubectl("delete", "node", "modest")
		a.stop()
		a.start()
		mentions(t, "hostler status", a.screen(), "with `hostler leave`; this persists across restarts; run `hostler leave --undo` to register it again")
		found(t, a.diagnose(), "cluster", doctor.Warn, "node modest does not exist", "hostler leave --undo")
		if n := c.node("modest"); n != nil {
			t.Errorf("the Node is there after a leave and a restart: %v", n.Status.Conditions)
		}
		mentions(t, "hostler leave --undo", a.prints("leave", "--undo"), "registering node modest with control plane kubernetes again")
		eventually(t, "it is Ready once it is undone", c.ready("modest"))
	})
	t.Run("a node that was given the right leaves by itself", func(t *testing.T) {
		c.kubectl("create", "clusterrole", "modest-may-leave", "--verb=delete", "--resource=nodes", "--resource-name=modest")
		c.kubectl("create", "clusterrolebinding", "modest-may-leave", "--clusterrole=modest-may-leave", "--user=system:node:modest")
		eventually(t, "doctor knows of the right", func() bool {
			return slices.ContainsFunc(a.diagnose().Checks, func(c doctor.Check) bool {
				return c.Name == "cluster-rights" && strings.Contains(c.Message, "allow everything, including `hostler leave`")
			})
		})
		mentions(t, "hostler leave", a.prints("leave"), "deleted Node and Lease")
		if n := c.node("modest"); n != nil {
			t.Error("the Node is there after a leave")
		}
		if out, err := c.Kubectl(t.Context(), "get", "lease", "modest", "-n", "kube-node-lease"); err == nil {
			t.Errorf("the Lease is there after a leave:\n%s", out)
		}
	})
	t.Run("doctor reports why the cluster is unreachable", func(t *testing.T) {
		a.prints("leave", "--undo")
		eventually(t, "it is Ready", c.ready("modest"))
		check(t, c.APIServer.Kill())
		found(t, a.diagnose(), "cluster", doctor.Fail, "does not answer", "curl -k "+c.Server)
		a.kill()
		r := a.diagnoseAlone()
		found(t, r, "cluster", doctor.Fail, "does not answer")
		found(t, r, "cluster-credentials", doctor.OK, "the certificate is valid until")
		check(t, c.APIServer.Start())
		check(t, c.Ready(t.Context()))
		r = a.diagnoseAlone()
		found(t, r, "cluster", doctor.OK, "answers, and node modest exists")
		eventually(t, "the lease is overdue", func() bool {
			return slices.ContainsFunc(a.diagnoseAlone().Checks, func(c doctor.Check) bool {
				return c.Name == "cluster-node" && c.Status == doctor.Fail && strings.Contains(c.Message, "the lease has expired: ")
			})
		})
		c.onlyAsked("hostler/doctor ")
	})
}

// diagnoseAlone is diagnose without a running agent: with the agent's configuration and socket.
func (a *agent) diagnoseAlone() doctor.Report {
	a.t.Helper()
	r, got := diagnosis(a.t, func() answer {
		return command(a.t, []string{"HOSTLER_SOCKET=" + a.socket, "HOSTLER_CONFIG=" + a.config}, "doctor", "-o", "json")
	})
	if got.code != 1 || r.Message == "" {
		a.t.Fatalf("hostler doctor without an agent = code %d\n%s%s, want a report that says so", got.code, got.out, got.err)
	}
	return r
}

// foreign writes a certificate for that node, valid for a day, that another authority has signed,
// as after an exchange of the cluster's authority.
func foreign(t testing.TB, path, node string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	packed, err := x509.MarshalECPrivateKey(key)
	check(t, err)
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: packed})...)
	check(t, os.WriteFile(path, text, 0o600))
}

// TestANodeWhoseCertificateIsNotAcceptedAnyMore checks that the node joins again by bootstrap.
func TestANodeWhoseCertificateIsNotAcceptedAnyMore(t *testing.T) {
	t.Parallel()
	c := newCluster(t, kube.Options{ControllerManager: true})
	bootstrap, err := c.BootstrapKubeconfig(t.Context())
	check(t, err)
	c.kubectl("delete", "clusterrolebinding", "nodes-are-approved")
	folder := t.TempDir()
	file := filepath.Join(folder, certificate.FileCurrent)
	foreign(t, file, "revoked")
	before, err := os.ReadFile(file)
	check(t, err)
	a := startAgent(t, fmt.Sprintf("controlPlane: {type: kubernetes, kubernetes: {bootstrapKubeconfig: %s, certificateDirectory: %s}}\nnode: {name: revoked}\n", bootstrap, folder))
	eventually(t, "hostler status says what the agent waits for", func() bool {
		s := a.screen()
		return strings.Contains(s, "rejected this node's certificate, valid until") && strings.Contains(s, "kubectl certificate approve node-csr-")
	})
	r := a.diagnose()
	found(t, r, "cluster", doctor.Fail, "does not accept this host's credentials", "requests a new certificate automatically")
	found(t, r, "cluster-credentials", doctor.Fail, "is not accepted, and no new one is issued", "kubectl certificate approve node-csr-")
	if now, err := os.ReadFile(file); err != nil || string(now) != string(before) {
		t.Errorf("the stored certificate has changed before there is another: %v", err)
	}
	name := strings.TrimSpace(c.kubectl("get", "csr", "-o", "jsonpath={.items[*].metadata.name}"))
	c.kubectl("certificate", "approve", name)
	eventually(t, "the node is Ready", c.ready("revoked"))
	eventually(t, "nothing is amiss any more", func() bool { return a.status().ControlPlane.Credentials == "" })
	found(t, a.diagnose(), "cluster-credentials", doctor.OK, "is renewed before")
	a.stop()
}

// TestTheDocumentedWayToJoin runs the commands of docs/start/kubernetes.md and docs/reference/kubernetes.md.
func TestTheDocumentedWayToJoin(t *testing.T) {
	t.Parallel()
	c, folder := newCluster(t, kube.Options{ControllerManager: true}), t.TempDir()
	file := filepath.Join(folder, "bootstrap.kubeconfig")
	var before, after [][]string // commands of the cluster's administrator, before and after the configuration
	var token []string           // commands that write the token's files
	settings := ""
	for i, block := range strings.Split(document(t), "```") {
		switch {
		case i%2 == 0: // between blocks
		case strings.Contains(block, "bootstrapKubeconfig:"):
			_, settings, _ = strings.Cut(strings.ReplaceAll(block, "/etc/hostler/bootstrap.kubeconfig", file), "\n") // the language stands before
		default:
			for line := range strings.Lines(block) {
				line = strings.TrimSpace(line)
				arguments, found := strings.CutPrefix(line, "kubectl ")
				if !found {
					if strings.HasPrefix(line, "umask ") || strings.Contains(line, ">") {
						token = append(token, line)
					}
					continue
				}
				arguments = strings.NewReplacer("bootstrap.kubeconfig", file, "https://SERVER:6443", c.Server, "=ca.crt", "="+c.CAFile, "NAME", "newcomer",
					"=token-secret=", "=token-secret="+folder+"/", "tokenFile ", "tokenFile "+folder+"/").Replace(arguments)
				if settings == "" {
					before = append(before, strings.Fields(arguments))
				} else {
					after = append(after, strings.Fields(arguments))
				}
			}
		}
	}
	if len(before) != 8 || len(after) != 8 || len(token) != 3 || settings == "" {
		t.Fatalf("docs/start/kubernetes.md and docs/reference/kubernetes.md have the commands %q and %q around %q, and %q for the token, want 8 to join, 8 afterwards and 3", before, after, settings, token)
	}
	shell := exec.Command("bash", "-euo", "pipefail", "-c", strings.Join(token, "\n"))
	shell.Dir = folder
	if text, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("%q: %v\n%s", token, err, text)
	}
	for _, command := range before {
		c.kubectl(command...)
	}
	check(t, os.Chmod(file, 0o600))
	certificates := filepath.Join(folder, "pki")
	a := startAgent(t, settings+"    certificateDirectory: "+certificates+"\nnode: {name: newcomer}\n")
	eventually(t, "the node is Ready", c.ready("newcomer"))
	eventually(t, "there is a lease", func() bool {
		_, err := c.Kubectl(t.Context(), "get", "lease", "newcomer", "-n", "kube-node-lease")
		return err == nil
	})
	for _, command := range after {
		line, want := "kubectl "+strings.Join(command, " "), "newcomer"
		if !strings.Contains(line, want) { // of this node
			want = "created"
		}
		mentions(t, line, c.kubectl(command...), want)
	}
	for _, name := range []string{"cluster", "cluster-credentials", "cluster-clock", "cluster-node"} {
		found(t, a.diagnose(), name, doctor.OK)
	}
	eventually(t, "the right to leave is known", func() bool {
		return slices.ContainsFunc(a.diagnose().Checks, func(c doctor.Check) bool {
			return c.Name == "cluster-rights" && strings.Contains(c.Message, "allow everything, including `hostler leave`")
		})
	})
	mentions(t, "hostler leave", a.prints("leave"), "deleted Node and Lease")
	a.stop()
}

// document returns the pages about joining a cluster, one after the other.
func document(t testing.TB) string {
	t.Helper()
	var text []byte
	for _, name := range []string{"start", "reference"} {
		part, err := os.ReadFile(filepath.Join("../../docs", name, "kubernetes.md"))
		check(t, err)
		text = append(text, part...)
	}
	return string(text)
}
