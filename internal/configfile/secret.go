package configfile

import (
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/internal/sanitize"
)

// Shown returns the YAML for callers who may not read the files, such as group hostler and network
// clients. A configuration has no secrets except passwords in URLs: keys name files instead.
func Shown(config any) ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(config); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	concealValues(&root)
	return write(&root)
}

// concealValues removes users and passwords from URLs in the values of n.
func concealValues(n *yaml.Node) {
	for _, held := range n.Content {
		concealValues(held)
	}
	if strings.Contains(n.Value, "@") {
		// A URL in quotes may contain blanks.
		n.Value, _ = strconv.Unquote(sanitize.Userinfo(strconv.Quote(n.Value))) // cannot fail: the input is quoted
	}
}

// repeated matches a value that a fault quotes.
var repeated = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// conceal returns the problem of a field for callers who may not read the files. A value may be a
// secret that belongs in a file, so conceal keeps the value only if it is a path.
func conceal(t reflect.Type, field, problem string) string {
	problem = sanitize.Userinfo(problem)
	if f, found := lookUp(t, field); !found || f.Tag.Get("secret") != "file" {
		return problem
	}
	return repeated.ReplaceAllStringFunc(problem, func(value string) string {
		if strings.HasPrefix(value, `"/`) {
			return value
		}
		return "the value"
	})
}

// lookUp returns the field at a path such as runtimes[0].type.
func lookUp(t reflect.Type, path string) (f reflect.StructField, found bool) {
	for name := range strings.SplitSeq(path, ".") {
		name, _, _ = strings.Cut(name, "[")
		if t.Kind() != reflect.Struct {
			return f, false
		}
		if f, found = fieldOf(t, name); !found {
			return f, false
		}
		if t = f.Type; t.Kind() == reflect.Slice {
			t = t.Elem()
		}
	}
	return f, found
}
