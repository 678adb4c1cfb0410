package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"hostler.io/hostler/agent/api"
	"hostler.io/hostler/shutdown/journal"
)

var update = flag.Bool("update", false, "write the table of routes in docs/reference/api.md")

// document is the parsed description.
type document struct {
	OpenAPI string
	Paths   map[string]map[string]struct {
		OperationID string `json:"operationId"`
		Access      string `json:"x-hostler-access"`
		RequestBody *struct{ Required bool }
		Responses   map[string]struct{ Content map[string]json.RawMessage }
	}
}

func description(t testing.TB) ([]byte, document) {
	t.Helper()
	text, err := api.OpenAPI("1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return text, d
}

// closed forbids additional properties in every struct of the description. So the test finds fields
// of an answer that are not described.
func closed(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, is := v["properties"]; is && v["additionalProperties"] == nil {
			v["additionalProperties"] = false
		}
		for _, below := range v {
			closed(below)
		}
	case []any:
		for _, below := range v {
			closed(below)
		}
	}
}

// path returns a path for a route's pattern.
func path(pattern string) string {
	return strings.ReplaceAll(strings.ReplaceAll(pattern, "pprof/{name}", "pprof/goroutine"), "{name}", "web-1")
}

// names matches the parameters of a path.
var names = regexp.MustCompile(`\{[a-z]+\}`)

// pointer escapes a name for a JSON pointer.
func pointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name)
}

// Generated clients rely on the description of every route.
func TestAnswersAreAsDescribed(t *testing.T) {
	text, d := description(t)
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	closed(doc)
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("openapi.json", doc); err != nil {
		t.Fatal(err)
	}
	judge := func(pattern, method, code, format string, body []byte) {
		t.Helper()
		where := fmt.Sprintf("openapi.json#/paths/%s/%s/responses/%s/content/%s/schema", pointer(pattern), method, code, pointer(format))
		schema, err := compiler.Compile(where)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			return
		}
		values := json.NewDecoder(bytes.NewReader(body))
		values.UseNumber()
		for n := 0; values.More() || n == 0; n++ {
			var v any
			if err := values.Decode(&v); err != nil {
				t.Errorf("%s %s = %s, %v", method, pattern, body, err)
				return
			}
			if err := schema.Validate(v); err != nil {
				t.Errorf("%s %s = %s, which is not as described: %v", method, pattern, body, err)
			}
		}
	}
	for pattern, operations := range d.Paths {
		for method, o := range operations {
			for format := range o.Responses["200"].Content {
				if strings.HasPrefix(pattern, "/debug/pprof/profile") || strings.HasPrefix(pattern, "/debug/pprof/trace") {
					continue // these take a long time
				}
				w := ask(routes(&backend{pods: []journal.PodRecord{{Name: "web"}}}), 0, strings.ToUpper(method), path(pattern), "{}")
				if w.Code != http.StatusOK {
					t.Errorf("%s %s = %d %s, want 200", method, pattern, w.Code, w.Body)
				}
				if !strings.HasSuffix(format, "json") {
					continue
				}
				judge(pattern, method, "200", format, w.Body.Bytes())
			}
			if content := o.Responses["500"].Content; content != nil {
				w := ask(routes(&backend{err: &api.Error{Message: "a", Hint: "b"}}), 0, strings.ToUpper(method), path(pattern), "{}")
				if w.Code == http.StatusInternalServerError {
					judge(pattern, method, "500", "application/json", w.Body.Bytes())
				}
			}
			if o.RequestBody != nil {
				w := ask(routes(&backend{}), 0, strings.ToUpper(method), path(pattern), `{"no such field": 1}`)
				if w.Code != http.StatusBadRequest {
					t.Errorf("%s %s with a field that there is none of = %d, want 400", method, pattern, w.Code)
				}
				judge(pattern, method, "400", "application/json", w.Body.Bytes())
			}
		}
	}
}

