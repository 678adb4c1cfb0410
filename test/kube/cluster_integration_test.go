//go:build integration

package kube_test

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hostler.io/hostler/test/kube"
)

// long limits every wait. Only an error makes a wait that long.
const long = 5 * time.Minute

// TestAControlPlane tests what a real control plane does to nodes.
func TestAControlPlane(t *testing.T) {
	t.Parallel()
	byToken := kube.Node("machine-9")
	byToken.Token = "secret"
	c := kube.For(t, kube.Options{
		ControllerManager:      true,
		ControllerManagerFlags: []string{"--node-monitor-period=500ms", "--node-monitor-grace-period=4s", "--cluster-signing-duration=15m"},
		Users:                  []kube.User{byToken},
	})
	t.Run("its version is that of the module", func(t *testing.T) {
		if out := kubectl(t, c, "version"); !strings.Contains(out, "Server Version: v1.36.3\n") {
			t.Errorf("kubectl version prints %q, want the server to be v1.36.3", out)
		}
	})
	t.Run("a node may write what is its own and no more", func(t *testing.T) {
		asNode := "--kubeconfig=" + kubeconfig(t, c, kube.Node("machine-1"))
		kubectl(t, c, asNode, "create", "-f", manifest(t, node("machine-1")))
		kubectl(t, c, asNode, "create", "-f", manifest(t, lease("machine-1")))
		for _, args := range [][]string{
			{"create", "-f", manifest(t, node("machine-2"))},
			{"create", "-f", manifest(t, lease("machine-2"))},
			{"delete", "node", "machine-1"},
		} {
			refused(t, c, "Forbidden", append(args, asNode)...)
		}
		for _, want := range []string{"create nodes machine-1 201", "create leases kube-node-lease/machine-1 201", "delete nodes machine-1 403"} {
			answered(t, c, "system:node:machine-1", want)
		}
	})
	t.Run("a node that renews no lease becomes Unknown", func(t *testing.T) {
		asNode := "--kubeconfig=" + kubeconfig(t, c, kube.Node("silent"))
		// A node is created with its status. To patch the status, kubectl would have to read it, which
		// nodes may not.
		ready := kubectl(t, c, asNode, "create", "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].reason}", "-f", manifest(t,
			"{apiVersion: v1, kind: Node, metadata: {name: silent}, status: {conditions: [{type: Ready, status: 'True', reason: Test, message: well}]}}"))
		if ready != "Test" {
			t.Errorf("the new node is Ready for %q, want its own reason", ready)
		}
		kubectl(t, c, "wait", "node/silent", "--for=condition=Ready=Unknown", "--timeout="+long.String())
	})
	t.Run("a new node is given a certificate", func(t *testing.T) {
		bootstrap, err := c.BootstrapKubeconfig(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		kubectl(t, c, "--kubeconfig="+bootstrap, "create", "-f", manifest(t, signingRequest(t, "machine-3")))
		kubectl(t, c, "wait", "csr/machine-3", "--for=jsonpath={.status.certificate}", "--timeout="+long.String())
		certificate := parse(t, kubectl(t, c, "get", "csr", "machine-3", "-o", "jsonpath={.status.certificate}"))
		if got := certificate.Subject.String(); got != "CN=system:node:machine-3,O=system:nodes" {
			t.Errorf("the certificate is for %s, want the node", got)
		}
		if left := time.Until(certificate.NotAfter); left > 15*time.Minute {
			t.Errorf("the certificate ends in %v, want 15m, as the flag says", left)
		}
	})
	t.Run("a token opens as a certificate does", func(t *testing.T) {
		kubectl(t, c, "--kubeconfig="+kubeconfig(t, c, byToken), "create", "-f", manifest(t, node("machine-9")))
		answered(t, c, "system:node:machine-9", "create nodes machine-9 201")
		byToken.Token = "wrong"
		refused(t, c, "Unauthorized", "--kubeconfig="+kubeconfig(t, c, byToken), "get", "node", "machine-9")
	})
	t.Run("a certificate that is over opens nothing", func(t *testing.T) {
		late := kube.Node("machine-1")
		late.Lifetime = -time.Minute
		refused(t, c, "Unauthorized", "--kubeconfig="+kubeconfig(t, c, late), "get", "node", "machine-1")
	})
}

// TestAControlPlaneInTrouble tests the faults that tests can cause.
func TestAControlPlaneInTrouble(t *testing.T) {
	t.Parallel()
	c := kube.For(t, kube.Options{Apart: true})
	kubectl(t, c, "create", "-f", manifest(t, node("machine-1")))

	if err := c.Etcd.Pause(); err != nil {
		t.Fatal(err)
	}
	refused(t, c, "", "create", "-f", manifest(t, node("machine-2")), "--request-timeout=1s")
	if err := errors.Join(c.Etcd.Continue(), c.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}

	server := strings.TrimPrefix(c.Server, "https://")
	if err := c.APIServer.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := dial(t, server, long); err == nil || isTimeout(err) {
		t.Errorf("dial the dead server = %v, want it refused", err)
	}
	if err := errors.Join(c.APIServer.Start(), c.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}

	conn, err := net.Dial("tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := c.Cut(); err != nil {
		t.Fatal(err)
	}
	if err := exchange(conn, time.Second); !isTimeout(err) {
		t.Errorf("ask on a connection that is cut = %v, want a timeout", err)
	}
	if err := dial(t, server, 5*time.Second); !isTimeout(err) {
		t.Errorf("dial across the cut network = %v, want a timeout", err)
	}
	if got := kubectl(t, c, "get", "nodes", "-o", "name"); !strings.Contains(got, "node/machine-1\n") {
		t.Errorf("behind the cut, and after all that, nodes are %q, want machine-1 among them", got)
	}
	if err := errors.Join(c.Restore(), dial(t, server, long)); err != nil {
		t.Errorf("dial across the restored network = %v, want it to succeed", err)
	}
	if err := exchange(conn, long); err != nil {
		t.Errorf("ask on a connection that was cut = %v, want it to live", err)
	}
}

// exchange sends a request without TLS, which the server answers with an error.
func exchange(conn net.Conn, within time.Duration) error {
	err := conn.SetDeadline(time.Now().Add(within))
	_, writeErr := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n")
	_, readErr := io.ReadFull(conn, make([]byte, 12))
	return cmp.Or(err, writeErr, readErr)
}

func dial(t *testing.T, address string, within time.Duration) error {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: within}).DialContext(t.Context(), "tcp", address)
	if err == nil {
		err = conn.Close()
	}
	return err
}

