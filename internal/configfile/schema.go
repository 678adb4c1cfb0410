package configfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/internal/trust"
)

// node is part of a JSON schema.
type node = map[string]any

// SchemaReload is the annotation that says whether a reload applies a key: "live", or "restart" if
// the agent must be restarted.
const SchemaReload = "x-hostler-reload"

// Schema returns a JSON schema (draft 2020-12) of the configuration, with which editors complete
// and check files. Like hostler.yaml(5), it is generated from the tags of Config.
//
// Load refuses every file that the schema refuses. Only Load checks rules that depend on other
// keys, other files or the host. A key without a value keeps the default, so every value may be
// null.
func (s Spec[T]) Schema() ([]byte, error) {
	var defaults yaml.Node
	if err := defaults.Encode(s.Default()); err != nil {
		return nil, fmt.Errorf("make schema: %w", err)
	}
	root, err := object(reflect.TypeFor[T](), &defaults, false)
	if err != nil {
		return nil, fmt.Errorf("make schema: %w", err)
	}
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = s.Title
	root["description"] = s.File + " and " + s.DropIns + "/*.yaml; see " + s.ManualPage + "."
	root["$defs"] = shapes()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("make schema: %w", err)
	}
	return b.Bytes(), nil
}

// digits matches a number without a sign, as in Kubernetes and Go.
const digits = `([0-9]+(\.[0-9]*)?|\.[0-9]+)`

// percent matches a percentage from 0% to 100%.
const percent = `\+?(0*100(\.0*)?|0*[0-9]{1,2}(\.[0-9]*)?|\.[0-9]+)%`

// scalars returns the JSON types that are valid for a text: a name of digits needs no quotes.
func scalars(more ...string) []string { return append(more, "string", "number", "boolean", "null") }

// shapes returns the schemas of notations, by the names used in types and tags.
func shapes() node {
	whole := `\+?` + digits + `([KMGTPE]i|[kMGTPE]|[eE][+-]?[0-9]+)?`
	amount := func(pattern, description string) node {
		return node{"type": []string{"string", "number", "null"}, "pattern": "^" + pattern + "$", "minimum": 0, "description": description}
	}
	return node{
		"text":          node{"type": scalars()},
		"path":          node{"type": []string{"string", "null"}, "pattern": "^/", "description": "An absolute path."},
		"optionalPath":  node{"type": []string{"string", "null"}, "pattern": "^(/|$)", "description": "An absolute path, or empty."},
		"service":       node{"type": []string{"string", "null"}, "pattern": trust.ServiceNamePattern, "description": "The name of a systemd service, such as k3s.service."},
		"member":        node{"type": []string{"string", "null"}, "pattern": "^https?://", "description": "The URL of a member, such as https://etcd-1.example:2379."},
		"switch":        node{"enum": []any{"auto", true, false, nil}, "description": "auto does it unless another agent on this host does."},
		"quantity":      amount(`(|\+?`+digits+`([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?)`, "An amount as Kubernetes writes it, such as 500m or 1Gi."),
		"wholeQuantity": amount(`(|`+whole+`)`, "An amount as Kubernetes writes it, such as 1Gi."),
		"threshold":     amount(`(`+whole+`|`+percent+`)`, "An amount as Kubernetes writes it, such as 100Mi, or a percentage, such as 10%."),
		"percentage":    node{"type": []string{"string", "null"}, "pattern": "^(" + percent + ")?$", "description": "A percentage, such as 20%."},
		// A bare number has no unit, unless it is 0.
		"duration": node{
			"type": []string{"string", "integer", "null"}, "minimum": 0, "maximum": 0, "description": "A length of time with its unit, such as 90s, 5m or 1h30m.",
			"pattern": `^\+?(0|(` + digits + `(ns|us|µs|μs|ms|s|m|h))+)$`,
		},
	}
}

// shapeOf returns the name of a field's notation, or "" if the field's kind determines it.
func shapeOf(t reflect.Type, tag reflect.StructTag) string {
	if shape := tag.Get("shape"); shape != "" {
		return shape
	}
	switch t {
	case reflect.TypeFor[Switch]():
		return "switch"
	case reflect.TypeFor[Duration]():
		return "duration"
	case reflect.TypeFor[Quantity]():
		return "quantity"
	case reflect.TypeFor[Threshold]():
		return "threshold"
	}
	if t.Kind() == reflect.String {
		return "text"
	}
	return ""
}