// Everyone who can open the socket may read. Only root may use routes that change the host or that
// show the agent's memory. The description has the access of each route.
func TestAccessIsAsDescribed(t *testing.T) {
	_, d := description(t)
	acting := 0
	for pattern, operations := range d.Paths {
		for method, o := range operations {
			b := &backend{}
			if strings.HasPrefix(pattern, "/debug/pprof/profile") || strings.HasPrefix(pattern, "/debug/pprof/trace") {
				if o.Access != "root" {
					t.Errorf("%s may be taken by %s, want root alone", pattern, o.Access)
				}
			}
			if o.Access == "read" {
				if w := ask(routes(b), uint32(os.Geteuid()+4711), strings.ToUpper(method), path(pattern), "{}"); w.Code != http.StatusOK {
					t.Errorf("%s %s by a reader = %d %s, want 200", method, pattern, w.Code, w.Body)
				}
				continue
			}
			acting++
			w := ask(routes(b), uint32(os.Geteuid()+4711), strings.ToUpper(method), path(pattern), "{}")
			if w.Code != http.StatusForbidden || o.Access != "root" || o.Responses["403"].Content == nil {
				t.Errorf("%s %s of %s by a reader = %d %s, want 403", method, pattern, o.Access, w.Code, w.Body)
			}
			if len(b.requests())+len(b.drains)+len(b.cordons) > 0 {
				t.Errorf("%s %s by a reader reached the agent", method, pattern)
			}
		}
	}
	if acting < 10 {
		t.Errorf("%d routes are root's, want those that act and the profiles", acting)
	}
}

// docs/reference/api.md lists the same routes.
func TestThePageOfTheAPIListsItsRoutes(t *testing.T) {
	const page, begin, end = "../../docs/reference/api.md", "route | on the socket | over the network | meaning\n---|---|---|---\n", "\n\n## "
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		t.Fatalf("%s has no table of routes", page)
	}
	var rows strings.Builder
	for _, r := range api.Describe() {
		who := map[bool]string{true: "root", false: "readers"}[r.Acts]
		far := "–"
		if r.Network {
			far = map[bool]string{true: "actors", false: "readers"}[r.Acts]
		}
		fmt.Fprintf(&rows, "`%s %s` | %s | %s | %s\n", r.Method, r.Path, who, far, r.Summary)
	}
	want := before + begin + strings.TrimSuffix(rows.String(), "\n") + end + after
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want != string(text) {
		t.Errorf("%s does not list the routes as they are; write it with go test ./agent/api -update", page)
	}
}

// For any request to any route, the answer matches the description, and nothing panics. Only valid
// requests reach the agent, and only root's may change anything.
func FuzzRoutes(f *testing.F) {
	all := api.Describe()
	for i := range all {
		f.Add(uint(i), uint32(0), "web-1", "", []byte("{}"))
		f.Add(uint(i), uint32(4711), "/..%2f", "debug=9&x=%zz", []byte(`{"all":1,"images":true}{}`))
	}
	_, d := description(f)
	f.Fuzz(func(t *testing.T, which uint, uid uint32, name, query string, body []byte) {
		r, may := all[which%uint(len(all))], uid == 0 || int(uid) == os.Geteuid()
		if may && (strings.HasSuffix(r.Path, "/profile") || strings.HasSuffix(r.Path, "/trace")) {
			return // these take a long time
		}
		request, err := http.NewRequestWithContext(api.WithUID(t.Context(), uid), r.Method, "http://hostler", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.URL.Path, request.URL.RawQuery = names.ReplaceAllLiteralString(r.Path, name), query
		if may && (name == "profile" || name == "trace" || request.URL.Query().Has("seconds")) {
			return
		}
		b, w := &backend{}, httptest.NewRecorder()
		routes(b).ServeHTTP(w, request)
		_, described := d.Paths[r.Path][strings.ToLower(r.Method)].Responses[fmt.Sprint(w.Code)]
		elsewhere := names.MatchString(r.Path) && w.Code < http.StatusInternalServerError // another route, or none
		acted := len(b.requests())+len(b.drains)+len(b.cordons)+len(b.logs) > 0
		if plans := strings.HasSuffix(r.Path, "/plan"); !may && (acted && !plans || r.Acts && !elsewhere && w.Code != http.StatusForbidden) {
			t.Errorf("%s %s by uid %d = %d %s, want it refused", r.Method, request.URL.Path, uid, w.Code, w.Body)
		}
		if !described && !elsewhere {
			t.Errorf("%s %s?%s with %q = %d %s, which is not described", r.Method, request.URL.Path, query, body, w.Code, w.Body)
		}
		if strings.HasSuffix(r.Format, "json") && described {
			for values := json.NewDecoder(w.Body); values.More(); {
				var v any
				if err := values.Decode(&v); err != nil {
					t.Errorf("%s %s with %q = %v, want JSON", r.Method, request.URL.Path, body, err)
					break
				}
			}
		}
	})
}