func isTimeout(err error) bool {
	var timeout net.Error
	return errors.As(err, &timeout) && timeout.Timeout()
}

func kubectl(t *testing.T, c *kube.Cluster, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*long)
	defer cancel()
	out, err := c.Kubectl(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// refused runs kubectl and expects it to fail with that reason.
func refused(t *testing.T, c *kube.Cluster, reason string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	out, err := c.Kubectl(ctx, args...)
	if err == nil || !strings.Contains(err.Error(), reason) || ctx.Err() != nil {
		t.Errorf("kubectl %s = %q, %v, want it refused: %s", strings.Join(args, " "), out, err, reason)
	}
}

// answered expects a request of a user in the audit log.
func answered(t *testing.T, c *kube.Cluster, user, want string) {
	t.Helper()
	requests, err := c.Requests()
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, r := range requests {
		if r.User == user {
			own = append(own, r.String())
		}
	}
	if !slices.Contains(own, want) {
		t.Errorf("%s has asked %q, want %q among them", user, own, want)
	}
}

func kubeconfig(t *testing.T, c *kube.Cluster, u kube.User) string {
	t.Helper()
	file, err := c.Kubeconfig(u)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func manifest(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func node(name string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: %s}}", name)
}

func lease(name string) string {
	return fmt.Sprintf("{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: %[1]s, namespace: kube-node-lease}, spec: {holderIdentity: %[1]s, leaseDurationSeconds: 40}}", name)
}

func signingRequest(t *testing.T, name string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	subject := pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	return fmt.Sprintf("{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: %s}, spec: {signerName: kubernetes.io/kube-apiserver-client-kubelet, usages: [digital signature, client auth], request: %s}}", name, request)
}

// parse decodes a certificate in JSON.
func parse(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		t.Fatalf("the certificate is %q, want PEM", data)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
