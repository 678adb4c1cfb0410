//go:build integration

package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown"
)

// A client that was generated from the description reads from a real agent.
func TestAnAgentAnswersAsItsAPIIsDescribed(t *testing.T) {
	t.Parallel()
	text, err := api.OpenAPI(version)
	check(t, err)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	check(t, err)
	compiler := jsonschema.NewCompiler()
	check(t, compiler.AddResource("openapi.json", doc))

	a := startAgent(t, quick+"reboot: {enabled: true, sentinels: [], command: \"true\"}\n")
	a.await("the loops have done a round", func(s api.Status) bool {
		return s.Lease != nil && s.ImageGC.LastRun != nil && s.ContainerGC.LastRun != nil && s.Shutdown.State != shutdown.Draining
	})
	node := a.awaitNode().Node.Name
	asked := 0
	for _, r := range api.Describe() {
		if r.Answer == nil || r.Acts && r.Path != "/v1/gc/run" {
			continue
		}
		request, err := http.NewRequestWithContext(t.Context(), r.Method, "http://hostler"+strings.ReplaceAll(r.Path, "{name}", node), strings.NewReader("{}"))
		check(t, err)
		resp, err := a.onSocket().Do(request)
		check(t, err)
		body, err := io.ReadAll(resp.Body)
		check(t, err)
		check(t, resp.Body.Close())
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != r.Format {
			t.Errorf("%s %s = %s of %s, %s, want 200 of %s", r.Method, r.Path, resp.Status, resp.Header.Get("Content-Type"), body, r.Format)
			continue
		}
		escaped := strings.NewReplacer("/", "~1", "{", "%7B", "}", "%7D")
		schema, err := compiler.Compile("openapi.json#/paths/" + escaped.Replace(r.Path) + "/" + strings.ToLower(r.Method) + "/responses/200/content/" + escaped.Replace(r.Format) + "/schema")
		check(t, err)
		asked++
		values := json.NewDecoder(bytes.NewReader(body))
		values.UseNumber()
		for values.More() {
			var v any
			check(t, values.Decode(&v))
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s %s = %.2000s, which is not as described: %v", r.Method, r.Path, body, err)
			}
		}
	}
	if asked < 12 {
		t.Errorf("%d routes were asked, want all that read", asked)
	}
	a.stop()
}

// The profiles are Go's own, and only root may read them.
func TestProfilesAreThere(t *testing.T) {
	t.Parallel()
	a := startAgent(t, quick)
	a.awaitNode()
	for _, name := range []string{"heap", "goroutine", "profile?seconds=1"} {
		resp, err := a.onSocket().Get("http://hostler/debug/pprof/" + name)
		check(t, err)
		body, err := io.ReadAll(resp.Body)
		check(t, err)
		check(t, resp.Body.Close())
		if resp.StatusCode != http.StatusOK || !bytes.HasPrefix(body, []byte{0x1f, 0x8b}) {
			t.Errorf("GET /debug/pprof/%s = %s, %.200q, want a profile", name, resp.Status, body)
		}
		if name != "heap" {
			continue
		}
		// As in docs/howto/metrics.md.
		file := filepath.Join(a.folder, "heap.pb.gz")
		check(t, os.WriteFile(file, body, 0o600))
		out, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-top", file).CombinedOutput()
		if err != nil || !bytes.Contains(out, []byte("inuse_space")) {
			t.Errorf("go tool pprof -top of %s = %v, want what uses memory:\n%s", name, err, out)
		}
	}
	a.stop()
}
