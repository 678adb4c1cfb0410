package config_test

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"

	"hostler.io/hostler/agent/config"
	"hostler.io/hostler/test/page"
)

// schema returns the schema, compiled by an independent validator, which rejects an invalid schema.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text := must(config.Schema())
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("hostler.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("hostler.schema.json")
	if err != nil {
		t.Fatalf("compile the schema: %v", err)
	}
	return s
}

// validate checks a file against the schema, as an editor does.
func validate(s *jsonschema.Schema, text []byte) error {
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func TestTheSchemaTakesWhatTheConfigurationTakes(t *testing.T) {
	s := schema(t)
	inputs := map[string][]byte{
		"the documented defaults": must(config.Documented()),
		"the printed defaults":    must(config.Default().YAML()),
		"the package's file":      must(os.ReadFile("../../packaging/hostler.yaml")),
		"an empty file":           {},
		"sections without keys":   []byte("node:\nshutdown:\n  byPriority:\nimageGC: {keep: }\n"),
		"texts of digits":         []byte("node: {name: 5, labels: {a: 1, b: true, c: }}\nimageGC: {keep: nginx}\n"),
		"durations":               []byte("lease: {duration: 1m0s, renewInterval: .5s}\nimageGC: {minimumAge: 0, maximumAge: 1h2m3.5s}\nshutdown: {gracePeriod: +90s}\n"),
		"quantities":              []byte("node: {reserved: {cpu: 0.5, memory: 1.5Gi, pid: 1000, ephemeral-storage: 1e9}}\npressure: {memoryAvailable: 104857600, nodefsAvailable: 12.5%, imagefsAvailable: 100%}\n"),
		"runtimes":                []byte("runtimes: [{type: cri, endpoint: /run/x.sock}, {type: runc, endpoint: /run/runc}]\n"),
		"no runtime":              []byte("runtimes: []\n"),
		"switches":                []byte("imageGC: {enabled: true}\ncontainerGC: {enabled: false}\nlease: {enabled: auto}\n"),
		"contention":              []byte("pressure: {psi: {cpu: {kind: some, window: 5m, threshold: 20%}, io: {kind: ''}}}\n"),
		"the network":             []byte("api: {listen: '[::]:9755', tls: {certificate: /a, key: /b, clientCA: /c, allowedNames: {read: 'system:node:a', act: [ops, 'spiffe://example.org/ops']}}}\nmetrics: {listen: '192.0.2.7:9754'}\n"),
		"services first":          []byte("shutdown: {enabled: true, stopFirst: k3s.service, byPriority: [{priority: -5, gracePeriod: 0s}]}\n"),
	}
	examples := 0
	for _, path := range page.Files(t, "../..") {
		for _, e := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(must(os.ReadFile(path)), -1) {
			if _, err := config.Parse(path, e[1]); err == nil {
				inputs[path+": "+string(e[1])] = e[1]
				examples++
			}
		}
	}
	if examples < 8 {
		t.Errorf("docs have %d examples of a configuration, want those of shutdown, conditions, kubernetes and plugin at least", examples)
	}
	for name, text := range inputs {
		if _, err := config.Parse("f.yaml", text); err != nil {
			t.Errorf("%s: Parse() = %v, want it valid", name, err)
		}
		if err := validate(s, text); err != nil {
			t.Errorf("%s: the schema refuses it: %v", name, err)
		}
	}
}

// The schema rejects every file that hostler rejects because of its shape.
func TestTheSchemaRefusesWhatHasTheWrongShape(t *testing.T) {
	s := schema(t)
	for name, c := range faultsOfShape() {
		if validate(s, []byte(c.in)) == nil {
			t.Errorf("%s: the schema takes %q", name, c.in)
		}
	}
	for name, c := range faultsOfMeaning() {
		if err := validate(s, []byte(c.in)); err != nil {
			t.Errorf("%s: the schema also reports the fault, which belongs to faultsOfShape: %v", name, err)
		}
	}
}

// property is the schema of a key.
type property struct {
	Enum             []any
	Minimum, Maximum *int
	Default          any
	Reload           string `json:"x-hostler-reload"`
	Description      string
	Properties       map[string]property
}

// walk calls f for each key of the schema.
func walk(p property, path string, f func(path string, p property)) {
	for name, below := range p.Properties {
		f(strings.TrimPrefix(path+"."+name, "."), below)
		walk(below, strings.TrimPrefix(path+"."+name, "."), f)
	}
}

func properties(t *testing.T) property {
	t.Helper()
	var root property
	if err := json.Unmarshal(must(config.Schema()), &root); err != nil {
		t.Fatal(err)
	}
	return root
}

// at returns a document with one value at a key.
func at(path string, value any) []byte {
	v := value
	parts := strings.Split(path, ".")
	for _, name := range slices.Backward(parts) {
		v = map[string]any{name: v}
	}
	return must(yaml.Marshal(v))
}

// The schema and the configuration have the same words and bounds: each is accepted, and the values
// next to them are rejected.
func TestTheSchemasWordsAndBoundsAreThoseOfTheConfiguration(t *testing.T) {
	refusal := func(path string, value any) string {
		_, err := config.Parse("f.yaml", at(path, value))
		for line := range strings.Lines(errText(err)) {
			if strings.Contains(line, " "+path+": ") && !strings.Contains(line, "needs to know") && !strings.Contains(line, "has no meaning") &&
				!strings.Contains(line, "waits for ever") && !strings.Contains(line, "is not below") && !strings.Contains(line, "is not above image") {
				return line
			}
		}
		return ""
	}
	seen := 0
	walk(properties(t), "", func(path string, p property) {
		for _, word := range p.Enum {
			if fault := refusal(path, word); fault != "" {
				t.Errorf("the schema takes %s: %v, Parse() = %s", path, word, fault)
			}
		}
		if p.Enum != nil && refusal(path, "other") == "" {
			t.Errorf("the schema takes only %v as %s, Parse() anything", p.Enum, path)
		}
		for bound, beyond := range map[*int]int{p.Minimum: -1, p.Maximum: +1} {
			if bound == nil {
				continue
			}
			seen++
			if fault := refusal(path, *bound); fault != "" {
				t.Errorf("the schema takes %s: %d, Parse() = %s", path, *bound, fault)
			}
			if refusal(path, *bound+beyond) == "" {
				t.Errorf("the schema refuses %s: %d, Parse() does not", path, *bound+beyond)
			}
		}
	})
	if seen < 12 {
		t.Errorf("the schema has %d bounds, want those of pods, images, percentages and containers", seen)
	}
}

// Every key has documentation for editors, and says what the agent does when it changes.
func TestTheSchemaReportsEachKey(t *testing.T) {
	keys, err := config.Keys()
	if err != nil {
		t.Fatal(err)
	}
	reported := map[string]property{}
	walk(properties(t), "", func(path string, p property) { reported[path] = p })
	if len(reported) != len(keys) {
		t.Errorf("the schema has %d keys, want %d", len(reported), len(keys))
	}
	for _, k := range keys {
		want := map[bool]string{true: "live", false: "restart"}[k.Live]
		got := reported[k.Path]
		if k.Default == "" {
			continue // a section
		}
		if got.Reload != want || config.Live(k.Path) != k.Live || !strings.HasPrefix(got.Description, k.Doc) {
			t.Errorf("the schema says of %s: %+v, want its meaning and %s", k.Path, got, want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
