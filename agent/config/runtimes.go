package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/internal/configfile"
)

// Runtimes is either auto or a list.
type Runtimes struct {
	Auto bool
	List []Runtime
}

// MarshalYAML writes auto or the list.
func (r Runtimes) MarshalYAML() (any, error) {
	if r.Auto {
		return "auto", nil
	}
	return r.List, nil
}

// Decode implements configfile.Custom.
func (r *Runtimes) Decode(d configfile.Decoding, n *yaml.Node) {
	endpoint := func(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "/") }
	switch {
	case endpoint(n):
		d.Fault(n, "", "must be auto or a list; write [{type: cri, endpoint: %q}]", n.Value)
	case n.Kind == yaml.SequenceNode && slices.ContainsFunc(n.Content, endpoint):
		for i, item := range n.Content {
			if endpoint(item) {
				d.Fault(item, fmt.Sprintf("[%d]", i), "must be a map of fields; write {type: cri, endpoint: %q}", item.Value)
			}
		}
	case n.Kind == yaml.ScalarNode && n.Value == "auto":
		*r = Runtimes{Auto: true}
	case n.Kind == yaml.SequenceNode:
		r.Auto = false
		d.Value(n, &r.List)
	default:
		d.Fault(n, "", "must be auto or a list of {type, endpoint}")
	}
}

// Schema implements configfile.Custom.
func (r *Runtimes) Schema(list func(reflect.Type) (map[string]any, error)) (map[string]any, error) {
	n, err := list(reflect.TypeFor[[]Runtime]())
	n["type"], n["pattern"] = []string{"string", "array", "null"}, "^auto$"
	return n, err
}
