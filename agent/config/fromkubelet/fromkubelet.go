// Package fromkubelet says a kubelet's configuration in hostler's words: what a
// KubeletConfiguration and the kubelet's flags set, under the keys that mean the same
// here, each with a comment that says where it came from, and at the end what hostler
// has no counterpart for. It owns the tables of which is which. It reads and writes no
// files, and does not ask what runs on this host.
package fromkubelet

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"hostler.io/hostler/agent/config"
)

// Convert turns a KubeletConfiguration, whose name stands in faults, and the flags of the
// same kubelet, which count more than the file where both say something, into a file for
// hostler. What the kubelet would take a default for, hostler takes its own, but for the
// shutdown: that of a kubelet is off unless somebody sets it, and stays off.
//
// The error is of type config.Faults where the kubelet's settings are at fault, or where
// hostler refuses what they come to; in the latter case the text is returned as well.
func Convert(name string, data []byte, flags []string) ([]byte, error) {
	k, err := read(name, data)
	if err != nil {
		return nil, err
	}
	if err := k.flags(flags); err != nil {
		return nil, err
	}
	o := output{settings: map[string]setting{}}
	for _, key := range k.keys {
		g := k.given[key]
		if err := o.say(g); err != nil {
			k.faults = append(k.faults, g.fault(err.Error()))
		}
	}
	if len(k.faults) > 0 {
		return nil, k.faults
	}
	if err := o.whole(k); err != nil {
		return nil, err
	}
	text, err := o.text(name)
	if err != nil {
		return nil, err
	}
	if _, err := config.Parse("", text); err != nil {
		return text, refused(err)
	}
	return text, nil
}

// refused is what hostler does not take of what came out, without places in a file that
// is not written yet.
func refused(err error) error {
	var faults config.Faults
	if !errors.As(err, &faults) {
		return err
	}
	for i := range faults {
		faults[i].File, faults[i].Problem = "", faults[i].Problem+" (hostler refuses what the kubelet has; change it in the output)"
	}
	return faults
}

// kubelet is what one was told.
type kubelet struct {
	given  map[string]given // by key
	keys   []string         // in the order in which they were told
	faults config.Faults
}

// given is one thing that a kubelet was told.
type given struct {
	key   string // as a KubeletConfiguration has it, or --flag where it has none
	from  string // the key or the flag by which it was told
	file  string // empty for a flag
	value *yaml.Node
}

// fault says what is wrong with it.
func (g given) fault(problem string) config.Fault {
	return config.Fault{File: g.file, Line: g.value.Line, Field: g.from, Problem: problem}
}

// duration is it as one.
func (g given) duration() (time.Duration, error) {
	d, err := durationOf(g.value)
	if err != nil {
		return 0, config.Faults{g.fault(err.Error())}
	}
	return d, nil
}

func (k *kubelet) tell(g given) {
	if _, told := k.given[g.key]; !told {
		k.keys = append(k.keys, g.key)
	}
	k.given[g.key] = g
}

// told tells whether the kubelet was told something else for a key than to take its
// default, and decodes it.
func (k *kubelet) told(key string, into any) (bool, error) {
	g, ok := k.given[key]
	if !ok || isNull(g.value) {
		return false, nil
	}
	if err := g.value.Decode(into); err != nil {
		return false, config.Faults{g.fault(plain(err))}
	}
	return true, nil
}

func isNull(n *yaml.Node) bool { return n.Tag == "!!null" }

// plain is an error of the YAML library without its name and its own line.
func plain(err error) string {
	var typed *yaml.TypeError
	if errors.As(err, &typed) && len(typed.Errors) > 0 {
		_, text, found := strings.Cut(typed.Errors[0], ": ")
		if found {
			return text
		}
	}
	return err.Error()
}

// The documents that a kubelet reads.
const (
	kind    = "KubeletConfiguration"
	group   = "kubelet.config.k8s.io/"
	example = "apiVersion: kubelet.config.k8s.io/v1beta1"
)

func read(name string, data []byte) (*kubelet, error) {
	k := &kubelet{given: map[string]given{}}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	if err := dec.Decode(&doc); err != nil || doc.Content[0].Kind != yaml.MappingNode {
		if err == nil {
			err = errors.New("it is no map of keys to values")
		}
		return nil, fmt.Errorf("read %s as a %s: %w\nhint: it is the file that the kubelet's --config names, often /var/lib/kubelet/config.yaml", name, kind, err)
	}
	root := doc.Content[0]
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		if _, twice := k.given[key.Value]; twice {
			k.faults = append(k.faults, config.Fault{File: name, Line: key.Line, Field: key.Value, Problem: "stands twice"})
		}
		if aliased(value) {
			k.faults = append(k.faults, config.Fault{File: name, Line: key.Line, Field: key.Value, Problem: "YAML aliases are not supported; write the value out"})
			continue
		}
		k.tell(given{key: key.Value, from: key.Value, file: name, value: value})
	}
	for _, key := range []string{"kind", "apiVersion"} {
		g, ok := k.given[key]
		if is := ok && (key == "kind" && g.value.Value == kind || key == "apiVersion" && strings.HasPrefix(g.value.Value, group)); !is {
			return nil, fmt.Errorf("%s is no %s: its %s is not\nhint: it is the file that the kubelet's --config names, often /var/lib/kubelet/config.yaml, and begins with `%s` and `kind: %s`", name, kind, key, example, kind)
		}
		delete(k.given, key)
	}
	k.keys = keep(k.keys, func(key string) bool { _, ok := k.given[key]; return ok })
	if len(k.faults) > 0 {
		return nil, k.faults
	}
	return k, nil
}

// aliased tells whether a value leads elsewhere, which could be to itself.
func aliased(n *yaml.Node) bool {
	if n.Kind == yaml.AliasNode {
		return true
	}
	for _, child := range n.Content {
		if aliased(child) {
			return true
		}
	}
	return false
}

func keep(all []string, which func(string) bool) []string {
	var kept []string
	for _, s := range all {
		if which(s) {
			kept = append(kept, s)
		}
	}
	return kept
}
