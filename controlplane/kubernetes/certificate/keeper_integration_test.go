//go:build integration

package certificate_test

import (
	"context"
	"crypto/tls"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
	"hostler.io/hostler/controlplane/kubernetes/certificate"
	"hostler.io/hostler/test/kube"
)

// patience limits waits for something that is quick on any machine.
const patience = 5 * time.Minute

// node is a host that joins by bootstrap, with its keeper and its client.
type node struct {
	keeper  *certificate.Keeper
	client  *kubernetes.Client
	renewed chan struct{}
}

// join builds keeper and client as an agent does, and runs the keeper.
func join(t *testing.T, name, bootstrap, directory string) *node {
	t.Helper()
	n, current := &node{renewed: make(chan struct{}, 16)}, certificate.NewCurrent()
	asNode := kubernetes.Options{Kubeconfig: bootstrap, Version: "1.2.3", Log: quiet(), Certificate: current.Certificate}
	byToken := asNode
	byToken.Certificate = nil
	first, err := kubernetes.NewRequests(byToken)
	if err != nil {
		t.Fatal(err)
	}
	later, err := kubernetes.NewRequests(asNode)
	if err != nil {
		t.Fatal(err)
	}
	if n.client, err = kubernetes.New(asNode); err != nil {
		t.Fatal(err)
	}
	n.keeper, err = certificate.New(certificate.Options{
		Node: name, Directory: directory, Current: current, Bootstrap: first, Renewal: later, Log: quiet(),
		Try: func(ctx context.Context, c *tls.Certificate) error { return kubernetes.Try(ctx, byToken, name, c) },
		Renewed: func() {
			n.client.Reconnect()
			later.Reconnect()
			n.renewed <- struct{}{}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.keeper.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return n
}

func (n *node) await(t *testing.T) int64 {
	t.Helper()
	select {
	case <-n.renewed:
	case <-time.After(patience):
		_, err := n.keeper.Status()
		t.Fatalf("no certificate in %v: %v", patience, err)
	}
	return serial(t, n.keeper)
}

func TestANodeJoinsAndRenews(t *testing.T) {
	t.Parallel()
	for life := 30 * time.Second; !joinsAndRenews(t, life); life *= 2 {
		t.Logf("a certificate of %v has ended before it was renewed: this machine is busy", life)
		if life > patience {
			t.Fatal("no certificate is renewed before it ends")
		}
	}
}

// joinsAndRenews returns false if a certificate ended before it was renewed.
func joinsAndRenews(t *testing.T, life time.Duration) bool {
	t.Helper()
	cluster := kube.For(t, kube.Options{ControllerManager: true, ControllerManagerFlags: []string{"--cluster-signing-duration=" + life.String()}})
	bootstrap, err := cluster.BootstrapKubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := join(t, "n", bootstrap, t.TempDir())
	first := n.await(t)
	registered := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	// ended reports whether there is no valid certificate.
	ended := func() bool {
		now, err := n.keeper.Certificate()
		return err != nil || time.Now().After(now.Leaf.NotAfter)
	}
	if _, err := n.client.Register(ctx, registered, controlplane.RegisterOptions{}); err != nil {
		if ended() {
			return false
		}
		t.Fatalf("Register() with the new certificate = %v, want no error", err)
	}
	// The token is not needed any more.
	if _, err := cluster.Kubectl(t.Context(), "delete", "secret", "bootstrap-token-hostlr", "-n", "kube-system"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for len(n.renewed) == 0 {
			if ended() {
				return false
			}
			time.Sleep(50 * time.Millisecond)
		}
		if next := n.await(t); next == first {
			t.Error("renewed certificate is the first one")
		}
		if _, err := n.client.UpdateStatus(ctx, registered); err != nil {
			if ended() {
				return false
			}
			t.Errorf("UpdateStatus() with a renewed certificate = %v, want no error", err)
		}
	}
	requests, err := cluster.Requests()
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]int{}
	for _, r := range requests {
		if r.Verb == "create" && r.Resource == "certificatesigningrequests" {
			by[r.User]++
		}
	}
	if by["system:bootstrap:hostlr"] != 1 || by["system:node:n"] < 2 {
		t.Errorf("signing requests = %v, want one by the bootstrap's user and the others by the node", by)
	}
	return true
}

func TestAPersonDecidesOnARequest(t *testing.T) {
	t.Parallel()
	cluster := kube.For(t, kube.Options{ControllerManager: true})
	bootstrap, err := cluster.BootstrapKubeconfig(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Kubectl(t.Context(), "delete", "clusterrolebinding", "nodes-are-approved"); err != nil {
		t.Fatal(err)
	}
	n := join(t, "m", bootstrap, t.TempDir())
	var waiting error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if _, waiting = n.keeper.Status(); waiting != nil && strings.Contains(waiting.Error(), "kubectl certificate approve") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := n.client.Node(t.Context(), "m"); err == nil || !strings.Contains(err.Error(), "kubectl certificate approve") {
		t.Errorf("Node() before there is a certificate = %v, want it to say what it waits for", err)
	}
	_, name, _ := strings.Cut(waiting.Error(), "kubectl certificate approve ")
	if out, err := cluster.Kubectl(t.Context(), "certificate", "approve", strings.Trim(name, "`")); err != nil {
		t.Fatalf("kubectl certificate approve = %s, %v", out, err)
	}
	n.await(t)
	if _, err := n.client.Register(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m"}}, controlplane.RegisterOptions{}); err != nil {
		t.Errorf("Register() once approved = %v, want no error", err)
	}
	if err := os.Remove(bootstrap); err != nil {
		t.Fatal(err)
	}
	n.client.Reconnect()
	if _, err := n.client.Node(t.Context(), "m"); err != nil {
		t.Errorf("Node() once the bootstrap kubeconfig is gone = %v, want what it said to be remembered", err)
	}
}
