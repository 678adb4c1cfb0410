package kubernetes_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/kubernetes"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// serve runs a fake API server over HTTP/2.
func serve(t *testing.T, handler http.HandlerFunc) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// authority writes the server's certificate to a file.
func authority(t *testing.T, server *httptest.Server) string {
	t.Helper()
	return write(t, "ca.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pluginUser runs exec plugins in tests. Every host has it.
const pluginUser = "daemon"

// writeProgram writes a program that other users can execute as well.
func writeProgram(t *testing.T, text string) string {
	t.Helper()
	path := write(t, "program", text)
	if err := errors.Join(os.Chmod(path, 0o755), os.Chmod(filepath.Dir(filepath.Dir(path)), 0o755)); err != nil {
		t.Fatal(err)
	}
	return path
}

// config returns a kubeconfig for a server with a user's credentials, both in YAML.
func config(server, cluster, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {server: %q, %s}
users:
- name: u
  user: {%s}
contexts:
- name: x
  context: {cluster: c, user: u}
current-context: x
`, server, cluster, user)
}

// open returns a client of that kubeconfig.
func open(t *testing.T, kubeconfig string) *kubernetes.Client {
	t.Helper()
	client, err := kubernetes.New(kubernetes.Options{Kubeconfig: kubeconfig, Version: "1.2.3", PluginUser: pluginUser, Log: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// dial returns a client of that server.
func dial(t *testing.T, server *httptest.Server) *kubernetes.Client {
	t.Helper()
	return open(t, write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server), "token: secret")))
}

// refuse answers with an error, as an API server does.
func refuse(w http.ResponseWriter, code int, reason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`, code, reason, message)
}

// respond answers with JSON, as an API server does.
func respond(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(text))
}

const (
	nodeText  = `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","uid":"u","resourceVersion":"1"}}`
	leaseText = `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"n","namespace":"kube-node-lease","uid":"l","resourceVersion":"2"}}`
)

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{MachineID: "m"}}}
}

func newLease(t *testing.T, name string) *coordinationv1.Lease {
	t.Helper()
	lease, err := controlplane.NewLease(name, controlplane.Identity{MachineID: "m"}, 40*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return controlplane.Renew(lease, time.Now())
}
