package configfile

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// YAML encodes a configuration. Load reads the same values from the result.
func YAML(config any) ([]byte, error) { return write(config) }

func write(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return b.Bytes(), nil
}

// Documented returns the default configuration with each key's documentation above it.
func (s Spec[T]) Documented() ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(s.Default()); err != nil {
		return nil, fmt.Errorf("write defaults: %w", err)
	}
	comment(&root, reflect.TypeFor[T](), true)
	return write(&root)
}

// comment adds the doc tags of the fields of t as comments above their keys in n.
func comment(n *yaml.Node, t reflect.Type, top bool) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		f, found := fieldOf(t, n.Content[i].Value)
		if !found {
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

// fieldOf returns the field of t for a key.
func fieldOf(t reflect.Type, key string) (f reflect.StructField, found bool) {
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name == key {
			return f, true
		}
	}
	return f, false
}

// Key documents one key of the configuration.
type Key struct {
	Path    string // such as imageGC.interval
	Default string // as YAML on one line; empty for a section
	Doc     string
	Live    bool // a reload applies it and, for a section, everything inside it
}

// Reload returns a sentence that says whether a reload applies the key.
func (k Key) Reload() string {
	if k.Live {
		return "A reload takes a change up."
	}
	return "A change takes a restart."
}

// Keys lists all keys in the order of Documented; a section comes before its keys.
func (s Spec[T]) Keys() ([]Key, error) {
	var root yaml.Node
	if err := root.Encode(s.Default()); err != nil {
		return nil, fmt.Errorf("list configuration keys: %w", err)
	}
	return keys("", &root, reflect.TypeFor[T](), false)
}

// keys lists the keys below a path; n is a value of type t.
func keys(path string, n *yaml.Node, t reflect.Type, live bool) ([]Key, error) {
	var all []Key
	for i := 0; i+1 < len(n.Content); i += 2 {
		f, found := fieldOf(t, n.Content[i].Value)
		if !found {
			continue
		}
		key := Key{Path: path + n.Content[i].Value, Doc: f.Tag.Get("doc"), Live: live || isLive(f)}
		value := n.Content[i+1]
		var held []Key
		if f.Type.Kind() == reflect.Struct && value.Kind == yaml.MappingNode {
			var err error
			if held, err = keys(key.Path+".", value, f.Type, key.Live); err != nil {
				return nil, err
			}
		} else {
			value.Style |= yaml.FlowStyle
			text, err := yaml.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("list configuration key %s: %w", key.Path, err)
			}
			key.Default = strings.TrimSpace(string(text))
		}
		all = append(append(all, key), held...)
	}
	return all, nil
}
