package agent

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/runtime/cri"
)

// Two containerds on one host are a containerd and a k3s, or two configured ones.
func TestTwoRuntimesOfOneKindAreToldApart(t *testing.T) {
	first, second := newContainerd(t), newContainerd(t)
	a := newAgent(t, first.socket, second.socket)
	if err := a.runtimes.look(t.Context()); err != nil {
		t.Fatalf("look() = %v", err)
	}
	images, err := a.runtimes.set.Images(t.Context())
	if err != nil || len(images) != 2 {
		t.Fatalf("Images() = %v, %v, want one of each runtime", images, err)
	}
	report := a.runtimes.report()
	if len(report) != 2 || report[0].Name != images[0].Runtime || report[1].Name != images[1].Runtime || report[0].Name == report[1].Name {
		t.Errorf("report() = %+v, want the names that images carry: %s, %s", report, images[0].Runtime, images[1].Runtime)
	}
	response := httptest.NewRecorder()
	a.metrics.handler().ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if body := response.Body.String(); response.Code != http.StatusOK || strings.Count(body, "\nhostler_runtime_ready{") != 2 {
		t.Errorf("GET /metrics = %d with %d runtimes ready, want 200 with 2: %.300s", response.Code, strings.Count(body, "\nhostler_runtime_ready{"), body)
	}
}

func TestOneSocketIsOneRuntime(t *testing.T) {
	s := newContainerd(t)
	link := filepath.Join(folder(t), "k3s.sock")
	if err := os.Symlink(s.socket, link); err != nil {
		t.Fatal(err)
	}
	candidates := []cri.Candidate{{Name: "containerd", Path: s.socket}, {Name: "k3s", Path: link}}
	a := newAgent(t)
	a.runtimes.candidates = candidates
	for range 2 {
		if err := a.runtimes.look(t.Context()); err != nil {
			t.Fatalf("look() = %v", err)
		}
		if found := a.runtimes.report(); len(found) != 1 || found[0].Name != "containerd" {
			t.Errorf("report() = %+v, want containerd alone", found)
		}
	}
	list := config.Runtimes{List: []config.Runtime{{Type: "cri", Endpoint: s.socket}, {Type: "cri", Endpoint: link}}}
	if _, err := newRuntimes(list, a.metrics.runtimeCall, a.log); err == nil || !strings.Contains(err.Error(), link) {
		t.Errorf("newRuntimes() of two paths to one socket = %v, want an error that names the second", err)
	}
}
