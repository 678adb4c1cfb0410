package config

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML writes the configuration as a file that Load reads back as the same.
func (c Config) YAML() ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(c); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return b.Bytes(), nil
}

// Documented writes the defaults with each key's meaning above it.
func Documented() ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(Default()); err != nil {
		return nil, fmt.Errorf("write defaults: %w", err)
	}
	comment(&root, reflect.TypeFor[Config](), true)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(&root); err != nil {
		return nil, fmt.Errorf("write defaults: %w", err)
	}
	return b.Bytes(), nil
}

// comment puts the doc tags of t's fields above their keys in n.
func comment(n *yaml.Node, t reflect.Type, top bool) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		for j := range t.NumField() {
			f := t.Field(j)
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != n.Content[i].Value {
				continue
			}
			if doc := f.Tag.Get("doc"); doc != "" {
				n.Content[i].HeadComment = doc
				if top && i > 0 {
					n.Content[i].HeadComment = "\n" + doc
				}
			}
			if f.Type.Kind() == reflect.Struct {
				comment(n.Content[i+1], f.Type, false)
			}
		}
	}
}
