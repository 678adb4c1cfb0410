package kubernetes_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"hostler.io/hostler/controlplane"
	"hostler.io/hostler/controlplane/store"
)

// TestWhatAnEvictionMeets has the possible answers of an API server.
func TestWhatAnEvictionMeets(t *testing.T) {
	const because = "The disruption budget web needs 2 healthy pods and has 2 currently"
	for name, c := range map[string]struct {
		code    int
		details string
		blocked bool
		is      error
	}{
		"it is requested":       {code: 201},
		"a budget forbids it":   {code: 429, details: `{"causes":[{"reason":"DisruptionBudget","message":"` + because + `"}]}`, blocked: true},
		"the server is busy":    {code: 429, details: `{"retryAfterSeconds":1}`, is: controlplane.ErrUnavailable},
		"the pod is gone":       {code: 404, details: `{}`, is: controlplane.ErrNotFound},
		"it is another pod":     {code: 409, details: `{}`, is: controlplane.ErrConflict},
		"the right is missing":  {code: 403, details: `{}`, is: controlplane.ErrForbidden},
		"there are two budgets": {code: 500, details: `{}`, is: controlplane.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			var body map[string]any
			fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces/ns/pods/web-0/eviction" {
					t.Errorf("%s %s, want a POST of the eviction", r.Method, r.URL.Path)
				}
				text, err := io.ReadAll(r.Body)
				if err == nil {
					err = json.Unmarshal(text, &body)
				}
				if err != nil {
					t.Errorf("body %s: %v", text, err)
				}
				answer := map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Success"}
				if c.code != 201 {
					answer = map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "code": c.code, "details": json.RawMessage(c.details)}
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(c.code)
				_ = json.NewEncoder(w).Encode(answer)
			}))
			err := fleet.Evict(t.Context(), "ns/web-0", "uid-1", store.Term{})
			blocked, is := errors.AsType[*store.BlockedError](err)
			if is != c.blocked || is && blocked.Message != because || !is && !errors.Is(err, c.is) {
				t.Errorf("Evict() = %v, want blocked %t, or %v", err, c.blocked, c.is)
			}
			options, _ := body["deleteOptions"].(map[string]any)
			if pre, _ := options["preconditions"].(map[string]any); body["kind"] != "Eviction" || body["apiVersion"] != "policy/v1" || pre["uid"] != "uid-1" {
				t.Errorf("body = %v, want an Eviction of that UID", body)
			}
		})
	}
}

// TestPodsOfANodeAreReadInPages has two pages of metadata.
func TestPodsOfANodeAreReadInPages(t *testing.T) {
	fleet := dialFleet(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if got := query.Get("fieldSelector"); got != "spec.nodeName=n1,status.phase!=Succeeded,status.phase!=Failed" || !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList") {
			t.Errorf("selector %s, Accept %s, want the metadata of pods that run", got, r.Header.Get("Accept"))
		}
		name, more := "a", "next"
		if query.Get("continue") == "next" {
			name, more = "b", ""
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{"resourceVersion": "7", "continue": more},
			"items": []any{map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": map[string]any{"namespace": "ns", "name": name, "annotations": map[string]any{"x": "y"}}}},
		})
	}))
	pods, err := fleet.PodsOn(t.Context(), "n1")
	if err != nil || len(pods) != 2 || pods[0].GetName() != "a" || pods[1].GetName() != "b" || pods[1].GetAnnotations()["x"] != "y" {
		t.Errorf("PodsOn() = %v, %v, want both", pods, err)
	}
}
