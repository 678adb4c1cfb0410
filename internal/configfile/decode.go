package configfile

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// position is the file and line that last set a value.
type position struct {
	file string
	line int
}

func (p position) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// origins are the positions of fields. The last file that sets a field wins.
type origins map[string]position

// of returns the position of a field, or else of its section.
func (o origins) of(field string) position {
	for ; field != ""; field = parent(field) {
		if p, known := o[field]; known {
			return p
		}
	}
	return o[""]
}

// Custom is a value with its own notation. It counts as one key.
type Custom interface {
	// Decode reads the value from a YAML node.
	Decode(d Decoding, n *yaml.Node)
	// Schema returns the JSON schema of the value. list returns the schema of a list of a type.
	Schema(list func(reflect.Type) (map[string]any, error)) (map[string]any, error)
}

// Decoding lets a Custom value read its parts and report faults.
type Decoding interface {
	// Fault records a problem of the value at a node. A suffix such as "[1]" names the part that
	// has the problem.
	Fault(n *yaml.Node, suffix, format string, args ...any)
	// Value reads a part of the value into a pointer.
	Value(n *yaml.Node, into any)
	// Pairs calls each for every entry of a map, with the Decoding of its value.
	Pairs(n *yaml.Node, each func(key string, d Decoding, value *yaml.Node))
}

// decoding implements Decoding for one path.
type decoding struct {
	*decoder
	path string
}

// Fault implements Decoding.
func (d decoding) Fault(n *yaml.Node, suffix, format string, args ...any) {
	d.fault(n, d.path+suffix, format, args...)
}

// Value implements Decoding.
func (d decoding) Value(n *yaml.Node, into any) { d.value(n, reflect.ValueOf(into).Elem(), d.path) }

// Pairs implements Decoding.
func (d decoding) Pairs(n *yaml.Node, each func(key string, d Decoding, value *yaml.Node)) {
	if d.kind(n, yaml.MappingNode, d.path, "a map of names to values") {
		d.pairs(n, d.path, func(key, value *yaml.Node) { each(key.Value, decoding{d.decoder, join(d.path, key.Value)}, value) })
	}
}

// isCustom reports whether a type implements Custom.
func isCustom(t reflect.Type) bool { return reflect.PointerTo(t).Implements(reflect.TypeFor[Custom]()) }

// decoder applies files to a configuration, one after the other, and collects faults. It walks the
// YAML tree parallel to the struct, because errors of the yaml package do not name the field.
type decoder struct {
	config reflect.Value
	origin origins
	faults Faults
	name   string   // the file being read
	broken bool     // a file is not YAML, so its values are unknown
	unread []string // fields whose values are unknown
}

func (d *decoder) file(name string, data []byte) {
	d.name = name
	root, err := documents(data)
	if err != nil {
		d.faults, d.broken = append(d.faults, syntaxFault(name, data, err)), true
		return
	}
	if root == nil || root.Tag == "!!null" {
		return
	}
	d.origin[""] = position{name, root.Line}
	d.value(root, d.config, "")
}

// finish runs check on the values that could be read. It is called after the last file.
func (d *decoder) finish(check func(*Checker)) {
	if !d.broken {
		k := &Checker{origin: d.origin, unread: d.unread}
		check(k)
		d.faults = append(d.faults, k.faults...)
	}
	for i, f := range d.faults {
		d.faults[i].Problem = conceal(d.config.Type(), f.Field, f.Problem)
	}
}

// fault records that a value cannot be read.
func (d *decoder) fault(n *yaml.Node, path, format string, args ...any) {
	d.unread = append(d.unread, path)
	d.faults = append(d.faults, Fault{File: d.name, Line: n.Line, Field: path, Problem: fmt.Sprintf(format, args...)})
}