func reference(shape string) node { return node{"$ref": "#/$defs/" + shape} }

// object returns the schema of a struct. defaults has the values of its fields, or is nil.
func object(t reflect.Type, defaults *yaml.Node, live bool) (node, error) {
	properties := node{}
	var needed []string
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		p, err := property(f, valueOf(defaults, name), live || isLive(f))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		properties[name] = p
		if f.Tag.Get("needed") == "true" {
			needed = append(needed, name)
		}
	}
	n := node{"type": []string{"object", "null"}, "properties": properties, "additionalProperties": false}
	if len(needed) > 0 {
		n["required"] = needed
	}
	return n, nil
}

// property returns the schema of a field, with its default and the annotation SchemaReload.
func property(f reflect.StructField, value *yaml.Node, live bool) (node, error) {
	if f.Type.Kind() == reflect.Struct && !isCustom(f.Type) {
		n, err := object(f.Type, value, live)
		if err == nil {
			n["description"] = f.Tag.Get("doc")
		}
		return n, err
	}
	n, err := values(f)
	if err != nil {
		return nil, err
	}
	n["description"] = f.Tag.Get("doc")
	if value == nil { // a field of a list entry has no default
		return n, nil
	}
	var standard any
	if err := value.Decode(&standard); err != nil {
		return nil, err
	}
	n["default"] = standard
	n[SchemaReload] = map[bool]string{true: "live", false: "restart"}[live]
	n["description"] = f.Tag.Get("doc") + " " + Key{Live: live}.Reload()
	return n, nil
}

// values returns the schema of the value of a field that is not a section.
func values(f reflect.StructField) (node, error) {
	if words := f.Tag.Get("words"); words != "" {
		list := []any{nil}
		for word := range strings.SplitSeq(words, "|") {
			list = append(list, word)
		}
		return node{"enum": list}, nil
	}
	switch shape := shapeOf(f.Type, f.Tag); {
	case isCustom(f.Type):
		custom := reflect.New(f.Type).Interface().(Custom)
		return custom.Schema(func(t reflect.Type) (node, error) { return list(t, "") })
	case f.Type.Kind() == reflect.Slice:
		return list(f.Type, shape)
	case f.Type.Kind() == reflect.Map:
		return node{"type": []string{"object", "null"}, "additionalProperties": reference("text")}, nil
	case shape != "":
		return reference(shape), nil
	case f.Type.Kind() == reflect.Bool:
		return node{"type": []string{"boolean", "null"}}, nil
	}
	return number(f)
}

// list returns the schema of a list of values or of sections. A single text counts as a list of
// one.
func list(t reflect.Type, shape string) (node, error) {
	if t.Elem().Kind() == reflect.Struct {
		items, err := object(t.Elem(), nil, false)
		return node{"type": []string{"array", "null"}, "items": items}, err
	}
	if shape == "" {
		shape = "text"
	}
	n := node{"type": scalars("array"), "items": reference(shape)}
	if pattern, found := shapes()[shape].(node)["pattern"]; found {
		n["pattern"] = pattern
	}
	return n, nil
}

// number returns the schema of an integer or a number with a fraction.
func number(f reflect.StructField) (node, error) {
	n := node{"type": []string{"integer", "null"}}
	if f.Type.Kind() == reflect.Float64 {
		n["type"] = []string{"number", "null"}
	}
	if f.Type.Kind() == reflect.Int32 {
		n["minimum"], n["maximum"] = math.MinInt32, math.MaxInt32
	}
	for tag, key := range map[string]string{"least": "minimum", "most": "maximum"} {
		text, given := f.Tag.Lookup(tag)
		if !given {
			continue
		}
		bound, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("tag %s: %w", tag, err)
		}
		n[key] = bound
	}
	return n, nil
}

// valueOf returns the value of a key in a map, or nil.
func valueOf(n *yaml.Node, key string) *yaml.Node {
	for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}
