package kubernetes_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hostler.io/hostler/controlplane/kubernetes"
)

func TestADiagnosisReportsTheClockAndTheRights(t *testing.T) {
	rights := append(kubernetes.Needed("n"), kubernetes.ToLeave("n"))
	var asked sync.WaitGroup // each answer waits until all rights were requested
	asked.Add(len(rights))
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))
		switch {
		case strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews"):
			var question struct {
				Spec struct{ ResourceAttributes kubernetes.Right }
			}
			if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
				t.Errorf("read the question: %v", err)
			}
			asked.Done()
			asked.Wait()
			if question.Spec.ResourceAttributes.Verb == "delete" {
				respond(w, `{"status":{"allowed":false}}`)
				return
			}
			respond(w, `{"status":{"allowed":true}}`)
		case strings.Contains(r.URL.Path, "/leases/"):
			respond(w, leaseText)
		default:
			respond(w, nodeText)
		}
	})
	o := kubernetes.Options{Kubeconfig: write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server), "token: secret")), Version: "1.2.3", Log: quiet()}
	s := kubernetes.Diagnose(t.Context(), o, "n", rights)
	if s.Err != nil || s.Node == nil || s.Lease == nil || s.Server != server.URL {
		t.Errorf("Diagnose() = %+v, want Node and Lease", s)
	}
	if s.Skew < 50*time.Minute || s.Skew > 70*time.Minute || time.Since(s.Now) < 50*time.Minute {
		t.Errorf("Diagnose() finds this host's clock %v ahead at %v, want an hour", s.Skew, s.Now)
	}
	if s.RightsErr != nil || len(s.Rights) != len(rights) || slices.Index(s.Rights, false) != len(rights)-1 {
		t.Errorf("Diagnose() finds the rights %v, %v, want all but the last", s.Rights, s.RightsErr)
	}
}

func TestADiagnosisStopsIfTheServerRejectsTheCredentials(t *testing.T) {
	asked := 0
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		refuse(w, http.StatusUnauthorized, "Unauthorized", "who are you?")
	})
	o := kubernetes.Options{
		Kubeconfig: write(t, "kubeconfig", config(server.URL, "certificate-authority: "+authority(t, server), "token: secret")), Version: "1.2.3", Log: quiet(),
		Refused: func() { t.Error("Diagnose() notifies the agent") },
	}
	if s := kubernetes.Diagnose(t.Context(), o, "n", kubernetes.Needed("n")); s.Err == nil || s.Node != nil || asked != 1 || s.Now.IsZero() {
		t.Errorf("Diagnose() = %+v after %d requests, want one that is refused, and the server's time", s, asked)
	}
}

func TestWhoElseWritesANodeIsReported(t *testing.T) {
	now := metav1.Now()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{
		{Manager: "hostler", Subresource: "status", Time: &now},
		{Manager: "kubelet", Subresource: "status", Time: &now},
		{Manager: "kubectl-label", Time: &now},
	}}}
	if got := kubernetes.Writers(node); len(got) != 1 || !got["kubelet"].Equal(now.Time) {
		t.Errorf("Writers() = %v, want the kubelet", got)
	}
}

func TestCredentialsAreReportedWithoutAsking(t *testing.T) {
	server := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the server is asked") })
	folder, ca := t.TempDir(), "certificate-authority: "+authority(t, server)
	at := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	pem, err := os.ReadFile(strings.TrimPrefix(ca, "certificate-authority: "))
	if err != nil {
		t.Fatal(err)
	}
	certificate, key, token := at("tls.crt", string(pem)), at("tls.key", "secret"), at("token", "secret")
	for name, c := range map[string]struct {
		user, certificate string
		secret            string // last part of a path
	}{
		"a token":                    {"token: secret", "", "kubeconfig"},
		"a file with a token":        {"tokenFile: " + token, "", token},
		"a certificate and its key":  {"client-certificate: " + certificate + ", client-key: " + key, certificate, key},
		"a plugin, which is not run": {`exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/false, interactiveMode: Never}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := kubernetes.Credentials(write(t, "kubeconfig", config(server.URL, ca, c.user)))
			if err != nil || h.Certificate != c.certificate || (c.certificate != "") == h.Ends.IsZero() {
				t.Errorf("Credentials() = %+v, %v, want the certificate of %q with its end", h, err, c.certificate)
			}
			if secrets := strings.Join(h.Secrets, " "); !strings.HasSuffix(secrets, c.secret) || (c.secret == "") != (secrets == "") {
				t.Errorf("Credentials() finds secrets in %q, want in %q", secrets, c.secret)
			}
		})
	}
}