// value decodes n into v: first types with their own notation, then structs, maps and lists.
func (d *decoder) value(n *yaml.Node, v reflect.Value, path string) {
	if n.Kind == yaml.AliasNode { // an alias could refer to itself, and has no position of its own
		d.fault(n, path, "YAML aliases are not supported; write the value out")
		return
	}
	if n.Tag == "!!null" {
		return // a key without a value keeps the default
	}
	switch target := v.Addr().Interface().(type) {
	case Custom:
		target.Decode(decoding{d, path}, n)
		return
	case yaml.Unmarshaler:
		if err := target.UnmarshalYAML(n); err != nil {
			d.fault(n, path, "%v", err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.structure(n, v, path)
	case reflect.Map:
		if !d.kind(n, yaml.MappingNode, path, "a map of names to values") {
			return
		}
		merged := reflect.MakeMap(v.Type())
		for _, k := range v.MapKeys() {
			merged.SetMapIndex(k, v.MapIndex(k))
		}
		d.pairs(n, path, func(key, val *yaml.Node) {
			elem := reflect.New(v.Type().Elem()).Elem()
			d.value(val, elem, path+"."+key.Value)
			merged.SetMapIndex(reflect.ValueOf(key.Value), elem)
		})
		v.Set(merged)
	case reflect.Slice:
		if n.Kind == yaml.ScalarNode && v.Type().Elem().Kind() == reflect.String {
			n = &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line, Content: []*yaml.Node{n}} // a single value is a list of one
		}
		if !d.kind(n, yaml.SequenceNode, path, "a list") {
			return
		}
		list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			field := fmt.Sprintf("%s[%d]", path, i)
			d.origin[field] = position{d.name, item.Line}
			d.value(item, list.Index(i), field)
		}
		v.Set(list)
	default:
		d.scalar(n, v, path)
	}
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string) {
	if !d.kind(n, yaml.MappingNode, path, "a map of fields") {
		return
	}
	d.pairs(n, path, func(key, val *yaml.Node) {
		names := fieldNames(v.Type())
		i := slices.Index(names, key.Value)
		if i >= 0 {
			d.value(val, v.Field(i), join(path, key.Value))
			return
		}
		meant := suggest(key.Value, names)
		if meant == "" {
			d.fault(key, join(path, key.Value), "unknown field; known here: %s", strings.Join(names, ", "))
			return
		}
		d.fault(key, join(path, key.Value), "unknown field; did you mean %s?", meant)
	})
}

// pairs calls f for each key of a mapping, and refuses a key that is set twice. A field has the
// position of its key, because the value may begin on the next line.
func (d *decoder) pairs(n *yaml.Node, path string, f func(key, val *yaml.Node)) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		field := join(path, key.Value)
		if seen[key.Value] {
			d.fault(key, field, "set twice in this file")
			continue
		}
		seen[key.Value] = true
		d.origin[field] = position{d.name, key.Line}
		f(key, n.Content[i+1])
	}
}

func (d *decoder) kind(n *yaml.Node, want yaml.Kind, path, what string) bool {
	if n.Kind != want {
		hint := ""
		// The message omits the value: it may be the password of a key that is unknown here.
		if key, _, found := strings.Cut(n.Value, ":"); found && want == yaml.MappingNode && n.Kind == yaml.ScalarNode {
			hint = fmt.Sprintf("; write a blank behind the colon of %q", key+":")
		}
		d.fault(n, path, "must be %s%s", what, hint)
		return false
	}
	return true
}

func (d *decoder) scalar(n *yaml.Node, v reflect.Value, path string) {
	if !d.kind(n, yaml.ScalarNode, path, "a single value") {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(n.Value)
	case reflect.Bool:
		b, err := strconv.ParseBool(n.Value)
		if err != nil || n.Tag != "!!bool" {
			d.fault(n, path, "%s", noBool(n))
			return
		}
		v.SetBool(b)
	case reflect.Int, reflect.Int32:
		i, err := strconv.ParseInt(n.Value, 10, v.Type().Bits())
		if err != nil || n.Tag != "!!int" {
			d.fault(n, path, "%s", noInteger(n, v.Type().Bits()))
			return
		}
		v.SetInt(i)
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) || n.Tag != "!!float" && n.Tag != "!!int" {
			d.fault(n, path, "%q is not a number such as 0.1", n.Value)
			return
		}
		v.SetFloat(f)
	}
}

// fieldNames returns the keys of a struct in the order of its fields.
func fieldNames(t reflect.Type) []string {
	names := make([]string, t.NumField())
	for i := range names {
		names[i], _, _ = strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
	}
	return names
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// suggest returns the known field that the user most likely meant, or "" if none is similar.
func suggest(key string, known []string) string {
	for _, k := range known {
		if strings.EqualFold(strings.ReplaceAll(key, "_", ""), k) || levenshtein.ComputeDistance(strings.ToLower(key), strings.ToLower(k)) <= 2 {
			return k
		}
	}
	return ""
}
